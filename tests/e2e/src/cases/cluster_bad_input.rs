//! What the API server lets through and no node can run: each ends in upstream's reason and event,
//! on that pod alone, and is over when its cause is.
//!
//! The reasons and messages are upstream's, from its source and recordings; what the runtime says
//! is quoted only as far as it names the culprit.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::PodView;
use ferrolet_lab::cluster::Watching;
use ferrolet_lab::image::{self, BUSYBOX, ImageSpec};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_pod_that_cannot_start_says_why_and_starts_when_the_cause_is_gone,
    a_pod_that_can_never_start_is_refused_and_makes_room_for_a_better_one,
    a_hook_that_hangs_keeps_nobody_from_leaving,
];

/// Runs as somebody who is not in its list of users.
const OF_A_GHOST: &str = "lab.test/ghost:1";
/// Runs as user 1000.
const OF_A_USER: &str = "lab.test/user:1";
/// More than a probe may say, and less than a pipe of the runtime's holds up for long.
const FLOOD: usize = 1_000_000;

/// A healthy pod whose every version is watched.
struct Witness {
    id: String,
    versions: Watching,
}

impl Witness {
    fn start(world: &mut World<'_>) -> Result<Witness> {
        let probed = with(
            sleeper("main"),
            json!({"readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}),
        );
        let seen = world.run(&world.pod("witness", &[probed]))?;
        let path = format!(
            "/api/v1/namespaces/{}/pods?fieldSelector=metadata.name%3Dwitness",
            world.namespace
        );
        Ok(Witness {
            id: seen.container("main")?.id().to_owned(),
            versions: world.cluster.watch(&path)?,
        })
    }

    /// Nothing that happened beside it has touched it, not even for a moment.
    fn ensure_untouched(&self, world: &World<'_>) -> Result<()> {
        let now = world.find_pod("witness")?.context("the witness is gone")?;
        let main = now.container("main")?;
        ensure!(
            main.id() == self.id && main.is_running() && main.restarts() == 0,
            "the witness was touched: {}",
            main.0
        );
        for version in self.versions.seen() {
            let version = PodView(version);
            ensure!(
                version.condition("Ready") == Some("True"),
                "the witness was not ready for a while: {}",
                version.0["status"]
            );
        }
        Ok(())
    }
}

/// What makes a cause go away.
type Cure<'a> = Box<dyn Fn(&World<'_>) -> Result<()> + 'a>;

/// One cause, what it looks like, and how it goes away.
struct Trouble<'a> {
    name: &'static str,
    pod: Value,
    /// Waiting reasons, any of which may be seen; none when the container runs without ever being
    /// ready.
    reasons: &'static [&'static str],
    /// Part of the waiting message.
    message: String,
    /// Reason and part of the message of an event.
    event: (&'static str, String),
    cure: Cure<'a>,
}

impl Trouble<'_> {
    fn shows_in(&self, pod: &PodView) -> bool {
        let Ok(main) = pod.container("main") else {
            return false;
        };
        match main.waiting_reason() {
            Some(reason) => {
                self.reasons.contains(&reason)
                    && main.waiting_message().unwrap_or_default().contains(&self.message)
            }
            None => self.reasons.is_empty() && main.is_running() && !main.is_ready(),
        }
    }
}

fn wait_event_about(
    world: &mut World<'_>,
    pod: &PodView,
    (reason, part): (&str, &str),
) -> Result<String> {
    let what = format!("the event {reason} about {} saying {part:?}", pod.name());
    world.cluster.wait(&what, LATER, |_| {
        let events = world.events(pod)?;
        let said: Vec<&str> = events
            .iter()
            .filter(|it| it["reason"] == reason)
            .filter_map(|it| it["message"].as_str())
            .collect();
        match said.iter().find(|it| it.contains(part)) {
            Some(message) => Ok(Some((*message).to_owned())),
            None => {
                bail!("it said {said:?} among {:?}", world.event_reasons(pod).unwrap_or_default())
            }
        }
    })
}

fn set_image(world: &World<'_>, pod: &str, image: &str) -> Result<()> {
    let (pod, image) = (format!("pod/{pod}"), format!("main={image}"));
    world.kubectl(&["set", "image", &pod, &image]).map(drop)
}

fn import_images(context: &mut Context<'_>) -> Result<()> {
    let busybox = image::busybox(&context.tools.busybox)?;
    let as_user = |name: &str, user: &str| ImageSpec {
        name: name.to_owned(),
        user: user.to_owned(),
        ..busybox.clone()
    };
    let images = [as_user(OF_A_GHOST, "ghost"), as_user(OF_A_USER, "1000")];
    context.containerd()?.import(&images)
}

/// A container that sees the test's directory.
fn sharing(container: Value) -> Value {
    with(container, json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}))
}

fn with_shared(pod: Value, directory: &Path) -> Value {
    with(
        pod,
        json!({"spec": {"volumes": [{"name": "shared", "hostPath": {"path": directory, "type": "Directory"}}]}}),
    )
}

fn from_map(map: &str) -> Value {
    json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": map, "key": "k"}}}]})
}

/// Its environment comes from a file that its sidecar writes when it is told to.
fn of_a_file(world: &World<'_>, shared: &Path) -> Value {
    let reader = with(
        sleeper("main"),
        json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef":
            {"volumeName": "written", "path": "list", "key": "A"}}}]}),
    );
    let words = "until [ -e /shared/file ]; do sleep 0.2; done; \
        echo \"A='b'\" > /written/list; exec sleep 100000";
    let writer = with(
        script("writer", words),
        json!({"restartPolicy": "Always", "volumeMounts": [
            {"name": "shared", "mountPath": "/shared"}, {"name": "written", "mountPath": "/written"}]}),
    );
    with(
        world.pod("file", &[reader]),
        json!({"spec": {
            "initContainers": [writer],
            "volumes": [
                {"name": "shared", "hostPath": {"path": shared, "type": "Directory"}},
                {"name": "written", "emptyDir": {}},
            ],
        }}),
    )
}

/// Every cause that can go away while the pod waits.
fn troubles<'a>(world: &World<'_>, shared: &'a Path, seccomp: &'a Path) -> Vec<Trouble<'a>> {
    let namespace = &world.namespace;
    let pod = |name: &str, container: Value| world.pod(name, &[container]);
    let touch = |name: &'static str| -> Cure<'a> {
        Box::new(move |_| Ok(fs::write(shared.join(name), "")?))
    };
    vec![
        Trouble {
            name: "key",
            pod: pod("key", with(sleeper("main"), from_map("half"))),
            reasons: &["CreateContainerConfigError"],
            message: format!("couldn't find key k in ConfigMap {namespace}/half"),
            event: (
                "Failed",
                format!("Error: couldn't find key k in ConfigMap {namespace}/half"),
            ),
            cure: Box::new(|world| {
                world.apply(&world.object("ConfigMap", "half", json!({"data": {"k": "v"}})))
            }),
        },
        Trouble {
            name: "map",
            pod: pod("map", with(sleeper("main"), from_map("none"))),
            reasons: &["CreateContainerConfigError"],
            message: "configmap \"none\" not found".to_owned(),
            event: ("Failed", "Error: configmap \"none\" not found".to_owned()),
            cure: Box::new(|world| {
                world.apply(&world.object("ConfigMap", "none", json!({"data": {"k": "v"}})))
            }),
        },
        Trouble {
            name: "file",
            pod: of_a_file(world, shared),
            reasons: &["CreateContainerConfigError"],
            message: "couldn't parse env file".to_owned(),
            event: ("Failed", "Error: couldn't parse env file".to_owned()),
            cure: touch("file"),
        },
        Trouble {
            name: "secret",
            pod: pod(
                "secret",
                with(
                    sleeper("main"),
                    json!({"envFrom": [{"secretRef": {"name": "late"}}]}),
                ),
            ),
            reasons: &["CreateContainerConfigError"],
            message: "secret \"late\" not found".to_owned(),
            event: ("Failed", "Error: secret \"late\" not found".to_owned()),
            cure: Box::new(|world| {
                world.apply(&world.object("Secret", "late", json!({"stringData": {"A": "b"}})))
            }),
        },
        Trouble {
            name: "volume",
            pod: with(
                pod(
                    "volume",
                    with(
                        sleeper("main"),
                        json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
                    ),
                ),
                json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "absent"}}]}}),
            ),
            reasons: &["ContainerCreating"],
            message: String::new(),
            event: (
                "FailedMount",
                "MountVolume.SetUp failed for volume \"v\" : configmap \"absent\" not found"
                    .to_owned(),
            ),
            cure: Box::new(|world| {
                world.apply(&world.object("ConfigMap", "absent", json!({"data": {"k": "v"}})))
            }),
        },
        Trouble {
            name: "directory",
            pod: with(
                pod(
                    "directory",
                    with(
                        sleeper("main"),
                        json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
                    ),
                ),
                json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": shared.join("later"), "type": "Directory"}}]}}),
            ),
            reasons: &["ContainerCreating"],
            message: String::new(),
            event: (
                "FailedMount",
                "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed".to_owned(),
            ),
            cure: Box::new(move |_| Ok(fs::create_dir(shared.join("later"))?)),
        },
        Trouble {
            name: "user",
            pod: pod(
                "user",
                with(sleeper("main"), json!({"image": OF_A_GHOST})),
            ),
            reasons: &["CreateContainerError"],
            message: "no users found".to_owned(),
            event: ("Failed", "no users found".to_owned()),
            cure: Box::new(|world| set_image(world, "user", BUSYBOX)),
        },
        Trouble {
            name: "root",
            pod: pod(
                "root",
                with(
                    sleeper("main"),
                    json!({"securityContext": {"runAsNonRoot": true}}),
                ),
            ),
            reasons: &["CreateContainerConfigError"],
            message: "container has runAsNonRoot and image will run as root (pod: \"root_"
                .to_owned(),
            event: (
                "Failed",
                "Error: container has runAsNonRoot and image will run as root".to_owned(),
            ),
            cure: Box::new(|world| set_image(world, "root", OF_A_USER)),
        },
        Trouble {
            name: "named",
            pod: pod(
                "named",
                with(
                    sleeper("main"),
                    json!({"image": OF_A_GHOST, "securityContext": {"runAsNonRoot": true}}),
                ),
            ),
            reasons: &["CreateContainerConfigError"],
            message: "container has runAsNonRoot and image has non-numeric user (ghost), cannot verify user is non-root"
                .to_owned(),
            event: ("Failed", "non-numeric user (ghost)".to_owned()),
            cure: Box::new(|world| set_image(world, "named", OF_A_USER)),
        },
        Trouble {
            name: "seccomp",
            pod: pod(
                "seccomp",
                with(
                    sleeper("main"),
                    json!({"securityContext": {"seccompProfile":
                        {"type": "Localhost", "localhostProfile": "late.json"}}}),
                ),
            ),
            reasons: &["CreateContainerError"],
            message: "late.json".to_owned(),
            event: ("Failed", "late.json".to_owned()),
            cure: Box::new(move |_| {
                fs::create_dir_all(seccomp)?;
                let profile = json!({"defaultAction": "SCMP_ACT_ALLOW"});
                Ok(fs::write(seccomp.join("late.json"), profile.to_string())?)
            }),
        },
        Trouble {
            name: "image",
            pod: pod(
                "image",
                with(sleeper("main"), json!({"image": "127.0.0.1:1/absent:1"})),
            ),
            reasons: &["ErrImagePull", "ImagePullBackOff"],
            message: "127.0.0.1:1/absent:1".to_owned(),
            event: (
                "Failed",
                "Failed to pull image \"127.0.0.1:1/absent:1\"".to_owned(),
            ),
            cure: Box::new(|world| set_image(world, "image", BUSYBOX)),
        },
        Trouble {
            name: "never",
            pod: pod(
                "never",
                with(
                    sleeper("main"),
                    json!({"image": "lab.test/absent:1", "imagePullPolicy": "Never"}),
                ),
            ),
            reasons: &["ErrImageNeverPull"],
            message: "Container image \"lab.test/absent:1\" is not present with pull policy of Never"
                .to_owned(),
            event: (
                "ErrImageNeverPull",
                "Container image \"lab.test/absent:1\" is not present with pull policy of Never"
                    .to_owned(),
            ),
            cure: Box::new(|world| set_image(world, "never", BUSYBOX)),
        },
        Trouble {
            name: "name",
            pod: pod(
                "name",
                with(sleeper("main"), json!({"image": "Not A Name!"})),
            ),
            reasons: &["InvalidImageName"],
            message: "Failed to apply default image tag \"Not A Name!\"".to_owned(),
            event: ("InspectFailed", "couldn't parse image name".to_owned()),
            cure: Box::new(|world| set_image(world, "name", BUSYBOX)),
        },
        Trouble {
            name: "hook",
            pod: with_shared(
                pod(
                    "hook",
                    sharing(with(
                        sleeper("main"),
                        json!({"lifecycle": {"postStart": {"exec": {"command":
                            ["sh", "-c", "until [ -e /shared/hook ]; do sleep 0.2; done"]}}}}),
                    )),
                ),
                shared,
            ),
            reasons: &["ContainerCreating"],
            message: String::new(),
            event: ("Started", "Container started".to_owned()),
            cure: touch("hook"),
        },
        Trouble {
            name: "flood",
            pod: with_shared(
                pod(
                    "flood",
                    sharing(with(
                        sleeper("main"),
                        json!({"readinessProbe": {"periodSeconds": 1, "timeoutSeconds": 10,
                            "exec": {"command": ["sh", "-c",
                                format!("yes flood | head -c {FLOOD}; [ -e /shared/flood ]")]}}}),
                    )),
                ),
                shared,
            ),
            reasons: &[],
            message: String::new(),
            event: ("Unhealthy", "Readiness probe failed: flood".to_owned()),
            cure: touch("flood"),
        },
    ]
}

fn a_pod_that_cannot_start_says_why_and_starts_when_the_cause_is_gone(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    import_images(context)?;
    let mut world = World::start(context)?;
    let shared = world.node.node.directory().join("shared");
    fs::create_dir(&shared)?;
    let seccomp = world.node.node.root().join("seccomp");
    let witness = Witness::start(&mut world)?;
    world.apply(&world.object("ConfigMap", "half", json!({"data": {"other": "v"}})))?;
    let troubles = troubles(&world, &shared, &seccomp);
    for trouble in &troubles {
        world.apply(&trouble.pod)?;
    }
    for trouble in &troubles {
        let what = format!("to show {:?} {:?}", trouble.reasons, trouble.message);
        let seen = world.wait_pod(trouble.name, &what, LATER, |pod| trouble.shows_in(pod))?;
        let event = (trouble.event.0, trouble.event.1.as_str());
        let said = wait_event_about(&mut world, &seen, event)?;
        // Whatever a container says, nobody is told more than a page of it.
        ensure!(said.len() < 11 << 10, "an event of {} bytes", said.len());
    }
    witness.ensure_untouched(&world)?;
    for trouble in &troubles {
        (trouble.cure)(&world).with_context(|| format!("cure {}", trouble.name))?;
    }
    for trouble in &troubles {
        let seen = world.wait_pod(trouble.name, "to be well", LATER, |pod| {
            pod.phase() == "Running" && pod.condition("Ready") == Some("True")
        })?;
        ensure!(seen.restarts() == 0, "{} was restarted: {}", trouble.name, seen.0["status"]);
    }
    witness.ensure_untouched(&world)?;
    Ok(Outcome::Passed)
}

/// What a pod asks for that no time will give it.
struct Refusal {
    name: &'static str,
    /// Laid over a pod whose only container sleeps.
    pod: Value,
    /// The phase, and the reason: the pod's when it failed, the container's while it waits.
    ends_in: (&'static str, &'static str),
    event: (&'static str, &'static str),
}

fn refusals(world: &World<'_>) -> Vec<Refusal> {
    let with_sysctl = |name: &'static str, sysctl: &str, value: &str| {
        with(
            world.pod(name, &[sleeper("main")]),
            json!({"spec": {"securityContext": {"sysctls": [{"name": sysctl, "value": value}]}}}),
        )
    };
    let configured = |name: &'static str, change: Value| {
        with(
            world.pod(name, &[with(sleeper("main"), change)]),
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        )
    };
    vec![
        Refusal {
            name: "forbidden",
            pod: with_sysctl("forbidden", "kernel.msgmax", "10000"),
            ends_in: ("Failed", "SysctlForbidden"),
            event: ("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
        },
        Refusal {
            name: "impossible",
            pod: with_sysctl("impossible", "net.ipv4.ip_local_port_range", "nonsense"),
            ends_in: ("Pending", "ContainerCreating"),
            event: ("FailedCreatePodSandBox", "ip_local_port_range"),
        },
        Refusal {
            name: "field",
            pod: configured(
                "field",
                json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef":
                    {"containerName": "nobody", "resource": "limits.cpu"}}}]}),
            ),
            ends_in: ("Pending", "CreateContainerConfigError"),
            event: ("Failed", "container nobody not found"),
        },
        Refusal {
            name: "expression",
            pod: configured(
                "expression",
                json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(NOPE)"}]}),
            ),
            ends_in: ("Pending", "CreateContainerConfigError"),
            event: ("Failed", "NOPE"),
        },
    ]
}

fn a_pod_that_can_never_start_is_refused_and_makes_room_for_a_better_one(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let witness = Witness::start(&mut world)?;
    let refusals = refusals(&world);
    for refusal in &refusals {
        world.apply(&refusal.pod)?;
    }
    let mut refused = Vec::new();
    for Refusal { name, ends_in, event, .. } in &refusals {
        let (phase, reason) = *ends_in;
        let what = format!("{phase} with {reason}");
        let seen = world.wait_pod(name, &what, LATER, |pod| {
            let waits = pod.container("main").is_ok_and(|it| it.waiting_reason() == Some(reason));
            pod.phase() == phase && (waits || pod.0["status"]["reason"] == reason)
        })?;
        wait_event_about(&mut world, &seen, *event)?;
        refused.push(seen);
    }
    for Refusal { name, .. } in &refusals {
        world.kubectl(&["delete", "pod", name, "--wait=false"])?;
    }
    for seen in &refused {
        world.wait_gone(seen, SOON)?;
    }
    for Refusal { name, .. } in &refusals {
        world.run(&world.pod(name, &[sleeper("main")]))?;
    }
    witness.ensure_untouched(&world)?;
    Ok(Outcome::Passed)
}

fn a_hook_that_hangs_keeps_nobody_from_leaving(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let witness = Witness::start(&mut world)?;
    let hooked = |world: &World<'_>, name: &str, moment: &str| {
        let polite = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
        let forever = json!({"exec": {"command": ["sleep", "100000"]}});
        let hooks = json!({"lifecycle": {moment: forever}});
        world.pod(name, &[with(script("main", polite), hooks)])
    };
    let before = world.run(&hooked(&world, "before", "preStop"))?;
    world.apply(&hooked(&world, "after", "postStart"))?;
    let after = world.wait_known("after")?;
    world.wait_event(&after, "Started")?;
    world.kubectl(&["delete", "pod", "before", "after", "--wait=false"])?;
    // The grace is a second; what hangs gets no more of it than a command that does not.
    for seen in [&before, &after] {
        world.wait_gone(seen, SOON)?;
    }
    witness.ensure_untouched(&world)?;
    Ok(Outcome::Passed)
}
