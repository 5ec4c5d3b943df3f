//! Making sandboxes and starting containers: the longer actions, step by step, each failure with
//! upstream's reason.

use std::{borrow::Cow, collections::BTreeMap, fmt::Display, path::PathBuf};

use ferrolet_lifecycle::{RestartCount, StartError};
use ferrolet_pod::{WaitingReason, containers_of};
use ferrolet_ports::{
    Event, EventKind, EventObject, HookCall, HookMoment, ImageInfo, PlacedContainer, SubPath,
};
use ferrolet_resources::{QuotaMode, pod_cgroup};
use ferrolet_spec::{
    ContainerInputs, ContainerSpec, IdMapping, ImageUser, MountedImage, NodeDns, Notice,
    NoticeAbout, SandboxInputs, SandboxSpec, SpecError, VolumeSource, container_env,
    container_spec, hosts_file, node_hosts_file, parse_resolv_conf, pod_dns, pod_hostname,
    sandbox_spec,
};
use ferrolet_types::{
    ContainerId, ContainerName, Pod, SandboxId,
    pod::{ContainerKind, PodView},
};
use k8s_openapi::api::core::v1::{Container, Pod as PodObject};

use crate::{
    World,
    execute::{restart_number, stop_after_pre_stop},
    memory::Memory,
    metrics,
    objects::env_objects,
    pull::Wanted,
    tell::{ContainerEvents, Happened, say_of_pod},
    userns::user_mappings,
};

/// A container to start.
#[derive(Clone, Debug)]
pub(crate) struct StartOrder {
    pub(crate) container: ContainerName,
    pub(crate) kind: ContainerKind,
    pub(crate) sandbox: SandboxId,
    pub(crate) restarts: RestartCount,
    pub(crate) crash_streak: u32,
}

/// Makes the pod's sandbox; waits its turn, so that a hundred pods do not make each other late.
pub(crate) async fn create_sandbox(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    attempt: u32,
) -> Result<(), String> {
    let _slot = world.sandbox_slots.acquire().await.expect("the line of sandboxes is never closed");
    let failed = |error: SandboxError| format!("Failed to create pod sandbox: {error}");
    let dns = dns_of_node(world).await.map_err(failed)?;
    for notice in pod_dns(pod, &dns).notices {
        say_notice(world, pod, notice);
    }
    let user_mappings = users_of(world, pod).await.map_err(failed)?;
    let places = SandboxPlace { attempt, user_mappings, dns };
    let spec = request_sandbox(world, memory, pod, places).map_err(failed)?;
    let has_own_users = pod.spec_ref().host_users == Some(false);
    let making = world.runtime.run_sandbox(&spec);
    let busy = memory.made.making.begin();
    let made = metrics::sandbox(&spec.runtime_handler, has_own_users, making).await;
    drop(busy);
    made.map(drop).map_err(|error| format!("Failed to create pod sandbox: {error}"))
}

fn say_notice(world: &World, pod: &Pod, notice: Notice) {
    match notice.about {
        NoticeAbout::Pod => say_of_pod(
            world.events.as_ref(),
            pod,
            EventKind::Warning,
            notice.reason,
            notice.message,
        ),
        NoticeAbout::Node => world.events.record(Event {
            object: EventObject::Node,
            kind: EventKind::Warning,
            reason: notice.reason.to_owned(),
            message: notice.message,
        }),
    }
}

/// What is looked up for each sandbox.
struct SandboxPlace {
    attempt: u32,
    user_mappings: Vec<IdMapping>,
    dns: NodeDns,
}

/// Name resolution as the node has it now.
async fn dns_of_node(world: &World) -> Result<NodeDns, SandboxError> {
    let text = world.names.resolver().await;
    let text = text.map_err(|error| SandboxError::Resolver(error.to_string()))?;
    let resolv_conf = text.map(|text| parse_resolv_conf(&text)).transpose();
    Ok(NodeDns {
        resolv_conf: resolv_conf.map_err(|error| SandboxError::Resolver(error.to_string()))?,
        ..world.settings.dns.clone()
    })
}

fn request_sandbox(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    place: SandboxPlace,
) -> Result<SandboxSpec, SandboxError> {
    let cgroup = pod_cgroup(pod, &world.settings.spec.resources.cgroups);
    let spec = sandbox_spec(
        pod,
        &SandboxInputs {
            settings: &world.settings.spec,
            dns: &place.dns,
            attempt: place.attempt,
            cgroup_parent: world.cgroups.parent_of(&cgroup),
            log_directory: world.files.log_directory(&pod.key(), memory.asked.uid()),
            runtime_handler: runtime_handler(world, pod)?,
            user_mappings: place.user_mappings,
            extra_groups: memory.made.volumes().values().filter_map(|it| it.group).collect(),
        },
    )?;
    Ok(spec)
}

/// Why a sandbox cannot be asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("RuntimeClass.node.k8s.io {0:?} not found")]
    NoSuchClass(String),
    #[error("{0}")]
    Users(String),
    #[error("{0}")]
    Resolver(String),
}

/// The pod's own users, where it has them.
async fn users_of(world: &World, pod: &Pod) -> Result<Vec<IdMapping>, SandboxError> {
    let handler = runtime_handler(world, pod)?;
    user_mappings(world, pod, &handler).await.map_err(SandboxError::Users)
}

/// The handler of the pod's runtime class; empty for the default.
pub(crate) fn runtime_handler(world: &World, pod: &PodObject) -> Result<String, SandboxError> {
    let Some(class) =
        pod.spec_ref().runtime_class_name.as_deref().filter(|class| !class.is_empty())
    else {
        return Ok(String::new());
    };
    let handler = world.lookups.as_deref().and_then(|lookups| lookups.runtime_handler(class));
    handler.ok_or_else(|| SandboxError::NoSuchClass(class.to_owned()))
}

/// Fetches the image, then makes and starts the container.
pub(crate) async fn start_container(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    order: StartOrder,
) -> Result<(), StartError> {
    let container = specified(pod, &order).ok_or_else(|| {
        StartError::other(
            WaitingReason::CreateContainerConfigError,
            format!("container {} is not in the pod's specification", order.container),
        )
    })?;
    let tell = ContainerEvents::new(world.events.as_ref(), pod, order.kind, &container.name);
    let sandbox = sandbox_around(world, memory, pod, &order.sandbox).await;
    let sandbox = sandbox.map_err(|error| {
        StartError::other(WaitingReason::CreateContainerConfigError, error.to_string())
    })?;
    let wanted = Wanted {
        pod,
        named: container.image.as_deref().unwrap_or_default(),
        policy: container.image_pull_policy.as_deref(),
        sandbox: &sandbox,
    };
    let image = world.puller.ensure(world, wanted, &tell).await?;
    let around = Around { sandbox: &sandbox, image: &image };
    let request = request_container(world, memory, pod, (&order, &container), around).await?;
    let log_path = format!("{}/{}", sandbox.log_directory.display(), request.log_path);

    let busy = memory.made.making.begin();
    let created = world.runtime.create_container(&order.sandbox, &sandbox, &request).await;
    let id = created
        .map_err(|error| StartError::other(WaitingReason::CreateContainerError, error.message))?;
    tell.say(Happened::Created);
    let started = world.runtime.start_container(&id).await;
    drop(busy);
    started.map_err(|error| StartError::other(WaitingReason::RunContainerError, error.message))?;
    tell.say(Happened::Started);
    let link = LogLink { pod, container: &container.name, id: &id, log_path: &log_path };
    link.make(world).await;
    run_post_start(world, memory, pod, &order, &container, &id).await
}

/// The request that the sandbox a container joins was made from.
async fn sandbox_around(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    id: &SandboxId,
) -> Result<SandboxSpec, SandboxError> {
    let mut sandboxes = memory.seen.observation().sandboxes.iter();
    let place = SandboxPlace {
        attempt: sandboxes.find(|it| it.id == *id).map_or(0, |it| it.attempt),
        user_mappings: users_of(world, pod).await?,
        dns: dns_of_node(world).await?,
    };
    request_sandbox(world, memory, pod, place)
}

/// What is known when a container's request is made.
#[derive(Clone, Copy)]
struct Around<'a> {
    sandbox: &'a SandboxSpec,
    image: &'a ImageInfo,
}

/// The link under `/var/log/containers`: convenient, and no reason to fail.
struct LogLink<'a> {
    pod: &'a Pod,
    container: &'a str,
    id: &'a ContainerId,
    log_path: &'a str,
}

impl LogLink<'_> {
    async fn make(self, world: &World) {
        let Self { pod, container, id, log_path } = self;
        if let Err(error) =
            world.files.link_container_log(&pod.key(), container, id, log_path).await
        {
            tracing::warn!(pod = %pod.key(), container, %error, "Log link cannot be made");
        }
    }
}

/// Runs the container's postStart hook; a container whose hook fails is stopped again.
async fn run_post_start(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    order: &StartOrder,
    container: &Container,
    id: &ContainerId,
) -> Result<(), StartError> {
    let Some(handler) = container.lifecycle.as_ref().and_then(|it| it.post_start.clone()) else {
        return Ok(());
    };
    let sandbox = memory.seen.observation().sandboxes.iter().find(|it| it.id == order.sandbox);
    let call = HookCall {
        pod: pod.clone(),
        pod_ip: sandbox.and_then(|it| it.ips.first().cloned()),
        container: container.clone(),
        id: id.clone(),
        handler,
    };
    let Err(error) = world.hooks.run(&call).await else {
        return Ok(());
    };
    tracing::warn!(pod = %pod.key(), container = %container.name, %error, "PostStart hook failed");
    let tell = ContainerEvents::new(world.events.as_ref(), pod, order.kind, &container.name);
    tell.say(Happened::HookFailed(HookMoment::PostStart));
    tell.say(Happened::Killing(HookMoment::PostStart.failure_reason().to_owned()));
    let name = &order.container;
    if let Err(error) = stop_after_pre_stop(world, memory, id, name, pod.grace_period()).await {
        tracing::warn!(pod = %pod.key(), container = %container.name, %error, "Container cannot be stopped after its postStart hook failed");
    }
    Err(StartError::other(WaitingReason::PostStartHookError, error.to_string()))
}

fn specified(pod: &Pod, order: &StartOrder) -> Option<Container> {
    let of_kind = containers_of(pod, order.kind).into_iter();
    of_kind.map(Cow::into_owned).find(|it| it.name == order.container.as_str())
}

/// Gathers what a container is made from, and makes the request.
async fn request_container(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    (order, container): (&StartOrder, &Container),
    Around { sandbox, image }: Around<'_>,
) -> Result<ContainerSpec, StartError> {
    let config_error =
        |message: String| StartError::other(WaitingReason::CreateContainerConfigError, message);
    let uid = memory.asked.uid();
    let sandbox_seen = memory.seen.observation().sandboxes.iter().find(|it| it.id == order.sandbox);
    // On the host's network the pod's addresses are the node's, and its sandbox has none.
    let pod_ips = if pod.is_host_network() {
        world.node().host_ips.clone()
    } else {
        sandbox_seen.map(|it| it.ips.clone()).unwrap_or_default()
    };

    let files = own_files(world, pod, &container.name, &pod_ips).await?;
    let volumes = volume_sources(world, memory, pod, container, sandbox).await?;
    let extra_groups: Vec<i64> = memory.made.volumes().values().filter_map(|it| it.group).collect();
    let has_recursive_mounts =
        container.volume_mounts.iter().flatten().any(|mount| mount.recursive_read_only.is_some());
    let supports_recursive_read_only = if has_recursive_mounts {
        let handler =
            runtime_handler(world, pod).map_err(|error| config_error(error.to_string()))?;
        let asked = world.recursive_read_only(&handler).await;
        asked.map_err(|error| config_error(error.to_string()))?
    } else {
        false
    };
    let mut cdi_devices = world.claims.cdi_devices(pod, container).map_err(config_error)?;
    let given = world.devices.for_container(uid, &container.name).await;
    let mut plugins = given.map_err(config_error)?;
    // In upstream's order: those of claims come first.
    cdi_devices.append(&mut plugins.cdi_devices);
    plugins.cdi_devices = cdi_devices;
    let objects = env_objects(world, memory, pod, container).await;
    let target = target_of(memory, pod, order).map_err(config_error)?;
    let place = match &world.placing {
        Some(placing) => placing.place(pod, &container.name).await,
        None => PlacedContainer::default(),
    };
    let node = world.node();
    let restart_count = restart_number(order.restarts, files.newest_log);
    let seen = memory.seen.observation();
    let mut inputs = ContainerInputs {
        settings: &world.settings.spec,
        node: &node,
        objects: &objects,
        volumes: &volumes,
        sub_paths: &BTreeMap::new(),
        restart_count,
        n_left_behind: memory.made.n_left_behind(seen, &order.container, restart_count),
        crash_streak: order.crash_streak,
        image_ref: image.id.clone(),
        image_user: match image.user_id {
            Some(id) => ImageUser::Id(id),
            // An image that names nobody runs as root.
            None if image.username.is_empty() => ImageUser::Id(0),
            None => ImageUser::Name(image.username.clone()),
        },
        pod_ips: &pod_ips,
        hosts_file: Some(&files.hosts),
        termination_log: Some(&files.termination_log),
        target: target.as_ref(),
        user_mappings: &sandbox.security.namespaces.user_mappings,
        extra_groups: &extra_groups,
        supports_recursive_read_only,
        plugins,
        quota: match place.is_unthrottled {
            true => QuotaMode::Exclusive,
            false => QuotaMode::Enforced,
        },
    };
    let sub_paths = prepare_sub_paths(world, memory, pod, container, &inputs).await?;
    inputs.sub_paths = &sub_paths;
    let spec = container_spec(pod, order.kind, container, &inputs);
    let mut spec = spec.map_err(|error| config_error(error.to_string()))?;
    spec.resources.cpuset_cpus = place.cpus;
    spec.resources.cpuset_mems = place.mems;
    Ok(spec)
}

/// Files that a container has of its own before it starts.
struct OwnFiles {
    newest_log: Option<u32>,
    termination_log: PathBuf,
    hosts: PathBuf,
}

async fn own_files(
    world: &World,
    pod: &Pod,
    container: &str,
    pod_ips: &[String],
) -> Result<OwnFiles, StartError> {
    let refused = |error: &dyn Display| {
        StartError::other(WaitingReason::CreateContainerConfigError, error.to_string())
    };
    let (key, uid) = (pod.key(), pod.uid());
    let newest_log = world.files.ensure_container_logs(&key, &uid, container).await;
    let newest_log = newest_log.map_err(|error| refused(&error))?;
    let termination_log = world.files.new_termination_log(&uid, container).await;
    let termination_log = termination_log.map_err(|error| refused(&error))?;
    let hosts = hosts_text(world, pod, pod_ips).await.map_err(|error| refused(&error))?;
    let hosts = world.files.write_hosts(&uid, &hosts).await.map_err(|error| refused(&error))?;
    Ok(OwnFiles { newest_log, termination_log, hosts })
}

/// Where the pod's volumes stand; images that the container mounts are fetched first.
async fn volume_sources(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    container: &Container,
    sandbox: &SandboxSpec,
) -> Result<BTreeMap<String, VolumeSource>, StartError> {
    let mut sources = BTreeMap::new();
    for (name, mount) in memory.made.volumes() {
        let mut mounts = container.volume_mounts.iter().flatten();
        let is_mounted = mounts.any(|it| it.name == *name);
        let image = match &mount.image {
            Some(_) if is_mounted => {
                let found = volume_image(world, pod, name, sandbox).await;
                metrics::image_volume(&found);
                Some(found?)
            }
            // Nobody looks at it there; the name tells it from a directory.
            other => other.clone().map(|named| MountedImage { named, ..MountedImage::default() }),
        };
        let source = VolumeSource {
            host_path: mount.host_path.clone(),
            is_read_only: mount.is_read_only,
            selinux_relabel: mount.selinux_relabel,
            image,
            device: mount.device.clone(),
        };
        sources.insert(name.clone(), source);
    }
    Ok(sources)
}

/// Fetches the image that a volume is, in the line of all images, and answers with what the runtime
/// mounts it by.
async fn volume_image(
    world: &World,
    pod: &Pod,
    volume: &str,
    sandbox: &SandboxSpec,
) -> Result<MountedImage, StartError> {
    let mut volumes = pod.spec_ref().volumes.iter().flatten();
    let source =
        volumes.find(|it| it.name == volume).and_then(|it| it.image.clone()).unwrap_or_default();
    let tell = ContainerEvents::of_pod(world.events.as_ref(), pod);
    let named = source.reference.unwrap_or_default();
    let wanted = Wanted { pod, named: &named, policy: source.pull_policy.as_deref(), sandbox };
    let image = world.puller.ensure(world, wanted, &tell).await?;
    Ok(MountedImage {
        id: image.id,
        named,
        runtime_handler: sandbox.runtime_handler.clone(),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
    })
}

/// The container whose processes an ephemeral one is to see.
fn target_of(
    memory: &Memory,
    pod: &Pod,
    order: &StartOrder,
) -> Result<Option<ContainerId>, String> {
    let mut ephemeral = pod.spec_ref().ephemeral_containers.iter().flatten();
    let target = ephemeral
        .find(|it| order.kind == ContainerKind::Ephemeral && it.name == order.container.as_str())
        .and_then(|it| it.target_container_name.as_deref())
        .filter(|name| !name.is_empty());
    let Some(name) = target else {
        return Ok(None);
    };
    let found = memory.seen.observation().newest_container(name);
    let found = found.ok_or_else(|| format!("unable to find target container {name}"))?;
    Ok(Some(found.id.clone()))
}

async fn hosts_text(world: &World, pod: &Pod, pod_ips: &[String]) -> Result<String, SpecError> {
    if pod.is_host_network() {
        return Ok(node_hosts_file(pod, &world.names.hosts().await));
    }
    let hostname = pod_hostname(pod, &world.settings.cluster_domain)?;
    Ok(hosts_file(pod, &hostname, pod_ips))
}

async fn prepare_sub_paths(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    container: &Container,
    inputs: &ContainerInputs<'_>,
) -> Result<BTreeMap<usize, String>, StartError> {
    let config_error =
        |message: String| StartError::other(WaitingReason::CreateContainerConfigError, message);
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let mut prepared = BTreeMap::new();
    if mounts.iter().all(|mount| mount.sub_path.is_none() && mount.sub_path_expr.is_none()) {
        return Ok(prepared);
    }
    let env =
        container_env(pod, container, inputs).map_err(|error| config_error(error.to_string()))?;
    for (index, path) in ferrolet_spec::sub_paths(container, &env)
        .map_err(|error| config_error(error.to_string()))?
    {
        let mount = &mounts[index];
        // A part of an image is the runtime's to find.
        let Some(volume) =
            memory.made.volumes().get(&mount.name).filter(|volume| volume.image.is_none())
        else {
            continue;
        };
        let part = SubPath {
            uid: memory.asked.uid().clone(),
            volume: mount.name.clone(),
            host_path: volume.host_path.clone(),
            container: container.name.clone(),
            index,
            path,
            is_read_only: mount.read_only.unwrap_or(false),
        };
        let ready =
            world.volumes.sub_path(&part).await.map_err(|error| config_error(error.message))?;
        prepared.insert(index, ready);
    }
    Ok(prepared)
}
