//! What the runtime says of itself.

use std::collections::BTreeMap;

use ferrolet_cri_proto as cri;

use super::{Runtime, error::RuntimeError};

/// What kubelets know the runtime by.
const NAME: &str = "ferrolet";
/// The version of the kubelet's interface to version calls, which has never changed.
const INTERFACE: &str = "0.1.0";

impl Runtime {
    pub(crate) fn version(&self) -> cri::VersionResponse {
        cri::VersionResponse {
            version: INTERFACE.to_owned(),
            runtime_name: NAME.to_owned(),
            runtime_version: self.0.settings.version.clone(),
            runtime_api_version: "v1".to_owned(),
        }
    }

    pub(crate) async fn status(&self, is_verbose: bool) -> cri::StatusResponse {
        let network = self.0.network.condition().await;
        let condition = |kind: &str, status, reason, message| cri::RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason,
            message,
        };
        let conditions = vec![
            condition("RuntimeReady", true, String::new(), String::new()),
            condition("NetworkReady", network.is_ready, network.reason, network.message),
        ];
        let features =
            cri::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
        let handler =
            |name: &str| cri::RuntimeHandler { name: name.to_owned(), features: Some(features) };
        cri::StatusResponse {
            status: Some(cri::RuntimeStatus { conditions }),
            info: if is_verbose { self.info() } else { BTreeMap::new() },
            runtime_handlers: vec![handler(""), handler(NAME)],
            features: Some(cri::RuntimeFeatures {
                supplemental_groups_policy: true,
                ..Default::default()
            }),
        }
    }

    fn info(&self) -> BTreeMap<String, String> {
        let settings = &self.0.settings;
        let config = serde_json::json!({
            "root": settings.root,
            "run": settings.run,
            "cgroupParent": settings.cgroup_parent,
            "cgroups": format!("{:?}", settings.hierarchies),
            "version": settings.version,
        });
        BTreeMap::from([("config".to_owned(), config.to_string())])
    }

    pub(crate) fn config(&self) -> cri::RuntimeConfigResponse {
        let driver = cri::CgroupDriver::Cgroupfs.into();
        let linux = cri::LinuxRuntimeConfiguration { cgroup_driver: driver };
        cri::RuntimeConfigResponse { linux: Some(linux) }
    }

    pub(crate) async fn update_config(
        &self,
        request: cri::UpdateRuntimeConfigRequest,
    ) -> Result<(), RuntimeError> {
        let network = request.runtime_config.and_then(|it| it.network_config);
        match network.filter(|it| !it.pod_cidr.is_empty()) {
            Some(network) => Ok(self.0.network.set_pod_cidr(&network.pod_cidr).await?),
            None => Ok(()),
        }
    }

    /// A pod's own group is the kubelet's, which has changed it already: there is nothing more to do.
    pub(crate) fn update_sandbox(&self, id: &str) -> Result<(), RuntimeError> {
        self.sandbox(id).map(|_| ())
    }
}
