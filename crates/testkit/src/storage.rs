//! Fakes of the ports `StorageObjects` and `NodeMounts`: claims, volumes and mounts as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ferrolet_ports::{
    ApiError, ApiErrorKind, CertificateAsk, Detached, DeviceMount, Disk, DiskForm, DiskKey,
    FlexPlace, FsGroupOwner, Fut, HostError, MountAccess, NodeMounts, ProgramMount, Record,
    RecordPlace, Records, RequestedCertificate, Retry, StorageObjects, TrustAsk, VolumePlace,
};
use ferrolet_types::PodUid;
use k8s_openapi::api::{
    certificates::v1::PodCertificateRequest,
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Secret},
    storage::v1::{CSIDriver, CSINode, VolumeAttachment},
};
use serde_json::Value;

use crate::files::pod_directory;

/// Storage objects that a test hands out and takes back.
#[derive(Clone, Default)]
pub struct FakeStorage {
    state: Arc<Mutex<StoredObjects>>,
}

/// What the fake holds, by name; claims and secrets by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct StoredObjects {
    /// Claims.
    pub claims: BTreeMap<(String, String), PersistentVolumeClaim>,
    /// Volumes.
    pub volumes: BTreeMap<String, PersistentVolume>,
    /// Drivers.
    pub drivers: BTreeMap<String, CSIDriver>,
    /// Attachments.
    pub attachments: BTreeMap<String, VolumeAttachment>,
    /// Secrets.
    pub secrets: BTreeMap<(String, String), Secret>,
    /// The node's drivers.
    pub csi_node: Option<CSINode>,
    /// How often its status was replaced.
    pub n_csi_statuses: usize,
    /// Requests for certificates, by namespace and name.
    pub certificates: BTreeMap<(String, String), PodCertificateRequest>,
    /// How many were made.
    pub n_certificates: usize,
    /// The node itself.
    pub node: Option<Node>,
    /// Trust bundles, by what they are asked with.
    pub bundles: BTreeMap<TrustAsk, Vec<String>>,
    /// Patches of claims' statuses.
    pub patches: Vec<Value>,
}

impl FakeStorage {
    /// What is there now.
    pub fn look(&self) -> StoredObjects {
        self.lock().clone()
    }

    /// Changes what is there.
    pub fn change(&self, change: impl FnOnce(&mut StoredObjects)) {
        change(&mut self.lock());
    }

    /// A claim of namespace `default`, bound to a volume with that specification.
    pub fn bind_claim(&self, claim: &str, volume: &str, spec: Value) {
        let uid = format!("uid-{claim}");
        let claim_object = serde_json::json!({
            "metadata": {"name": claim, "namespace": "default", "uid": uid},
            "spec": {"volumeName": volume}, "status": {"phase": "Bound"},
        });
        let mut volume_object = serde_json::json!({"metadata": {"name": volume}, "spec": spec});
        volume_object["spec"]["claimRef"] =
            serde_json::json!({"uid": uid, "name": claim, "namespace": "default"});
        self.change(|state| {
            let key = ("default".to_owned(), claim.to_owned());
            let parsed = serde_json::from_value(claim_object).expect("a claim");
            state.claims.insert(key, parsed);
            let parsed = serde_json::from_value(volume_object).expect("a volume");
            state.volumes.insert(volume.to_owned(), parsed);
        });
    }

    fn lock(&self) -> MutexGuard<'_, StoredObjects> {
        self.state.lock().expect("no test panics in a change")
    }

    fn answer<T: Send + 'static>(
        &self,
        what: String,
        found: impl FnOnce(&mut StoredObjects) -> Option<T>,
    ) -> Fut<'static, Result<T, ApiError>> {
        let answer = found(&mut self.lock()).ok_or_else(|| ApiError {
            attempt: format!("get {what}"),
            kind: ApiErrorKind::NotFound,
            message: format!("{what} not found"),
            code: Some(404),
            causes: Vec::new(),
        });
        Box::pin(std::future::ready(answer))
    }
}

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

impl StorageObjects for FakeStorage {
    fn get_claim<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<PersistentVolumeClaim, ApiError>> {
        self.answer(format!("persistentvolumeclaims {name:?}"), |state| {
            state.claims.get(&key(namespace, name)).cloned()
        })
    }

    fn get_volume<'a>(&'a self, name: &'a str) -> Fut<'a, Result<PersistentVolume, ApiError>> {
        self.answer(format!("persistentvolumes {name:?}"), |state| state.volumes.get(name).cloned())
    }

    fn patch_claim_status<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        patch: &'a Value,
    ) -> Fut<'a, Result<PersistentVolumeClaim, ApiError>> {
        self.answer(format!("persistentvolumeclaims {name:?}"), |state| {
            state.patches.push(patch.clone());
            state.claims.get(&key(namespace, name)).cloned()
        })
    }

    fn get_driver<'a>(&'a self, name: &'a str) -> Fut<'a, Result<CSIDriver, ApiError>> {
        self.answer(format!("csidrivers {name:?}"), |state| state.drivers.get(name).cloned())
    }

    fn get_attachment<'a>(&'a self, name: &'a str) -> Fut<'a, Result<VolumeAttachment, ApiError>> {
        self.answer(format!("volumeattachments {name:?}"), |state| {
            state.attachments.get(name).cloned()
        })
    }

    fn get_own_node(&self) -> Fut<'_, Result<Node, ApiError>> {
        self.answer("nodes".to_owned(), |state| state.node.clone())
    }

    fn get_volume_secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Secret, ApiError>> {
        self.answer(format!("secrets {name:?}"), |state| {
            state.secrets.get(&key(namespace, name)).cloned()
        })
    }

    fn get_trust_bundles<'a>(
        &'a self,
        ask: &'a TrustAsk,
    ) -> Fut<'a, Result<Vec<String>, ApiError>> {
        self.answer("clustertrustbundles".to_owned(), |state| state.bundles.get(ask).cloned())
    }

    fn request_certificate<'a>(
        &'a self,
        ask: &'a CertificateAsk,
    ) -> Fut<'a, Result<RequestedCertificate, ApiError>> {
        let namespace = ask.pod.0.namespace.to_string();
        self.answer("podcertificaterequests".to_owned(), |state| {
            state.n_certificates += 1;
            let name = format!("req-{}", state.n_certificates);
            let object = serde_json::json!({
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"nodeName": "", "nodeUID": "", "podName": ask.pod.0.name.to_string(), "podUID": "",
                    "serviceAccountName": ask.service_account, "serviceAccountUID": "",
                    "signerName": ask.signer, "stubPKCS10Request": ""},
            });
            let object = serde_json::from_value(object).expect("a request");
            state.certificates.insert(key(&namespace, &name), object);
            Some(RequestedCertificate {
                key: format!("key of {name}\n"),
                name,
            })
        })
    }

    fn get_certificate_request<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<PodCertificateRequest, ApiError>> {
        self.answer(format!("podcertificaterequests {name:?}"), |state| {
            state.certificates.get(&key(namespace, name)).cloned()
        })
    }

    fn get_csi_node(&self) -> Fut<'_, Result<CSINode, ApiError>> {
        self.answer("csinodes".to_owned(), |state| state.csi_node.clone())
    }

    fn create_csi_node<'a>(&'a self, node: &'a CSINode) -> Fut<'a, Result<CSINode, ApiError>> {
        self.answer("csinodes".to_owned(), |state| {
            state.csi_node = Some(node.clone());
            state.csi_node.clone()
        })
    }

    fn replace_csi_node<'a>(&'a self, node: &'a CSINode) -> Fut<'a, Result<CSINode, ApiError>> {
        self.create_csi_node(node)
    }

    fn replace_csi_node_status<'a>(
        &'a self,
        node: &'a CSINode,
    ) -> Fut<'a, Result<CSINode, ApiError>> {
        self.answer("csinodes".to_owned(), |state| {
            state.n_csi_statuses += 1;
            let known = state.csi_node.as_mut()?;
            known.status.clone_from(&node.status);
            state.csi_node.clone()
        })
    }
}

/// Mounts in memory. They outlive the engine under test, as a mount table would.
#[derive(Clone, Default)]
pub struct FakeMounts {
    state: Arc<Mutex<MountTable>>,
}

/// What the fake holds.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    /// What is shown at volumes' places.
    pub bound: BTreeMap<VolumePlace, (String, MountAccess)>,
    /// What programs mounted.
    pub by_program: BTreeMap<VolumePlace, ProgramMount>,
    /// Devices mounted for the node.
    pub devices: BTreeMap<String, DeviceMount>,
    /// Devices whose file systems were told to grow, and where they are mounted.
    pub grown: Vec<(String, String)>,
    /// Disks of other machines that are here, by name.
    pub disks: BTreeMap<DiskKey, Disk>,
    /// Raw devices handed to pods.
    pub mapped: BTreeMap<VolumePlace, String>,
    /// Paths given to groups.
    pub owners: Vec<(String, FsGroupOwner)>,
    /// How long a walk through a volume takes.
    pub walk: Duration,
    /// Directories of volumes of flexVolume drivers, and whether one mounted something there.
    pub flex: BTreeMap<FlexPlace, bool>,
    /// Records of drivers' volumes.
    pub records: BTreeMap<RecordPlace, BTreeMap<String, String>>,
    /// Records whose volumes are mounted.
    pub mounted: BTreeSet<RecordPlace>,
    /// Of those, the ones that nobody can read.
    pub unreadable: BTreeSet<RecordPlace>,
    /// Sources that cannot be mounted, with the kernel's word.
    pub broken: BTreeMap<String, String>,
}

impl MountTable {
    /// True when some pod is shown the disk, or has it as it is.
    fn has_disk(&self, disk: &DiskKey) -> bool {
        let (files, raw) = (format!("/devices/{}", disk.name), format!("/dev/{}", disk.name));
        let is_shown = self.bound.values().any(|(source, _)| *source == files);
        is_shown || self.mapped.values().any(|device| *device == raw)
    }
}

impl FakeMounts {
    /// What is there now.
    pub fn look(&self) -> MountTable {
        self.lock().clone()
    }

    /// Changes what is there.
    pub fn change(&self, change: impl FnOnce(&mut MountTable)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, MountTable> {
        self.state.lock().expect("no test panics in a change")
    }

    fn attempt<T: Send + 'static>(
        &self,
        source: &str,
        work: impl FnOnce(&mut MountTable) -> T,
    ) -> Fut<'static, Result<T, HostError>> {
        let cause = self.lock().broken.get(source).cloned();
        let answer = match cause {
            Some(cause) => {
                Err(HostError { attempt: format!("touch {source}"), cause, retry: Retry::Later })
            }
            None => Ok(work(&mut self.lock())),
        };
        Box::pin(std::future::ready(answer))
    }
}

impl NodeMounts for FakeMounts {
    fn bind<'a>(
        &'a self,
        place: &'a VolumePlace,
        source: &'a str,
        access: MountAccess,
    ) -> Fut<'a, Result<(), HostError>> {
        self.attempt(source, |table| {
            table.bound.insert(place.clone(), (source.to_owned(), access));
        })
    }

    fn mount_by_program<'a>(
        &'a self,
        place: &'a VolumePlace,
        ask: &'a ProgramMount,
    ) -> Fut<'a, Result<(), HostError>> {
        self.attempt(&ask.source, |table| {
            table.by_program.insert(place.clone(), ask.clone());
        })
    }

    fn unmount<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        self.attempt(&place.name, |table| {
            table.bound.remove(place);
            table.by_program.remove(place);
        })
    }

    fn mount_device<'a>(&'a self, ask: &'a DeviceMount) -> Fut<'a, Result<PathBuf, HostError>> {
        self.attempt(&ask.device, |table| {
            table.devices.insert(ask.name.clone(), ask.clone());
            PathBuf::from(format!("/devices/{}", ask.name))
        })
    }

    fn grow_files<'a>(&'a self, device: &'a str, path: &'a str) -> Fut<'a, Result<(), HostError>> {
        self.attempt(device, |table| {
            table.grown.push((device.to_owned(), path.to_owned()));
        })
    }

    fn unmount_device<'a>(
        &'a self,
        _plugin: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        self.attempt(name, |table| {
            if !table.bound.keys().any(|place| place.name == name) {
                table.devices.remove(name);
            }
        })
    }

    fn attach_disk<'a>(
        &'a self,
        disk: &'a Disk,
        _form: DiskForm,
    ) -> Fut<'a, Result<String, HostError>> {
        let key = disk.key();
        let reached = match disk {
            Disk::Iscsi(disk) => disk.target.clone(),
            Disk::Fc(_) => key.name.clone(),
        };
        self.attempt(&reached, |table| {
            let device = format!("/dev/{}", key.name);
            table.disks.insert(key, disk.clone());
            device
        })
    }

    fn unused_disks(&self) -> Fut<'_, Result<Vec<DiskKey>, HostError>> {
        self.attempt("disks", |table| {
            let keys = table.disks.keys();
            let unused = keys.filter(|key| !table.has_disk(key));
            unused.cloned().collect()
        })
    }

    fn known_disks(&self) -> Fut<'_, Result<Vec<DiskKey>, HostError>> {
        self.attempt("disks", |table| table.disks.keys().cloned().collect())
    }

    fn detach_disk<'a>(&'a self, disk: &'a DiskKey) -> Fut<'a, Result<Detached, HostError>> {
        self.attempt(&disk.name, |table| {
            if table.has_disk(disk) {
                return Detached::Used;
            }
            table.disks.remove(disk);
            table.devices.remove(&disk.name);
            Detached::Gone
        })
    }

    fn map_disk<'a>(
        &'a self,
        place: &'a VolumePlace,
        _disk: &'a Disk,
        device: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        self.map_device(place, device)
    }

    fn map_device<'a>(
        &'a self,
        place: &'a VolumePlace,
        device: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        self.attempt(device, |table| {
            table.mapped.insert(place.clone(), device.to_owned());
            let pod = pod_directory(&place.uid);
            PathBuf::from(format!("{pod}/volumeDevices/{}/{}", place.plugin, place.name))
        })
    }

    fn let_go_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        self.attempt(&place.name, |_| ())
    }

    fn unmap_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        self.attempt(&place.name, |table| {
            table.mapped.remove(place);
        })
    }

    fn driver_device(&self, place: &VolumePlace) -> PathBuf {
        PathBuf::from(format!("/csi/volumeDevices/publish/{}/{}", place.name, place.uid))
    }

    fn announce_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        let target = self.driver_device(place).display().to_string();
        self.attempt(&place.name, |table| {
            table.mapped.insert(place.clone(), target);
        })
    }

    fn device_users<'a>(
        &'a self,
        plugin: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Vec<PodUid>, HostError>> {
        self.attempt(name, |table| {
            let places = table.mapped.keys();
            let users = places.filter(|it| it.plugin == plugin && it.name == name);
            users.map(|it| it.uid.clone()).collect()
        })
    }

    fn set_ownership<'a>(
        &'a self,
        path: &'a str,
        owner: FsGroupOwner,
        walked: Arc<AtomicU64>,
    ) -> Fut<'a, Result<(), HostError>> {
        let walk = self.lock().walk;
        let given = self.attempt(path, |table| {
            table.owners.push((path.to_owned(), owner));
        });
        Box::pin(async move {
            walked.store(1, Ordering::Relaxed);
            tokio::time::sleep(walk).await;
            given.await
        })
    }

    fn driver_path(&self, place: &RecordPlace) -> PathBuf {
        PathBuf::from(match place {
            RecordPlace::Pod(place) => {
                let pod = pod_directory(&place.uid);
                format!("{pod}/volumes/{}/{}/mount", place.plugin, place.name)
            }
            RecordPlace::Node { driver, hash } => format!("/csi/{driver}/{hash}/globalmount"),
            RecordPlace::Device { name } => format!("/csi/volumeDevices/staging/{name}"),
        })
    }

    fn save_record<'a>(
        &'a self,
        place: &'a RecordPlace,
        record: &'a Record,
    ) -> Fut<'a, Result<(), HostError>> {
        self.attempt("", |table| {
            table.records.insert(place.clone(), record.clone());
            table.unreadable.remove(place);
        })
    }

    fn remove_record<'a>(&'a self, place: &'a RecordPlace) -> Fut<'a, Result<(), HostError>> {
        self.attempt("", |table| {
            table.records.remove(place);
            table.mounted.remove(place);
        })
    }

    fn records(&self) -> Fut<'_, Result<Records, HostError>> {
        self.attempt("records", |table| {
            let records = table.records.iter();
            let known = |place: &RecordPlace| !table.unreadable.contains(place);
            records
                .map(|(place, record)| (place.clone(), known(place).then(|| record.clone())))
                .collect()
        })
    }

    fn is_mounted<'a>(&'a self, place: &'a RecordPlace) -> Fut<'a, Result<bool, HostError>> {
        self.attempt("", |table| table.mounted.contains(place))
    }
}
