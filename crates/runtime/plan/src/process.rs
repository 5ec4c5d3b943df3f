//! What a container executes, as whom, in which environment, and how it is asked to end.

use ferrolet_cri_proto as cri;
use ferrolet_runtime_protocol::launch::{GroupsPolicy, Process, User};

use crate::container::{ContainerPlace, ImageFacts};
use crate::defaults;
use crate::refusal::Refusal;

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The largest id that a user or a group can have.
const MAX_ID: i64 = i32::MAX as i64;
/// The first of the signals without names, as C libraries count them.
const SIGRTMIN: i32 = 34;
const SIGTERM: i32 = 15;

/// Signals by their names, with those that have two.
const SIGNALS: [(&str, i32); 34] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("POLL", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// A container's first process.
pub(crate) fn process(
    config: &cri::ContainerConfig,
    place: &ContainerPlace<'_>,
) -> Result<Process, Refusal> {
    let security = security(config);
    let image = place.image;
    let working_dir = [&config.working_dir, &image.working_dir, "/"];
    let working_dir = working_dir.into_iter().find(|it| !it.is_empty()).unwrap_or("/");
    refuse_profiles(&security)?;
    let score = resources(config).oom_score_adj.clamp(-1000, 1000);
    Ok(Process {
        args: args(config, image)?,
        env: env(config, image, place.hostname),
        working_dir: working_dir.to_owned(),
        user: Some(user(&security, image)?),
        capabilities: capabilities(config)?,
        no_new_privs: security.no_new_privs,
        seccomp: place.seccomp.map(|it| it.program.clone()).unwrap_or_default(),
        seccomp_flags: place.seccomp.map_or(0, |it| it.flags),
        oom_score_adj: i32::try_from(score).ok(),
        ..Process::default()
    })
}

/// Which profile of system calls a container asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeccompProfile<'a> {
    /// None.
    Unconfined,
    /// The runtime's own.
    Default,
    /// A file of the node.
    Localhost(&'a str),
}

/// The profile that a container asks for; nothing said is none, as CRI has it. A privileged
/// container has none, whatever is asked for.
///
/// # Errors
///
/// When the file has no absolute path.
pub fn seccomp_profile(config: &cri::ContainerConfig) -> Result<SeccompProfile<'_>, Refusal> {
    use cri::security_profile::ProfileType::{Localhost, RuntimeDefault, Unconfined};
    let security = config.linux.as_ref().and_then(|it| it.security_context.as_ref());
    let asked = security.filter(|it| !it.privileged).and_then(|it| it.seccomp.as_ref());
    let Some(asked) = asked else { return Ok(SeccompProfile::Unconfined) };
    match asked.profile_type() {
        Unconfined => Ok(SeccompProfile::Unconfined),
        RuntimeDefault => Ok(SeccompProfile::Default),
        Localhost if asked.localhost_ref.starts_with('/') => {
            Ok(SeccompProfile::Localhost(&asked.localhost_ref))
        }
        Localhost => {
            let path = asked.localhost_ref.clone();
            Err(Refusal::Path { what: "seccomp profile", path })
        }
    }
}

/// A profile that somebody relies on is refused, not passed over.
fn refuse_profiles(security: &cri::LinuxContainerSecurityContext) -> Result<(), Refusal> {
    use cri::security_profile::ProfileType::Localhost;
    let asked = security.apparmor.as_ref().map(cri::SecurityProfile::profile_type);
    if asked == Some(Localhost) {
        return Err(Refusal::Unsupported("an AppArmor profile of the node's"));
    }
    Ok(())
}

pub(crate) fn security(config: &cri::ContainerConfig) -> cri::LinuxContainerSecurityContext {
    config.linux.as_ref().and_then(|it| it.security_context.clone()).unwrap_or_default()
}

pub(crate) fn resources(config: &cri::ContainerConfig) -> cri::LinuxContainerResources {
    config.linux.as_ref().and_then(|it| it.resources.clone()).unwrap_or_default()
}

/// A command replaces all of the image's, arguments alone only its default ones.
fn args(config: &cri::ContainerConfig, image: &ImageFacts) -> Result<Vec<String>, Refusal> {
    let args: Vec<String> = if config.command.is_empty() {
        let args = if config.args.is_empty() { &image.cmd } else { &config.args };
        image.entrypoint.iter().chain(args).cloned().collect()
    } else {
        config.command.iter().chain(&config.args).cloned().collect()
    };
    if args.first().is_none_or(String::is_empty) { Err(Refusal::NoCommand) } else { Ok(args) }
}

/// The container's counts before the image's, that before what everybody has.
fn env(config: &cri::ContainerConfig, image: &ImageFacts, hostname: &str) -> Vec<Vec<u8>> {
    let mut env: Vec<Vec<u8>> = Vec::new();
    let mut set = |entry: Vec<u8>| {
        let key = |it: &[u8]| it.iter().position(|b| *b == b'=').map(|at| it[..at].to_vec());
        let own = key(&entry);
        match env.iter_mut().find(|it| own.is_some() && key(it) == own) {
            Some(there) => *there = entry,
            None => env.push(entry),
        }
    };
    set(PATH.into());
    if config.tty {
        set(b"TERM=xterm".to_vec());
    }
    set(format!("HOSTNAME={hostname}").into());
    image.env.iter().for_each(|it| set(it.as_bytes().to_vec()));
    config.envs.iter().for_each(|it| set([it.key.as_bytes(), b"=", &it.value].concat()));
    env
}

fn user(
    security: &cri::LinuxContainerSecurityContext,
    image: &ImageFacts,
) -> Result<User, Refusal> {
    let uid = security.run_as_user.map(|it| id("user id", it.value)).transpose()?;
    let asked = if security.run_as_username.is_empty() {
        uid.map(|it| it.to_string()).unwrap_or_default()
    } else {
        security.run_as_username.clone()
    };
    let group = security.run_as_group.map(|it| id("group id", it.value)).transpose()?;
    let (user, group) = match (asked.is_empty(), group) {
        (true, Some(group)) => return Err(Refusal::GroupWithoutUser(group)),
        (true, None) => {
            let (user, group) = image.user.split_once(':').unwrap_or((&image.user, ""));
            (user.to_owned(), group.to_owned())
        }
        (false, group) => (asked, group.map(|it| it.to_string()).unwrap_or_default()),
    };
    let groups = security.supplemental_groups.iter().map(|it| {
        let group = id("supplemental group", *it)?;
        u32::try_from(group).map_err(|_| Refusal::Id { what: "supplemental group", id: group })
    });
    let policy = match security.supplemental_groups_policy() {
        cri::SupplementalGroupsPolicy::Merge => GroupsPolicy::Merge,
        cri::SupplementalGroupsPolicy::Strict => GroupsPolicy::Strict,
    };
    let supplemental_groups = groups.collect::<Result<_, _>>()?;
    Ok(User { user, group, supplemental_groups, policy: policy.into() })
}

fn id(what: &'static str, id: i64) -> Result<i64, Refusal> {
    if (0..=MAX_ID).contains(&id) { Ok(id) } else { Err(Refusal::Id { what, id }) }
}

/// The capabilities that a container has, one bit each.
///
/// # Errors
///
/// When a name is no capability, or an ambient one is asked for.
pub fn capabilities(config: &cri::ContainerConfig) -> Result<u64, Refusal> {
    let security = security(config);
    if security.privileged {
        return Ok(defaults::ALL_CAPABILITIES);
    }
    let asked = security.capabilities.clone().unwrap_or_default();
    if !asked.add_ambient_capabilities.is_empty() {
        return Err(Refusal::Unsupported("an ambient capability"));
    }
    defaults::capabilities(&asked.add_capabilities, &asked.drop_capabilities)
        .map_err(|it| Refusal::Capability(it.0))
}

/// The number of the signal that asks a container to end: its own, its image's, SIGTERM.
#[must_use]
pub fn stop_signal(asked: cri::Signal, image: &str) -> i32 {
    let own = asked.as_str_name().strip_prefix("SIGNAL_").filter(|it| it.starts_with("SIG"));
    let own = own.map(|it| it.replace("PLUS", "+").replace("MINUS", "-"));
    own.and_then(|it| signal(&it)).or_else(|| signal(image)).unwrap_or(SIGTERM)
}

/// A signal as images name it: `SIGQUIT`, `quit`, `3`, `SIGRTMIN+3`.
fn signal(text: &str) -> Option<i32> {
    let text = text.trim().to_ascii_uppercase();
    if let Ok(number) = text.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    let number = |text: &str| text.parse::<i32>().ok().filter(|it| (0..=30).contains(it));
    match name {
        "RTMIN" => Some(SIGRTMIN),
        "RTMAX" => Some(64),
        _ => name
            .strip_prefix("RTMIN+")
            .and_then(number)
            .map(|it| SIGRTMIN + it)
            .or_else(|| name.strip_prefix("RTMAX-").and_then(number).map(|it| 64 - it))
            .or_else(|| SIGNALS.iter().find(|(it, _)| *it == name).map(|(_, number)| *number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> ImageFacts {
        let strings = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        ImageFacts {
            env: strings(&["A=image", "PATH=/bin", "broken"]),
            entrypoint: strings(&["/entry"]),
            cmd: strings(&["default"]),
            user: "www:web".to_owned(),
            working_dir: String::new(),
            layers: Vec::new(),
        }
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn a_command_replaces_the_images_and_arguments_its_default_ones() {
        let check = |command: &[&str], arguments: &[&str]| {
            let config = cri::ContainerConfig {
                command: strings(command),
                args: strings(arguments),
                ..Default::default()
            };
            args(&config, &image()).unwrap()
        };
        assert_eq!(check(&[], &[]), ["/entry", "default"]);
        assert_eq!(check(&[], &["-v"]), ["/entry", "-v"]);
        assert_eq!(check(&["sh"], &[]), ["sh"]);
        assert_eq!(check(&["sh"], &["-c"]), ["sh", "-c"]);
        let empty = ImageFacts { entrypoint: Vec::new(), cmd: Vec::new(), ..image() };
        assert_eq!(args(&cri::ContainerConfig::default(), &empty), Err(Refusal::NoCommand));
    }

    #[test]
    fn the_containers_environment_counts_before_the_images() {
        let variable =
            |key: &str, value: &[u8]| cri::KeyValue { key: key.to_owned(), value: value.to_vec() };
        let config = cri::ContainerConfig {
            envs: vec![variable("A", b"own"), variable("B", b"\xff="), variable("HOSTNAME", b"h")],
            tty: true,
            ..Default::default()
        };
        let env = env(&config, &image(), "web-0");
        let shown: Vec<_> = env.iter().map(|it| String::from_utf8_lossy(it)).collect();
        let expected = ["PATH=/bin", "TERM=xterm", "HOSTNAME=h", "A=own", "broken", "B=\u{fffd}="];
        assert_eq!(shown, expected);
        assert_eq!(env[5], b"B=\xff=");
    }

    #[test]
    fn a_user_is_the_containers_or_the_images_and_a_group_needs_one() {
        let value = |value| Some(cri::Int64Value { value });
        let base = cri::LinuxContainerSecurityContext::default;
        let check = |security: cri::LinuxContainerSecurityContext| {
            user(&security, &image()).map(|it| format!("{}:{}", it.user, it.group))
        };
        assert_eq!(check(base()), Ok("www:web".to_owned()));
        let own = cri::LinuxContainerSecurityContext { run_as_user: value(7), ..base() };
        assert_eq!(check(own.clone()), Ok("7:".to_owned()));
        let group = cri::LinuxContainerSecurityContext { run_as_group: value(8), ..own };
        assert_eq!(check(group.clone()), Ok("7:8".to_owned()));
        let named = cri::LinuxContainerSecurityContext {
            run_as_username: "admin".to_owned(),
            run_as_user: None,
            ..group.clone()
        };
        assert_eq!(check(named), Ok("admin:8".to_owned()));
        let alone = cri::LinuxContainerSecurityContext { run_as_user: None, ..group };
        assert_eq!(check(alone), Err(Refusal::GroupWithoutUser(8)));
        for id in [-1, 1 << 31, 1 << 32, i64::MAX] {
            let far = cri::LinuxContainerSecurityContext { run_as_user: value(id), ..base() };
            assert_eq!(check(far), Err(Refusal::Id { what: "user id", id }));
            let far =
                cri::LinuxContainerSecurityContext { supplemental_groups: vec![id], ..base() };
            assert_eq!(check(far), Err(Refusal::Id { what: "supplemental group", id }));
        }
    }

    #[test]
    fn a_profile_is_the_runtimes_a_files_or_none() {
        use cri::security_profile::ProfileType::{Localhost, RuntimeDefault, Unconfined};
        let config = |kind: cri::security_profile::ProfileType, path: &str, privileged| {
            let seccomp = Some(cri::SecurityProfile {
                profile_type: kind.into(),
                localhost_ref: path.to_owned(),
            });
            let security =
                cri::LinuxContainerSecurityContext { seccomp, privileged, ..Default::default() };
            cri::ContainerConfig {
                linux: Some(cri::LinuxContainerConfig {
                    security_context: Some(security),
                    ..Default::default()
                }),
                ..Default::default()
            }
        };
        let relative = Refusal::Path { what: "seccomp profile", path: "p.json".to_owned() };
        let cases = [
            (config(Unconfined, "", false), Ok(SeccompProfile::Unconfined)),
            (config(RuntimeDefault, "", false), Ok(SeccompProfile::Default)),
            (config(RuntimeDefault, "", true), Ok(SeccompProfile::Unconfined)),
            (config(Localhost, "/p.json", false), Ok(SeccompProfile::Localhost("/p.json"))),
            (config(Localhost, "/p.json", true), Ok(SeccompProfile::Unconfined)),
            (config(Localhost, "p.json", false), Err(relative)),
            (cri::ContainerConfig::default(), Ok(SeccompProfile::Unconfined)),
        ];
        for (config, expected) in cases {
            assert_eq!(seccomp_profile(&config), expected);
        }
    }

    #[test]
    fn an_apparmor_profile_that_cannot_be_applied_is_refused_and_not_passed_over() {
        let profile = cri::SecurityProfile {
            profile_type: cri::security_profile::ProfileType::Localhost.into(),
            localhost_ref: "x".to_owned(),
        };
        let asked =
            cri::LinuxContainerSecurityContext { apparmor: Some(profile), ..Default::default() };
        assert!(matches!(refuse_profiles(&asked), Err(Refusal::Unsupported(_))));
        assert_eq!(refuse_profiles(&cri::LinuxContainerSecurityContext::default()), Ok(()));
    }

    #[test]
    fn a_container_ends_by_its_own_signal_or_its_images_or_sigterm() {
        let default = cri::Signal::RuntimeDefault;
        let cases = [
            (cri::Signal::Sigquit, "SIGINT", 3),
            (cri::Signal::Sigrtminplus3, "", 37),
            (cri::Signal::Sigrtmaxminus14, "", 50),
            (default, "SIGINT", 2),
            (default, "quit", 3),
            (default, "9", 9),
            (default, "SIGRTMIN+3", 37),
            (default, "RTMAX", 64),
            (default, "", 15),
            (default, "NONSENSE", 15),
            (default, "65", 15),
            (default, "SIGRTMIN+99", 15),
        ];
        for (asked, image, expected) in cases {
            assert_eq!(stop_signal(asked, image), expected, "{asked:?} {image:?}");
        }
    }
}
