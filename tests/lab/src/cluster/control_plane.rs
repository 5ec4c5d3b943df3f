//! One control plane: its processes, and what tests and people do with it.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use super::audit::{self, Asked};
use super::authority::{Authority, Identity};
use super::bootstrap::{Approval, BootstrapToken, bindings};
use super::kubeconfig::{Credential, kubeconfig};
use super::programs::{Layout, VOLUME_PLUGINS};
use super::watching::Watching;
use crate::http;
use crate::isolation::Bench;
use crate::parts::ControlPlane;
use crate::process::Daemon;
use crate::wait::wait_until;

/// Looks through the proxy are cheap, but the API server shares the machine with the node.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(60);

/// What differs between one control plane and another.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Short and unique in the run.
    pub name: String,
    /// Where the API server listens; any free port if none is given.
    pub api_port: Option<u16>,
    /// How long certificates live that the controller manager signs, as its flag takes it.
    pub signing_duration: String,
    /// Which controllers run, as the controller manager's flag takes it.
    pub controllers: String,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions {
            name: "cluster".to_owned(),
            api_port: None,
            signing_duration: "8760h".to_owned(),
            controllers: "*".to_owned(),
        }
    }
}

/// A running control plane.
pub struct Cluster {
    layout: Layout,
    authority: Authority,
    apiserver: Mutex<Option<Daemon>>,
    /// In the order of their start.
    others: Vec<Daemon>,
    n_tokens: AtomicU32,
}

impl Cluster {
    /// The name of the one node that may join with a [token](Cluster::NODE_TOKEN) instead of a
    /// certificate.
    pub const TOKEN_NODE: &'static str = "token-node";
    /// The token of that node.
    pub const NODE_TOKEN: &'static str = "a-token-of-the-lab";

    /// Starts everything and waits until pods could be scheduled.
    pub fn start(
        bench: &Bench,
        binaries: &ControlPlane,
        options: &ClusterOptions,
    ) -> Result<Cluster> {
        let layout = Layout {
            directory: bench.directory(&options.name)?,
            binaries: binaries.clone(),
            node_ip: bench.node_ip(),
            block: bench.run_id().block,
            api_port: options.api_port.map_or_else(http::free_port, Ok)?,
            etcd_port: http::free_port()?,
            peer_port: http::free_port()?,
            manager_port: http::free_port()?,
            scheduler_port: http::free_port()?,
            proxy_port: http::free_port()?,
            signing_duration: options.signing_duration.clone(),
            controllers: options.controllers.clone(),
        };
        let authority = Authority::new("ferrolet-lab")?;
        let tokens = format!(
            "{},system:node:{},lab-1,\"system:nodes\"\n",
            Cluster::NODE_TOKEN,
            Cluster::TOKEN_NODE
        );
        layout.write_files(&authority, &tokens)?;
        let etcd = Daemon::spawn("etcd", layout.etcd(), &layout.log("etcd"))?;
        let mut cluster = Cluster {
            layout,
            authority,
            apiserver: Mutex::new(None),
            others: vec![etcd],
            n_tokens: AtomicU32::new(1),
        };
        cluster.launch_apiserver()?;
        cluster.launch("proxy", cluster.layout.proxy())?;
        cluster.wait_apiserver()?;
        // Only now: the controller manager gives up on a server that takes longer than 20 seconds,
        // as on a busy machine.
        cluster.launch("kube-controller-manager", cluster.layout.controller_manager())?;
        cluster.launch("kube-scheduler", cluster.layout.scheduler())?;
        cluster.apply(&bindings())?;
        cluster.expect_running()?;
        cluster.wait("the default service account", PATIENCE, |cluster| {
            cluster.find("/api/v1/namespaces/default/serviceaccounts/default")
        })?;
        Ok(cluster)
    }

    /// Ends every process and removes the files.
    pub fn stop(mut self) -> Result<()> {
        self.kill_apiserver()?;
        for mut daemon in self.others.drain(..).rev() {
            daemon.kill()?;
        }
        let dir = &self.layout.directory;
        fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))
    }

    /// `kill -9` of the API server; the rest goes on and waits for it.
    pub fn kill_apiserver(&self) -> Result<()> {
        match self.lock().take() {
            Some(mut daemon) => daemon.kill(),
            None => Ok(()),
        }
    }

    /// Starts the API server again and waits until it is ready.
    pub fn start_apiserver(&self) -> Result<()> {
        self.launch_apiserver()?;
        self.wait_apiserver()
    }

    /// Where the API server listens on loopback.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.layout.api_port))
    }

    /// The administrator's kubeconfig for this run's own processes.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.path("admin.kubeconfig")
    }

    /// An administrator's kubeconfig for people outside, who come through the uplink.
    pub fn outside_kubeconfig(&self) -> Result<Value> {
        let identity = self.authority.client("lab-person", &["system:masters"])?;
        Ok(kubeconfig(
            &self.layout.outside_url(),
            &self.authority.certificate(),
            Credential::Certificate(&identity),
        ))
    }

    /// A kubeconfig for any user, towards `server` (`host:port`).
    #[must_use]
    pub fn kubeconfig_for(&self, server: SocketAddr, credential: Credential<'_>) -> Value {
        kubeconfig(&format!("https://{server}"), &self.authority.certificate(), credential)
    }

    /// `host:port` of plain HTTP to the API server, as the administrator.
    #[must_use]
    pub fn proxy_address(&self) -> String {
        format!("127.0.0.1:{}", self.layout.proxy_port)
    }

    /// The certificate that the node authorizer wants from a node of this name.
    pub fn node_identity(&self, name: &str) -> Result<Identity> {
        self.authority.client(&format!("system:node:{name}"), &["system:nodes"])
    }

    /// A certificate of a user.
    pub fn user_identity(&self, name: &str, groups: &[&str]) -> Result<Identity> {
        self.authority.client(name, groups)
    }

    /// Makes a bootstrap token that the API server knows.
    pub fn bootstrap_token(&self, approval: Approval) -> Result<BootstrapToken> {
        let token = BootstrapToken::new(self.n_tokens.fetch_add(1, Ordering::Relaxed), approval);
        self.apply(&token.manifest())?;
        Ok(token)
    }

    /// The authority's certificate, for those who must know the API server's clients.
    #[must_use]
    pub fn authority_file(&self) -> PathBuf {
        self.layout.path("ca.crt")
    }

    /// Where the controller manager looks for volume drivers of the old kind.
    #[must_use]
    pub fn volume_plugins(&self) -> PathBuf {
        self.layout.path(VOLUME_PLUGINS)
    }

    /// The directory with logs, keys and data.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.layout.directory
    }

    /// The log files of the programs.
    #[must_use]
    pub fn logs(&self) -> Vec<PathBuf> {
        let names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
        names.map(|name| self.layout.log(name)).to_vec()
    }

    /// The path of the kubectl that belongs to this version.
    #[must_use]
    pub fn kubectl_program(&self) -> PathBuf {
        self.layout.binaries.binary("kubectl")
    }

    /// Runs kubectl as the administrator and gives its output; a failure carries what it said.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, "")
    }

    /// kubectl as the administrator, for whoever wants to say what its input and output are.
    #[must_use]
    pub fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = self.layout.kubectl();
        command.args(args);
        command
    }

    /// Starts kubectl as the administrator and leaves it running; whoever asked ends it.
    pub fn spawn_kubectl(&self, args: &[&str]) -> Result<Child> {
        let mut command = self.layout.kubectl();
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().context("start kubectl")
    }

    /// Like [`Cluster::kubectl`], with text on standard input.
    pub fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String> {
        let mut child = self
            .layout
            .kubectl()
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start kubectl")?;
        // kubectl may refuse its arguments and end without reading; its own message tells more.
        let _ = child.stdin.take().context("standard input is piped")?.write_all(input.as_bytes());
        let done = child.wait_with_output()?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            bail!("kubectl {} ended with {}: {}", args.join(" "), done.status, said.trim());
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// `kubectl apply` of an object or a List.
    pub fn apply(&self, object: &Value) -> Result<()> {
        self.kubectl_with(&["apply", "-f", "-"], &object.to_string()).map(drop)
    }

    /// `kubectl create`, for what must not exist yet.
    pub fn create(&self, object: &Value) -> Result<()> {
        self.kubectl_with(&["create", "-f", "-"], &object.to_string()).map(drop)
    }

    /// Reads an API path; an object that is not there is an error.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.find(path)?.with_context(|| format!("the API server has no {path}"))
    }

    /// Reads an API path; an object that is not there is `None`.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        let answer = self.ask(path)?;
        match answer.status {
            200 => Ok(Some(
                serde_json::from_str(&answer.body).with_context(|| format!("JSON of {path}"))?,
            )),
            404 => Ok(None),
            status => Err(anyhow!("{path} says {status}: {:.300}", answer.body)),
        }
    }

    /// Waits for a condition of the cluster.
    pub fn wait<T>(
        &self,
        what: &str,
        timeout: Duration,
        mut attempt: impl FnMut(&Cluster) -> Result<Option<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        wait_until(what, timeout, || {
            let found = attempt(self);
            if !matches!(found, Ok(Some(_))) && began.elapsed() > LOOK {
                thread::sleep(LOOK);
            }
            found
        })
    }

    /// Requests of this node that the API server forbade and did not grant a moment later, as `verb
    /// path`, from its audit log.
    pub fn refusals(&self, node: &str) -> Result<Vec<String>> {
        let asked = self.asked_by(node)?;
        let forbidden = audit::lasting_refusals(&asked).into_iter();
        let told = forbidden.map(|it| format!("{} {}: {}", it.verb, it.uri, it.message));
        Ok(told.collect())
    }

    /// All that this node has asked for.
    pub fn asked_by(&self, node: &str) -> Result<Vec<Asked>> {
        let text = fs::read_to_string(self.layout.path("audit.log")).unwrap_or_default();
        audit::parse(&text, &format!("system:node:{node}"))
    }

    /// Watches a collection and keeps every version of what is in it.
    pub fn watch(&self, path: &str) -> Result<Watching> {
        Watching::start(&self.proxy_address(), path)
    }

    /// Fails with the end of a log when one of the programs has ended.
    pub fn expect_running(&mut self) -> Result<()> {
        for daemon in &mut self.others {
            daemon.expect_running()?;
        }
        Ok(())
    }

    fn ask(&self, path: &str) -> Result<http::Answer> {
        http::get(&self.proxy_address(), path)
    }

    fn launch(&mut self, name: &str, command: Command) -> Result<()> {
        let log = self.layout.log(name);
        self.others.push(Daemon::spawn(name, command, &log)?);
        Ok(())
    }

    fn launch_apiserver(&self) -> Result<()> {
        let mut slot = self.lock();
        ensure!(slot.is_none(), "the API server already runs");
        *slot = Some(Daemon::spawn(
            "kube-apiserver",
            self.layout.apiserver(),
            &self.layout.log("kube-apiserver"),
        )?);
        Ok(())
    }

    fn wait_apiserver(&self) -> Result<()> {
        self.wait("the API server to be ready", PATIENCE, |cluster| {
            if let Some(daemon) = cluster.lock().as_mut()
                && let Err(error) = daemon.expect_running()
            {
                return Ok(Some(Err(error)));
            }
            let answer = cluster.ask("/readyz")?;
            ensure!(answer.status == 200, "readyz says {:.300}", answer.body);
            Ok(Some(Ok(())))
        })?
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Daemon>> {
        self.apiserver.lock().expect("nobody panics while holding it")
    }
}
