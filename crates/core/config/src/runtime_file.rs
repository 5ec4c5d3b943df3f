//! `runtime.yaml`: what the embedded runtime is told, beside the kubelet's own configuration.
//!
//! In: the text, if there is one, and where the agent keeps its things. Out: [`RuntimeFile`], every field with a value;
//! or every fault, with its line. Addresses are checked by whoever gives them to pods.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    FieldError, NamedText, RawConfig,
    schema::{
        Document, Fallback, Field,
        Kind::{Bool, List, Object, Path as FilePath, Text},
        plain, pointer,
    },
};

/// The file's name, in the directory of the kubelet's configuration.
pub const RUNTIME_FILE: &str = "runtime.yaml";

/// Where an agent of a machine keeps its things when it is not told otherwise.
const USUAL_ROOT: &str = "/var/lib/kubelet";
/// What belongs to the kernel that runs, and goes with it.
const RUN: &str = "/run/ferrolet";
/// The links and the table of the packet filter of a machine's usual agent are called so.
const USUAL_NAME: &str = "ferrolet";
const POD_CIDR: &str = "10.88.0.0/16";
const CNI_CONFIGURATIONS: &str = "/etc/cni/net.d";
const CNI_PLUGINS: &str = "/opt/cni/bin";

const fn field(name: &'static str, kind: crate::schema::Kind) -> Field {
    plain(name, kind, Fallback::Nothing)
}

const IMAGES: &[Field] =
    &[field("archiveDirectory", FilePath), pointer("demonstration", Bool, Fallback::Nothing)];
const REGISTRIES: &[Field] =
    &[field("hostsDirectory", FilePath), field("certificateFile", FilePath)];
const NETWORK: &[Field] = &[
    field("name", Text),
    pointer("podCIDRs", List(&Text), Fallback::Nothing),
    field("unmaskedCIDRs", List(&Text)),
    field("cniConfigurationDirectory", FilePath),
    field("cniPluginDirectories", List(&Text)),
];

const RUNTIME: Document = Document {
    api_version: "runtime.ferrolet.dev/v1alpha1",
    kind: "RuntimeConfiguration",
    fields: &[
        field("rootDirectory", FilePath),
        field("runDirectory", FilePath),
        pointer("socket", FilePath, Fallback::Nothing),
        field("cgroupParent", Text),
        field("images", Object(IMAGES)),
        field("registries", Object(REGISTRIES)),
        field("network", Object(NETWORK)),
    ],
};

/// What the embedded runtime is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeFile {
    /// Images, records and writable layers.
    pub root: PathBuf,
    /// What goes with the kernel.
    pub run: PathBuf,
    /// Where other programs of the administrator reach the runtime, such as `crictl`; `None`: nowhere.
    pub socket: Option<PathBuf>,
    /// The control group above pods that name none.
    pub cgroup_parent: String,
    /// Archives in this directory are loaded, at the start and when they appear.
    pub archives: Option<PathBuf>,
    /// Whether the demonstration image is put into the store.
    pub has_demonstration: bool,
    /// `<registry>/hosts.toml` files.
    pub registry_hosts: Option<PathBuf>,
    /// Certificates that registries are trusted by, in place of the machine's.
    pub registry_certificates: Option<PathBuf>,
    /// What tells this runtime's links and rules from those of another on the same machine.
    pub network_name: String,
    /// Pods' addresses until a cluster says; at most one range of each family.
    pub pod_cidrs: Vec<String>,
    /// Where else pods go under their own addresses.
    pub unmasked_cidrs: Vec<String>,
    /// While there is a configuration in it, CNI plugins connect pods.
    pub cni_configurations: PathBuf,
    /// Where those plugins are.
    pub cni_plugins: Vec<PathBuf>,
}

impl RuntimeFile {
    /// Reads the file strictly; without one everything is as usual for an agent with this root directory.
    pub fn read(text: Option<&NamedText>, root_dir: &Path) -> Result<Self, Vec<FieldError>> {
        let (raw, mut faults) =
            text.map_or_else(Default::default, |text| RawConfig::decode_as(text, RUNTIME));
        let path = |at: &str| text_at(&raw, at).map(PathBuf::from);
        let run = path("runDirectory").unwrap_or_else(|| run_directory(root_dir));
        let socket = match raw.get("socket").and_then(Value::as_str) {
            None => Some(run.join("runtime.sock")),
            Some("") => None,
            Some(given) => Some(given.into()),
        };
        let plugins = texts_at(&raw, "network.cniPluginDirectories");
        let file = Self {
            root: path("rootDirectory").unwrap_or_else(|| root_dir.join("runtime")),
            socket,
            cgroup_parent: text_at(&raw, "cgroupParent").unwrap_or_else(|| "/ferrolet".to_owned()),
            archives: path("images.archiveDirectory"),
            has_demonstration: raw.get("images.demonstration") != Some(&Value::Bool(false)),
            registry_hosts: path("registries.hostsDirectory"),
            registry_certificates: path("registries.certificateFile"),
            network_name: text_at(&raw, "network.name").unwrap_or_else(|| network_name(root_dir)),
            pod_cidrs: match raw.get("network.podCIDRs") {
                None => vec![POD_CIDR.to_owned()],
                Some(_) => texts_at(&raw, "network.podCIDRs"),
            },
            unmasked_cidrs: texts_at(&raw, "network.unmaskedCIDRs"),
            cni_configurations: path("network.cniConfigurationDirectory")
                .unwrap_or_else(|| CNI_CONFIGURATIONS.into()),
            cni_plugins: match plugins.is_empty() {
                true => vec![CNI_PLUGINS.into()],
                false => plugins.into_iter().map(PathBuf::from).collect(),
            },
            run,
        };
        file.check(&mut faults);
        match (faults.is_empty(), text) {
            (true, _) => Ok(file),
            (false, Some(text)) => {
                Err(faults.into_iter().map(|it| it.blamed_on(&text.name)).collect())
            }
            (false, None) => Err(faults),
        }
    }

    fn check(&self, faults: &mut Vec<FieldError>) {
        let is_plain = self.cgroup_parent.split('/').all(|it| it != ".." && it != ".");
        if !is_plain || self.cgroup_parent.trim_matches('/').is_empty() {
            let why = "is no control group below the root";
            faults.push(FieldError::at("cgroupParent", &self.cgroup_parent, why));
        }
        let is_name_part = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        if self.network_name.len() > 63 || !self.network_name.chars().all(is_name_part) {
            let why = "must be at most 63 letters, digits, '-' and '_'";
            faults.push(FieldError::at("network.name", &self.network_name, why));
        }
        for (index, plugins) in self.cni_plugins.iter().enumerate() {
            if !plugins.is_absolute() {
                let path = format!("network.cniPluginDirectories[{index}]");
                faults.push(FieldError::at(path, plugins.display(), "is not an absolute path"));
            }
        }
    }
}

fn text_at(raw: &RawConfig, path: &str) -> Option<String> {
    raw.get(path)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn texts_at(raw: &RawConfig, path: &str) -> Vec<String> {
    let items = raw.get(path).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Short, because sockets' paths are; and another one for each root directory.
fn run_directory(root_dir: &Path) -> PathBuf {
    match root_dir == Path::new(USUAL_ROOT) {
        true => RUN.into(),
        false => format!("{RUN}-{}", digest_of(root_dir)).into(),
    }
}

fn network_name(root_dir: &Path) -> String {
    match root_dir == Path::new(USUAL_ROOT) {
        true => USUAL_NAME.to_owned(),
        false => format!("{USUAL_NAME}-{}", digest_of(root_dir)),
    }
}

/// FNV-1a of a path, folded to 32 bits: eight hexadecimal digits that are the same for ever.
fn digest_of(path: &Path) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in path.as_os_str().as_encoded_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{:08x}", (hash ^ hash >> 32) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: runtime.ferrolet.dev/v1alpha1\nkind: RuntimeConfiguration\n";

    fn read(text: &str) -> Result<RuntimeFile, Vec<String>> {
        let text =
            NamedText { name: "/etc/node/runtime.yaml".to_owned(), text: format!("{HEAD}{text}") };
        RuntimeFile::read(Some(&text), Path::new("/var/lib/kubelet"))
            .map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_field_has_a_default() {
        let usual = RuntimeFile::read(None, Path::new("/var/lib/kubelet")).unwrap();
        assert_eq!(read("").unwrap(), usual);
        assert_eq!(usual.root, Path::new("/var/lib/kubelet/runtime"));
        assert_eq!(usual.socket.as_deref(), Some(Path::new("/run/ferrolet/runtime.sock")));
        assert_eq!(usual.pod_cidrs, ["10.88.0.0/16"]);
        assert_eq!(usual.network_name, "ferrolet");
        assert!(usual.has_demonstration);
    }

    #[test]
    fn agents_with_different_root_directories_share_nothing() {
        let of = |root: &str| RuntimeFile::read(None, Path::new(root)).unwrap();
        let (one, other) = (of("/srv/a"), of("/srv/b"));
        assert_ne!(one.run, other.run);
        assert_ne!(one.network_name, other.network_name);
        assert_ne!(one.root, other.root);
        // The longest name below it is that of a monitor's socket, which has 108 bytes.
        assert!(one.run.as_os_str().len() <= 24, "{:?}", one.run);
    }

    #[test]
    fn what_is_given_counts_and_relative_paths_begin_at_the_file() {
        let file = read(
            "socket: ''\nimages: {demonstration: false, archiveDirectory: images}\n\
             network: {podCIDRs: [], cniPluginDirectories: [/a, /b]}\n",
        )
        .unwrap();
        assert_eq!(file.socket, None);
        assert!(!file.has_demonstration);
        assert_eq!(file.archives.as_deref(), Some(Path::new("/etc/node/images")));
        assert!(file.pod_cidrs.is_empty());
        assert_eq!(file.cni_plugins, [Path::new("/a"), Path::new("/b")]);
    }

    #[test]
    fn faults_name_file_field_and_value() {
        let check = |text: &str, expected: &str| {
            let faults = read(text).unwrap_err().join("; ");
            assert!(faults.contains(expected), "{text}: {faults}");
            assert!(faults.contains("/etc/node/runtime.yaml"), "{text}: {faults}");
        };
        check("rootDir: /x", "rootDir");
        check("network: {podCIDRs: 10.0.0.0/8}", "network.podCIDRs");
        check("cgroupParent: /a/../b", "cgroupParent = /a/../b: is no control group");
        check("network: {name: 'a b'}", "network.name = a b");
        check("network: {cniPluginDirectories: [a]}", "network.cniPluginDirectories[0] = a");
    }
}
