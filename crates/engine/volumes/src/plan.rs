//! From a pod to what each of its volumes should be. Pure: the same pod and node give the same
//! plan.
//!
//! Only volumes that some container mounts are planned, as upstream does; a volume that nobody uses
//! may refer to anything. What depends on the pod alone (downward API, modes, owners, mount points)
//! is settled here; what depends on objects of the API is named here ([`Source`]) and filled in by
//! `payload` once the objects are at hand. A volume that cannot be planned says why in upstream's
//! words and does not keep its neighbours from being ready.

use std::time::Duration;

use ferrolet_ports::{
    CertificateAsk, EmptyDir, FsGroupChangePolicy, HostPathType, Medium, ObjectKind, PayloadFile,
    TokenAsk, TrustAsk, VolumePlace, VolumeSpec,
};
use ferrolet_resources::Amounts;
use ferrolet_types::{PodKey, PodUid, pod::PodView as _};
use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, Container, DownwardAPIVolumeFile, KeyToPath, Pod,
    PodCertificateProjection, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume,
    VolumeProjection,
};

use crate::{
    downward,
    medium::{empty_dir_medium, wrapped_memory},
    nested::{all_containers, nested_mount_points},
    paths::{clean, has_backstep},
    selinux::SelinuxAsk,
    spec::inline_spec,
    trust::selector_text,
};

/// Mode of files where the API says nothing; it always does, manifests of a node on its own may
/// not.
const DEFAULT_MODE: i32 = 0o644;
/// Fetching repositories ran strangers' programs as root (CVE-2024-10220, CVE-2025-1767): upstream
/// has locked it off.
const NO_GIT: &str = "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`";
/// Life of a token where the API says nothing.
const DEFAULT_TOKEN_LIFE: i64 = 3600;

/// The plugins whose volumes are made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plugin {
    /// `emptyDir`
    EmptyDir,
    /// `configMap`
    ConfigMap,
    /// `secret`
    Secret,
    /// `downwardAPI`
    DownwardApi,
    /// `projected`
    Projected,
}

impl Plugin {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::EmptyDir, Self::ConfigMap, Self::Secret, Self::DownwardApi, Self::Projected];

    /// The name of its directory.
    pub fn directory(self) -> &'static str {
        match self {
            Self::EmptyDir => "kubernetes.io~empty-dir",
            Self::ConfigMap => "kubernetes.io~configmap",
            Self::Secret => "kubernetes.io~secret",
            Self::DownwardApi => "kubernetes.io~downward-api",
            Self::Projected => "kubernetes.io~projected",
        }
    }
}

/// What a pod's volumes should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlan {
    /// Whose they are.
    pub uid: PodUid,
    /// The pod's namespace and name.
    pub key: PodKey,
    /// The group that everything in them belongs to.
    pub group: Option<u32>,
    /// When that group is given to volumes that outlive pods.
    pub group_change: FsGroupChangePolicy,
    /// In whose name the pod runs.
    pub service_account: String,
    /// Its processes are nobody outside the pod, so they cannot take files out of an account.
    pub has_own_users: bool,
    /// Files are to be relabelled one by one for SELinux, never by mounting.
    pub relabels_files: bool,
    /// The volumes that containers mount, in the pod's order.
    pub volumes: Vec<PlannedVolume>,
}

/// What one volume should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedVolume {
    /// Its name in the pod.
    pub name: String,
    /// How containers use it.
    pub uses: Uses,
    /// What containers that mount it ask of SELinux.
    pub selinux: Vec<SelinuxAsk>,
    /// What it should be.
    pub desired: Desired,
}

/// How containers use a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// Some container mounts it.
    pub as_files: bool,
    /// Some container gets it as a device.
    pub as_device: bool,
}

/// What a volume should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// A directory that starts empty.
    EmptyDir {
        /// What it lives on.
        medium: Medium,
        /// Its permissions.
        mode: u32,
    },
    /// A path of the node.
    HostPath {
        /// The path.
        path: String,
        /// What must be there.
        expected: HostPathType,
    },
    /// Files that we write.
    Files {
        /// Whose directory it stands in.
        plugin: Plugin,
        /// What it lives on.
        medium: Medium,
        /// Where the files come from; later ones replace earlier ones.
        sources: Vec<Source>,
        /// Directories for other volumes to be mounted on.
        mount_points: Vec<String>,
    },
    /// An image, which the runtime mounts by itself.
    Image {
        /// The image, as the pod names it.
        reference: String,
    },
    /// What a claim is bound to; the API says what that is.
    Claim(ClaimUse),
    /// Something that the node does not make itself and that the pod names in its own words: another
    /// machine's, or a driver's.
    Inline(Box<VolumeSpec>),
    /// Nothing we can make: the sentence says why.
    Impossible(String),
    /// A kind of volume that is not served yet.
    Unsupported(&'static str),
}

/// How a pod uses a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUse {
    /// The claim's name, in the pod's namespace.
    pub claim: String,
    /// It was made for this pod alone (generic ephemeral volumes), and must say so.
    pub is_own: bool,
    /// The pod only reads.
    pub is_read_only: bool,
}

/// Where files of a volume come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Keys of a config map or secret.
    Object {
        /// Which of the two.
        kind: ObjectKind,
        /// Its name, in the pod's namespace.
        name: String,
        /// Neither it nor its keys need be there.
        is_optional: bool,
        /// The keys that are wanted; all when empty.
        items: Vec<Item>,
        /// The mode of files.
        mode: u32,
    },
    /// Files that depend on the pod alone, or why they cannot be made.
    OfPod(Result<Vec<(String, PayloadFile)>, String>),
    /// Certificates that the cluster trusts.
    Trust {
        /// The file's path.
        path: String,
        /// Which ones.
        ask: TrustAsk,
        /// There need not be any.
        is_optional: bool,
        /// The file's mode.
        mode: u32,
        /// The file's owner.
        owner: Option<u32>,
    },
    /// A key and the certificates for it.
    Certificate {
        /// Which of the volume's sources it is.
        index: usize,
        /// Which certificate.
        ask: Box<CertificateAsk>,
        /// The file that holds both.
        bundle_path: Option<String>,
        /// The file that holds the key.
        key_path: Option<String>,
        /// The file that holds the certificates.
        chain_path: Option<String>,
        /// The files' mode.
        mode: u32,
        /// The files' owner.
        owner: Option<u32>,
    },
    /// A service-account token.
    Token {
        /// The file's path.
        path: String,
        /// Which token.
        ask: TokenAsk,
        /// The file's mode.
        mode: u32,
        /// The file's owner.
        owner: Option<u32>,
    },
}

/// One key of an object as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: String,
    /// The file's path.
    pub path: String,
    /// The file's own mode.
    pub mode: Option<u32>,
}

/// Plans every volume of the pod that some container mounts.
pub fn plan_pod(pod: &Pod, allocatable: &Amounts) -> PodPlan {
    let containers = all_containers(pod);
    let security = pod.spec_ref().security_context.as_ref();
    let planner = Planner {
        pod,
        allocatable,
        group: security.and_then(|it| it.fs_group).and_then(id_of),
        user: only_user(pod, &containers),
    };
    let volumes = pod.spec_ref().volumes.iter().flatten();
    let volumes = volumes.filter(|volume| is_used(&containers, &volume.name));
    PodPlan {
        uid: pod.uid(),
        key: pod.key(),
        group: planner.group,
        service_account: planner.service_account(),
        has_own_users: pod.spec_ref().host_users == Some(false),
        relabels_files: security.and_then(|it| it.se_linux_change_policy.as_deref())
            == Some("Recursive"),
        group_change: match security.and_then(|it| it.fs_group_change_policy.as_deref()) {
            Some("OnRootMismatch") => FsGroupChangePolicy::OnRootMismatch,
            _ => FsGroupChangePolicy::Always,
        },
        volumes: volumes
            .map(|volume| PlannedVolume {
                name: volume.name.clone(),
                uses: uses_of(&containers, &volume.name),
                selinux: selinux_of(pod, &containers, &volume.name),
                desired: planner.volume(volume),
            })
            .collect(),
    }
}

impl PlannedVolume {
    /// Where it stands below the pod's directory; `None` for what stands elsewhere.
    pub fn place(&self, uid: &PodUid) -> Option<VolumePlace> {
        let plugin = match &self.desired {
            Desired::EmptyDir { .. } => Plugin::EmptyDir,
            Desired::Files { plugin, .. } => *plugin,
            Desired::HostPath { .. }
            | Desired::Image { .. }
            | Desired::Claim(_)
            | Desired::Inline(_)
            | Desired::Impossible(_)
            | Desired::Unsupported(_) => {
                return None;
            }
        };
        Some(VolumePlace {
            uid: uid.clone(),
            plugin: plugin.directory().to_owned(),
            name: self.name.clone(),
        })
    }
}

fn is_used(containers: &[Container], volume: &str) -> bool {
    let uses = uses_of(containers, volume);
    uses.as_files || uses.as_device
}

fn uses_of(containers: &[Container], volume: &str) -> Uses {
    let mut mounts = containers.iter().flat_map(|it| it.volume_mounts.iter().flatten());
    let mut devices = containers.iter().flat_map(|it| it.volume_devices.iter().flatten());
    Uses {
        as_files: mounts.any(|it| it.name == volume),
        as_device: devices.any(|it| it.name == volume),
    }
}

/// What the containers that mount a volume ask of SELinux, each for itself or the pod for all.
fn selinux_of(pod: &Pod, containers: &[Container], volume: &str) -> Vec<SelinuxAsk> {
    let pods = pod.spec_ref().security_context.as_ref();
    let pods = pods.and_then(|it| it.se_linux_options.as_ref());
    let mounting = containers.iter().filter(|container| {
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.any(|it| it.name == volume)
    });
    let asked = mounting.filter_map(|container| {
        let own = container.security_context.as_ref();
        own.and_then(|it| it.se_linux_options.as_ref()).or(pods)
    });
    asked.map(SelinuxAsk::from).collect()
}

/// The one user that all containers run as; `None` when they differ or one leaves it to its image.
fn only_user(pod: &Pod, containers: &[Container]) -> Option<u32> {
    let pods = pod.spec_ref().security_context.as_ref();
    let pods = pods.and_then(|it| it.run_as_user);
    let mut users = containers.iter().map(|container| {
        let own = container.security_context.as_ref();
        own.and_then(|it| it.run_as_user).or(pods)
    });
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first).and_then(id_of)
}

fn id_of(id: i64) -> Option<u32> {
    u32::try_from(id).ok()
}

/// The permissions of an `emptyDir`; what is beyond the sticky bit is nobody's wish.
fn open_mode(given: Option<i32>) -> u32 {
    given.and_then(|mode| u32::try_from(mode).ok()).map_or(EmptyDir::OPEN_TO_ALL, |it| it & 0o1777)
}

fn mode_of(mode: Option<i32>) -> u32 {
    u32::try_from(mode.unwrap_or(DEFAULT_MODE)).unwrap_or_default() & 0o7777
}

struct Planner<'a> {
    pod: &'a Pod,
    allocatable: &'a Amounts,
    group: Option<u32>,
    user: Option<u32>,
}

impl Planner<'_> {
    fn volume(&self, volume: &Volume) -> Desired {
        if let Some(source) = &volume.host_path {
            return host_path(&source.path, source.type_.as_deref());
        }
        if let Some(source) = &volume.empty_dir {
            return match empty_dir_medium(self.pod, source, self.allocatable) {
                Ok(medium) => Desired::EmptyDir { medium, mode: open_mode(source.mode) },
                Err(why) => Desired::Impossible(why),
            };
        }
        if let Some(source) = &volume.config_map {
            let found = Source::Object {
                kind: ObjectKind::ConfigMap,
                name: source.name.clone(),
                is_optional: source.optional.unwrap_or(false),
                items: items_of(source.items.as_deref()),
                mode: mode_of(source.default_mode),
            };
            return self.files(volume, Plugin::ConfigMap, vec![found]);
        }
        if let Some(source) = &volume.secret {
            let found = Source::Object {
                kind: ObjectKind::Secret,
                name: source.secret_name.clone().unwrap_or_default(),
                is_optional: source.optional.unwrap_or(false),
                items: items_of(source.items.as_deref()),
                mode: mode_of(source.default_mode),
            };
            return self.files(volume, Plugin::Secret, vec![found]);
        }
        if let Some(source) = &volume.downward_api {
            let files = source.items.as_deref().unwrap_or_default();
            let found = self.downward(files, mode_of(source.default_mode));
            return self.files(volume, Plugin::DownwardApi, vec![found]);
        }
        if let Some(source) = &volume.projected {
            let found = self.projected(source);
            return self.files(volume, Plugin::Projected, found);
        }
        if let Some(source) = &volume.image {
            return Desired::Image { reference: source.reference.clone().unwrap_or_default() };
        }
        if let Some(source) = &volume.persistent_volume_claim {
            return Desired::Claim(ClaimUse {
                claim: source.claim_name.clone(),
                is_own: false,
                is_read_only: source.read_only.unwrap_or(false),
            });
        }
        if volume.ephemeral.is_some() {
            // The claim that the control plane makes for the pod; nobody else's under that name
            // will do.
            return Desired::Claim(ClaimUse {
                claim: format!("{}-{}", self.pod.key().name, volume.name),
                is_own: true,
                is_read_only: false,
            });
        }
        match inline_spec(volume) {
            Some(spec) => Desired::Inline(Box::new(spec)),
            None => unsupported(volume),
        }
    }

    fn files(&self, volume: &Volume, plugin: Plugin, sources: Vec<Source>) -> Desired {
        let medium = match plugin {
            // Upstream keeps config maps on disk: nothing in them is secret, and nobody's memory is
            // charged.
            Plugin::ConfigMap => Medium::Disk,
            _ => wrapped_memory(self.pod, self.allocatable),
        };
        Desired::Files {
            plugin,
            medium,
            sources,
            mount_points: nested_mount_points(self.pod, &volume.name),
        }
    }

    fn downward(&self, files: &[DownwardAPIVolumeFile], default_mode: u32) -> Source {
        let mut made = Vec::new();
        let mut faults = Vec::new();
        for file in files {
            match downward::content(self.pod, file, self.allocatable) {
                Ok(text) => {
                    let file_made = PayloadFile {
                        content: text.into_bytes(),
                        mode: file.mode.map_or(default_mode, |mode| mode_of(Some(mode))),
                        owner: None,
                    };
                    made.push((clean(&file.path), file_made));
                }
                Err(fault) => faults.push(fault),
            }
        }
        Source::OfPod(match joined(&faults) {
            None => Ok(made),
            Some(fault) => Err(fault),
        })
    }

    fn projected(&self, projected: &ProjectedVolumeSource) -> Vec<Source> {
        let mode = mode_of(projected.default_mode);
        let sources = projected.sources.iter().flatten();
        sources.enumerate().map(|(index, source)| self.projection(source, index, mode)).collect()
    }

    fn projection(&self, source: &VolumeProjection, index: usize, mode: u32) -> Source {
        if let Some(found) = &source.secret {
            return Source::Object {
                kind: ObjectKind::Secret,
                name: found.name.clone(),
                is_optional: found.optional.unwrap_or(false),
                items: items_of(found.items.as_deref()),
                mode,
            };
        }
        if let Some(found) = &source.config_map {
            return Source::Object {
                kind: ObjectKind::ConfigMap,
                name: found.name.clone(),
                is_optional: found.optional.unwrap_or(false),
                items: items_of(found.items.as_deref()),
                mode,
            };
        }
        if let Some(found) = &source.downward_api {
            return self.downward(found.items.as_deref().unwrap_or_default(), mode);
        }
        if let Some(found) = &source.service_account_token {
            return self.token(found, mode);
        }
        if let Some(found) = &source.cluster_trust_bundle {
            return self.trust_bundle(found, mode);
        }
        if let Some(found) = &source.pod_certificate {
            return self.certificate(found, index, mode);
        }
        Source::OfPod(Err("projected source of an unknown kind".to_owned()))
    }

    fn token(&self, found: &ServiceAccountTokenProjection, mode: u32) -> Source {
        let life = found.expiration_seconds.unwrap_or(DEFAULT_TOKEN_LIFE);
        let audience = found.audience.iter().filter(|it| !it.is_empty());
        Source::Token {
            path: found.path.clone(),
            ask: TokenAsk {
                namespace: self.pod.key().namespace.to_string(),
                service_account: self.service_account(),
                audiences: audience.cloned().collect(),
                lifetime: Some(Duration::from_secs(u64::try_from(life).unwrap_or(0))),
                bound_pod: Some((self.pod.key(), self.pod.uid())),
            },
            mode: self.private_mode(mode),
            owner: self.user,
        }
    }

    fn trust_bundle(&self, found: &ClusterTrustBundleProjection, mode: u32) -> Source {
        let ask = match (&found.name, &found.signer_name) {
            (Some(name), _) => TrustAsk::Name(name.clone()),
            (None, Some(signer)) => TrustAsk::Signer {
                signer: signer.clone(),
                labels: selector_text(found.label_selector.as_ref()),
            },
            (None, None) => {
                let why =
                    "ClusterTrustBundle projection requires either name or signerName to be set";
                return Source::OfPod(Err(why.to_owned()));
            }
        };
        Source::Trust {
            path: found.path.clone(),
            ask,
            is_optional: found.optional.unwrap_or(false),
            mode: self.private_mode(mode),
            owner: self.user,
        }
    }

    fn certificate(&self, found: &PodCertificateProjection, index: usize, mode: u32) -> Source {
        let path = |it: &Option<String>| it.clone().filter(|it| !it.is_empty());
        Source::Certificate {
            index,
            ask: Box::new(CertificateAsk {
                pod: (self.pod.key(), self.pod.uid()),
                service_account: self.service_account(),
                signer: found.signer_name.clone(),
                key_type: found.key_type.clone(),
                longest_life: found.max_expiration_seconds,
                annotations: found.user_annotations.clone().unwrap_or_default(),
            }),
            bundle_path: path(&found.credential_bundle_path),
            key_path: path(&found.key_path),
            chain_path: path(&found.certificate_chain_path),
            mode: self.private_mode(mode),
            owner: self.user,
        }
    }

    /// The mode of a file that is for its owner alone, where it has one. The group is let in
    /// afterwards, with everything else in the volume.
    fn private_mode(&self, mode: u32) -> u32 {
        if self.user.is_some() || self.group.is_some() { 0o600 } else { mode }
    }

    fn service_account(&self) -> String {
        let spec = self.pod.spec_ref();
        spec.service_account_name.clone().unwrap_or_default()
    }
}

/// Several faults as one sentence, as upstream lists them; `None` when there are none.
pub(crate) fn joined(faults: &[String]) -> Option<String> {
    let mut distinct: Vec<&str> = Vec::new();
    for fault in faults {
        if !distinct.contains(&fault.as_str()) {
            distinct.push(fault);
        }
    }
    match distinct.as_slice() {
        [] => None,
        [only] => Some((*only).to_owned()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

fn host_path(path: &str, word: Option<&str>) -> Desired {
    if has_backstep(path) {
        return Desired::Impossible(format!("invalid HostPath `{path}`: must not contain '..'"));
    }
    Desired::HostPath { path: path.to_owned(), expected: HostPathType::parse(word) }
}

fn items_of(items: Option<&[KeyToPath]>) -> Vec<Item> {
    let items = items.unwrap_or_default().iter();
    items
        .map(|item| Item {
            key: item.key.clone(),
            path: item.path.clone(),
            mode: item.mode.map(|mode| mode_of(Some(mode))),
        })
        .collect()
}

fn unsupported(volume: &Volume) -> Desired {
    if volume.git_repo.is_some() {
        return Desired::Impossible(NO_GIT.to_owned());
    }
    let kinds: [(&'static str, bool); 12] = [
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
        ("scaleIO, storageos, quobyte or photon", true),
    ];
    let found = kinds.iter().find(|(_, is_it)| *is_it);
    Desired::Unsupported(found.map_or("unknown", |(kind, _)| kind))
}
