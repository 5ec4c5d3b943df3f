//! Drives any CRI v1 runtime over its socket, and prints the milliseconds that it took, one JSON object.
//!
//! `cri_load SOCKET GROUP LOGS PHASE ARGUMENT`; `cargo xtask bench runtime` runs it against ours and against containerd.
//!
//! * `singles N`: N pods of one container, one after the other, and `true` in each; then they go
//! * `up N`: N pods, four at a time, that stay
//! * `down N`: all pods go, four at a time
//! * `log MEGABYTES`: a container that writes so many of 100-byte lines, from its start to its end
//! * `pull IMAGE`: an image that is not there
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the report of a program goes to its output")]

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use ferrolet_cri_proto::{
    self as cri, image_service_client::ImageServiceClient,
    runtime_service_client::RuntimeServiceClient,
};
use futures::StreamExt as _;
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, time::Instant};
use tonic::transport::{Channel, Endpoint, Uri};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const IMAGE: &str = "docker.io/library/busybox:latest";
/// Pods at a time.
const AT_ONCE: usize = 4;
/// Bytes of a line with its end.
const LINE: usize = 100;
/// How often the end of the writer is looked for.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Clone)]
struct Load {
    channel: Channel,
    group: String,
    logs: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, group, logs, phase, argument] = words.as_slice() else {
        return Err("cri_load SOCKET GROUP LOGS PHASE ARGUMENT".into());
    };
    let load = Load { channel: connect(socket).await?, group: group.clone(), logs: logs.clone() };
    let report = match phase.as_str() {
        "singles" => load.singles(argument.parse()?).await?,
        "up" => load.up(argument.parse()?).await?,
        "down" => load.down().await?,
        "log" => load.log(argument.parse()?).await?,
        "pull" => load.pull(argument).await?,
        other => return Err(format!("no phase {other:?}").into()),
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

async fn connect(socket: &str) -> Result<Channel, Failure> {
    let socket: Arc<str> = socket.trim_start_matches("unix://").into();
    let connect = move |_: Uri| {
        let socket = Arc::clone(&socket);
        async move { UnixStream::connect(&*socket).await.map(TokioIo::new) }
    };
    let endpoint = Endpoint::from_static("http://runtime");
    Ok(endpoint.connect_with_connector(tower::service_fn(connect)).await?)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Some things four at a time; the first error of any.
async fn together<F: Future<Output = Result<(), Failure>>>(
    all: impl Iterator<Item = F>,
) -> Result<(), Failure> {
    let mut done = futures::stream::iter(all).buffer_unordered(AT_ONCE);
    while let Some(one) = done.next().await {
        one?;
    }
    Ok(())
}

impl Load {
    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
    }

    fn sandbox(&self, name: &str) -> cri::PodSandboxConfig {
        cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.to_owned(),
                uid: name.to_owned(),
                namespace: "bench".to_owned(),
                attempt: 0,
            }),
            log_directory: self.logs.clone(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: self.group.clone(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// A pod with one container that runs; its two ids.
    async fn start(&self, name: &str, command: &[&str]) -> Result<(String, String), Failure> {
        let mut runtime = self.runtime();
        let config = self.sandbox(name);
        let request = cri::RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: String::new(),
        };
        let sandbox = runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
        let container = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
            command: command.iter().map(|it| (*it).to_owned()).collect(),
            log_path: format!("{name}.log"),
            linux: Some(cri::LinuxContainerConfig::default()),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container),
            sandbox_config: Some(config),
        };
        let id = runtime.create_container(request).await?.into_inner().container_id;
        let request = cri::StartContainerRequest { container_id: id.clone() };
        runtime.start_container(request).await?;
        Ok((sandbox, id))
    }

    async fn remove(&self, sandbox: &str) -> Result<(), Failure> {
        let pod_sandbox_id = sandbox.to_owned();
        let mut runtime = self.runtime();
        let stop = cri::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
        runtime.stop_pod_sandbox(stop).await?;
        runtime.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id }).await?;
        Ok(())
    }

    async fn singles(&self, n: usize) -> Result<BTreeMap<&'static str, Vec<f64>>, Failure> {
        let mut report: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for at in 0..n {
            let began = Instant::now();
            let (sandbox, id) = self.start(&format!("single-{at}"), &["sleep", "9999"]).await?;
            report.entry("start").or_default().push(milliseconds(began));
            let request = cri::ExecSyncRequest {
                container_id: id,
                cmd: vec!["true".to_owned()],
                timeout: 60,
            };
            let began = Instant::now();
            let answer = self.runtime().exec_sync(request).await?.into_inner();
            report.entry("exec").or_default().push(milliseconds(began));
            if answer.exit_code != 0 {
                return Err(format!("true ended with {}", answer.exit_code).into());
            }
            let began = Instant::now();
            self.remove(&sandbox).await?;
            report.entry("remove").or_default().push(milliseconds(began));
        }
        Ok(report)
    }

    async fn up(&self, n: usize) -> Result<BTreeMap<&'static str, Vec<f64>>, Failure> {
        let began = Instant::now();
        let one = |at: usize| async move {
            self.start(&format!("many-{at}"), &["sleep", "9999"]).await.map(drop)
        };
        together((0..n).map(one)).await?;
        Ok([("up", vec![milliseconds(began)])].into())
    }

    async fn down(&self) -> Result<BTreeMap<&'static str, Vec<f64>>, Failure> {
        let mut runtime = self.runtime();
        let listed = runtime.list_pod_sandbox(cri::ListPodSandboxRequest::default()).await?;
        let listed = listed.into_inner().items;
        let began = Instant::now();
        together(listed.iter().map(|it| self.remove(&it.id))).await?;
        Ok([("down", vec![milliseconds(began)])].into())
    }

    async fn log(&self, megabytes: usize) -> Result<BTreeMap<&'static str, Vec<f64>>, Failure> {
        let line = "x".repeat(LINE - 1);
        let script = format!("yes {line} | head -c {}", megabytes * 1_000_000);
        let began = Instant::now();
        let (sandbox, id) = self.start("log", &["sh", "-c", &script]).await?;
        loop {
            let request =
                cri::ContainerStatusRequest { container_id: id.clone(), ..Default::default() };
            let status = self.runtime().container_status(request).await?.into_inner().status;
            let state = status.as_ref().map(cri::ContainerStatus::state);
            if state == Some(cri::ContainerState::ContainerExited) {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        let took = milliseconds(began);
        let written = std::fs::metadata(format!("{}/log.log", self.logs))?.len();
        if written < u64::try_from(megabytes)? * 1_000_000 {
            return Err(format!("the log has {written} bytes").into());
        }
        self.remove(&sandbox).await?;
        Ok([("log", vec![took])].into())
    }

    async fn pull(&self, image: &str) -> Result<BTreeMap<&'static str, Vec<f64>>, Failure> {
        let mut images = ImageServiceClient::new(self.channel.clone());
        let spec = Some(cri::ImageSpec { image: image.to_owned(), ..Default::default() });
        let began = Instant::now();
        let request = cri::PullImageRequest { image: spec.clone(), ..Default::default() };
        images.pull_image(request).await?;
        let took = milliseconds(began);
        images.remove_image(cri::RemoveImageRequest { image: spec }).await?;
        Ok([("pull", vec![took])].into())
    }
}
