//! The generated messages, clients and servers, and what may not be printed of them.
#![expect(unreachable_pub, reason = "generated code is not ours to word")]

use std::fmt;

/// Container Storage Interface, version 1.
pub(crate) mod csi {
    #![expect(clippy::enum_variant_names, reason = "names are the interface's")]
    tonic::include_proto!("csi.v1");
}

/// Plugin registration, version 1.
pub(crate) mod registration {
    tonic::include_proto!("pluginregistration");
}

/// Device plugins, version 1 beta 1.
pub(crate) mod device {
    #![expect(clippy::allow_attributes, reason = "generated code")]
    tonic::include_proto!("v1beta1");
}

/// Drivers of dynamic resources, version 1.
pub(crate) mod dra {
    #![expect(clippy::allow_attributes, reason = "generated code")]
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// The same by its older name.
pub(crate) mod dra_beta {
    #![expect(clippy::allow_attributes, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/dra/older/k8s.io.kubelet.pkg.apis.dra.v1beta1.rs"));
}

/// Health of dynamic resources, version 1.
pub(crate) mod dra_health {
    #![expect(clippy::allow_attributes, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/dra/v1.rs"));
}

/// The same by its older name.
pub(crate) mod dra_health_alpha {
    #![expect(clippy::allow_attributes, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/dra/older/v1alpha1.rs"));
}

/// What pods were given, version 1.
pub(crate) mod pod_resources {
    #![expect(clippy::allow_attributes, reason = "generated code")]
    tonic::include_proto!("v1");
}

/// What pods were given, in its old form, and the pods themselves.
pub(crate) mod local_alpha {
    #![expect(clippy::allow_attributes, reason = "generated code")]
    tonic::include_proto!("v1alpha1");
}

impl fmt::Debug for csi::NodeStageVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStageVolumeRequest")
            .field("volume_id", &self.volume_id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for csi::NodePublishVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for csi::NodeExpandVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeExpandVolumeRequest")
            .field("volume_id", &self.volume_id)
            .finish_non_exhaustive()
    }
}
