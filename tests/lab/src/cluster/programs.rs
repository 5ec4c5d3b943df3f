//! The command lines of the control plane's programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::json;

use super::authority::{Authority, Identity};
use super::kubeconfig::{Credential, kubeconfig};
use crate::parts::ControlPlane;

/// Everything that the command lines speak of.
pub(super) struct Layout {
    pub(super) directory: PathBuf,
    pub(super) binaries: ControlPlane,
    pub(super) node_ip: String,
    /// The second octet of the run's `10.X.0.0/16`.
    pub(super) block: u8,
    pub(super) api_port: u16,
    pub(super) etcd_port: u16,
    pub(super) peer_port: u16,
    pub(super) manager_port: u16,
    pub(super) scheduler_port: u16,
    pub(super) proxy_port: u16,
    pub(super) signing_duration: String,
    pub(super) controllers: String,
}

/// Where the controller manager looks for volume drivers.
pub(super) const VOLUME_PLUGINS: &str = "volume-plugins";

impl Layout {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn log(&self, program: &str) -> PathBuf {
        self.path(&format!("{program}.log"))
    }

    /// The API server on loopback.
    pub(super) fn local_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    /// The API server as the host sees it when the run has an uplink.
    pub(super) fn outside_url(&self) -> String {
        format!("https://{}:{}", self.node_ip, self.api_port)
    }

    /// Writes certificates, keys, kubeconfigs and policies.
    pub(super) fn write_files(&self, authority: &Authority, tokens: &str) -> Result<()> {
        fs::create_dir_all(&self.directory)?;
        let reached_as = [
            "127.0.0.1".to_owned(),
            self.node_ip.clone(),
            format!("10.{}.254.1", self.block),
            "localhost".to_owned(),
            "kubernetes".to_owned(),
            "kubernetes.default".to_owned(),
            "kubernetes.default.svc".to_owned(),
            "kubernetes.default.svc.cluster.local".to_owned(),
        ];
        self.write("ca.crt", &authority.certificate())?;
        self.write("ca.key", &authority.key())?;
        self.write_identity("apiserver", &authority.server("kube-apiserver", &reached_as)?)?;
        let to_kubelets = authority.client("kube-apiserver-kubelet-client", &["system:masters"])?;
        self.write_identity("apiserver-kubelet-client", &to_kubelets)?;
        let accounts = rcgen::KeyPair::generate()?;
        self.write("sa.key", &accounts.serialize_pem())?;
        self.write("sa.pub", &accounts.public_key_pem())?;
        self.write("tokens.csv", tokens)?;
        for (file, user, groups) in [
            ("admin", "lab-admin", &["system:masters"][..]),
            ("controller-manager", "system:kube-controller-manager", &[]),
            ("scheduler", "system:kube-scheduler", &[]),
        ] {
            let identity = authority.client(user, groups)?;
            let config = kubeconfig(
                &self.local_url(),
                &authority.certificate(),
                Credential::Certificate(&identity),
            );
            self.write(&format!("{file}.kubeconfig"), &config.to_string())?;
        }
        // What nodes ask for is logged, so that tests can see what they were refused.
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "userGroups": ["system:nodes"]}, {"level": "None"}],
        });
        self.write("audit-policy.yaml", &policy.to_string())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.path(name), text)?)
    }

    fn write_identity(&self, name: &str, identity: &Identity) -> Result<()> {
        self.write(&format!("{name}.crt"), &identity.certificate)?;
        self.write(&format!("{name}.key"), &identity.key)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.binary(program));
        command.current_dir(&self.directory);
        command
    }

    pub(super) fn etcd(&self) -> Command {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = self.command("etcd");
        command
            .args(["--name=lab", "--unsafe-no-fsync", "--log-level=warn"])
            .arg(flag_path("--data-dir", &self.path("etcd")))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=lab={peer}"));
        command
    }

    pub(super) fn apiserver(&self) -> Command {
        let mut command = self.command("kube-apiserver");
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .arg("--bind-address=0.0.0.0")
            // Endpoints of the kubernetes service may not be loopback.
            .arg(format!("--advertise-address={}", self.node_ip))
            .arg(format!("--secure-port={}", self.api_port))
            .arg(format!("--service-cluster-ip-range={}", self.services()))
            .args([
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--enable-bootstrap-token-auth=true",
                "--allow-privileged=true",
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                "--kubelet-preferred-address-types=InternalIP,Hostname",
                "--audit-log-path=audit.log",
                "--audit-policy-file=audit-policy.yaml",
                "--audit-log-mode=blocking",
                // Alpha, and only a node that asks drivers for it writes what it lets through.
                "--feature-gates=CSIVolumeHealth=true",
                "--v=0",
            ]);
        for (flag, file) in [
            ("--tls-cert-file", "apiserver.crt"),
            ("--tls-private-key-file", "apiserver.key"),
            ("--client-ca-file", "ca.crt"),
            ("--token-auth-file", "tokens.csv"),
            ("--service-account-key-file", "sa.pub"),
            ("--service-account-signing-key-file", "sa.key"),
            ("--kubelet-client-certificate", "apiserver-kubelet-client.crt"),
            ("--kubelet-client-key", "apiserver-kubelet-client.key"),
        ] {
            command.arg(flag_path(flag, &self.path(file)));
        }
        command
    }

    pub(super) fn controller_manager(&self) -> Command {
        let mut command = self.command("kube-controller-manager");
        command
            .arg(flag_path("--kubeconfig", &self.path("controller-manager.kubeconfig")))
            .arg(flag_path("--service-account-private-key-file", &self.path("sa.key")))
            .arg(flag_path("--root-ca-file", &self.path("ca.crt")))
            .arg(flag_path("--cluster-signing-cert-file", &self.path("ca.crt")))
            .arg(flag_path("--cluster-signing-key-file", &self.path("ca.key")))
            .arg(format!("--cluster-signing-duration={}", self.signing_duration))
            .arg(format!("--controllers={}", self.controllers))
            .arg(format!("--cluster-cidr=10.{}.0.0/16", self.block))
            .arg(format!("--service-cluster-ip-range={}", self.services()))
            .arg(format!("--secure-port={}", self.manager_port))
            // The default lies in /usr, which is the host's.
            .arg(flag_path("--flex-volume-plugin-dir", &self.path(VOLUME_PLUGINS)))
            .args([
                "--allocate-node-cidrs=true",
                "--node-cidr-mask-size=24",
                "--use-service-account-credentials=true",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
                "--v=0",
            ]);
        command
    }

    pub(super) fn scheduler(&self) -> Command {
        let mut command = self.command("kube-scheduler");
        command
            .arg(flag_path("--kubeconfig", &self.path("scheduler.kubeconfig")))
            .arg(format!("--secure-port={}", self.scheduler_port))
            .args([
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                "--v=0",
            ]);
        command
    }

    /// kubectl as the administrator.
    pub(super) fn kubectl(&self) -> Command {
        let mut command = self.command("kubectl");
        command
            .arg(flag_path("--kubeconfig", &self.path("admin.kubeconfig")))
            .arg(flag_path("--cache-dir", &self.path("kubectl-cache")));
        command
    }

    /// Plain HTTP on loopback for the bench's own looks, which are many.
    pub(super) fn proxy(&self) -> Command {
        let mut command = self.kubectl();
        command.args(["proxy", "--address=127.0.0.1"]).arg(format!("--port={}", self.proxy_port));
        command
    }

    /// Beyond the pod subnets, which are numbered from 0 to 249.
    fn services(&self) -> String {
        format!("10.{}.254.0/24", self.block)
    }
}

fn flag_path(flag: &str, path: &Path) -> String {
    format!("{flag}={}", path.display())
}
