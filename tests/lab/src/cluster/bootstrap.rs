//! How a node without a certificate gets one: bootstrap tokens, and who approves the request.

use serde_json::{Value, json};

/// Who says yes to the certificate request of a joining node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// The controller manager.
    Automatic,
    /// Whoever calls `kubectl certificate approve`.
    ByHand,
}

impl Approval {
    fn group(self) -> &'static str {
        match self {
            Approval::Automatic => "system:bootstrappers:lab:automatic",
            Approval::ByHand => "system:bootstrappers:lab:by-hand",
        }
    }
}

/// A token that lets a node ask for its first certificate.
#[derive(Debug, Clone)]
pub struct BootstrapToken {
    id: String,
    secret: String,
    approval: Approval,
}

impl BootstrapToken {
    /// A token of its own for each number; nothing here is secret.
    #[must_use]
    pub fn new(number: u32, approval: Approval) -> BootstrapToken {
        BootstrapToken { id: format!("lab{number:03}"), secret: format!("{number:016}"), approval }
    }

    /// What the kubeconfig holds.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// The secret that makes the API server know the token.
    #[must_use]
    pub fn manifest(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": format!("bootstrap-token-{}", self.id), "namespace": "kube-system" },
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": self.id,
                "token-secret": self.secret,
                "usage-bootstrap-authentication": "true",
                "auth-extra-groups": self.approval.group(),
            },
        })
    }
}

/// The bindings that let tokens ask, let the controller manager approve some, and let nodes renew.
pub(super) fn bindings() -> Value {
    let bind = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
        })
    };
    let role = "system:certificates.k8s.io:certificatesigningrequests";
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            bind("lab:ask", "system:node-bootstrapper", "system:bootstrappers"),
            bind("lab:first", &format!("{role}:nodeclient"), Approval::Automatic.group()),
            bind("lab:renew", &format!("{role}:selfnodeclient"), "system:nodes"),
        ],
    })
}
