//! The `Runtime` port: one CRI call per method, but for the three that put several answers
//! together.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolet_ports::{
    ExecOutput, Fut, PodBounds, Runtime, RuntimeError, RuntimeErrorKind, RuntimeEvents,
    RuntimeListing, RuntimeStatus, RuntimeVersion,
};
use ferrolet_spec::{ContainerSpec, LinuxResources, SandboxSpec};
use ferrolet_types::observed::PodObservation;
use ferrolet_types::{ContainerId, GracePeriod, PodUid, SandboxId};
use futures::stream::{self, StreamExt, TryStreamExt};
use tracing::Instrument as _;

use crate::call::Call;
use crate::client::CriClient;
use crate::error::{found, incomplete, or_gone};
use crate::{decode, encode, events, observation, proto};

/// The CRI version that a kubelet asks about; runtimes ignore it.
const KUBE_RUNTIME_API_VERSION: &str = "0.1.0";

/// The most that is kept of each of a command's two streams.
const MAX_EXEC_OUTPUT: usize = 256 * 1024;

/// The most status calls that one observation has in flight.
const MAX_STATUS_CALLS: usize = 8;

impl Runtime for CriClient {
    fn version(&self) -> Fut<'_, Result<RuntimeVersion, RuntimeError>> {
        Box::pin(async move {
            let request = proto::VersionRequest { version: KUBE_RUNTIME_API_VERSION.to_owned() };
            let mut client = self.runtime();
            self.call("Version")
                .run(request, |request| async move { client.version(request).await })
                .await
                .map(decode::version)
        })
    }

    fn status(&self) -> Fut<'_, Result<RuntimeStatus, RuntimeError>> {
        Box::pin(async move {
            let (mut status_client, mut config_client) = (self.runtime(), self.runtime());
            let status = self
                .call("Status")
                .run(proto::StatusRequest { verbose: false }, |request| async move {
                    status_client.status(request).await
                });
            let config = self
                .call("RuntimeConfig")
                .run(proto::RuntimeConfigRequest {}, |request| async move {
                    config_client.runtime_config(request).await
                });
            let (status, config) = futures::future::join(status, config).await;
            let driver = match config {
                Ok(config) => decode::cgroup_driver(config),
                Err(error) if error.kind == RuntimeErrorKind::Unimplemented => None,
                Err(error) => {
                    // A status that failed as well is the better answer.
                    status?;
                    return Err(error);
                }
            };
            Ok(decode::status(status?, driver))
        })
    }

    fn list(&self) -> Fut<'_, Result<RuntimeListing, RuntimeError>> {
        Box::pin(async move {
            let (sandboxes, containers) = self.list_labelled(&BTreeMap::new()).await?;
            Ok(RuntimeListing {
                sandboxes: sandboxes.into_iter().filter_map(decode::listed_sandbox).collect(),
                containers: containers.into_iter().filter_map(decode::listed_container).collect(),
            })
        })
    }

    fn observe_pod<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<PodObservation, RuntimeError>> {
        Box::pin(async move {
            let at = self.clock().now();
            let selector = BTreeMap::from([(decode::label::POD_UID.to_owned(), uid.to_string())]);
            let (sandboxes, containers) = self.list_labelled(&selector).await?;
            let sandboxes = stream::iter(sandboxes)
                .map(|sandbox| self.sandbox_status(sandbox.id))
                .buffer_unordered(MAX_STATUS_CALLS)
                .try_filter_map(async |status| Ok(status))
                .try_collect::<Vec<_>>();
            let containers = stream::iter(containers)
                .map(|container| async move {
                    let status = self.container_status(container.id).await?;
                    let sandbox = SandboxId::from(container.pod_sandbox_id);
                    Ok(status.map(|status| (sandbox, status)))
                })
                .buffer_unordered(MAX_STATUS_CALLS)
                .try_filter_map(async |status| Ok(status))
                .try_collect::<Vec<_>>();
            let (sandboxes, containers) = futures::future::try_join(sandboxes, containers).await?;
            Ok(observation::pod(uid.clone(), at, sandboxes, containers))
        })
    }

    fn events(&self) -> Fut<'_, Result<Box<dyn RuntimeEvents>, RuntimeError>> {
        Box::pin(async move {
            let stream = events::open(self.runtime()).await?;
            Ok(Box::new(stream) as Box<dyn RuntimeEvents>)
        })
    }

    fn run_sandbox<'a>(
        &'a self,
        spec: &'a SandboxSpec,
    ) -> Fut<'a, Result<SandboxId, RuntimeError>> {
        Box::pin(async move {
            let request = proto::RunPodSandboxRequest {
                config: Some(encode::sandbox_config(spec)),
                runtime_handler: spec.runtime_handler.clone(),
            };
            let mut client = self.runtime();
            let call = Call { method: "RunPodSandbox", deadline: Some(self.timeouts().sandbox()) };
            let answer = call
                .run(request, |request| async move { client.run_pod_sandbox(request).await })
                .await?;
            if answer.pod_sandbox_id.is_empty() {
                let message = format!("PodSandboxId is not set for sandbox {}", spec.key);
                return Err(incomplete(call.method, message));
            }
            Ok(answer.pod_sandbox_id.into())
        })
    }

    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::StopPodSandboxRequest { pod_sandbox_id: id.to_string() };
            let mut client = self.runtime();
            or_gone(
                self.call("StopPodSandbox")
                    .run(request, |request| async move { client.stop_pod_sandbox(request).await })
                    .await,
            )
        })
    }

    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::RemovePodSandboxRequest { pod_sandbox_id: id.to_string() };
            let mut client = self.runtime();
            or_gone(
                self.call("RemovePodSandbox")
                    .run(request, |request| async move { client.remove_pod_sandbox(request).await })
                    .await,
            )
        })
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        sandbox_spec: &'a SandboxSpec,
        spec: &'a ContainerSpec,
    ) -> Fut<'a, Result<ContainerId, RuntimeError>> {
        Box::pin(async move {
            let request = proto::CreateContainerRequest {
                pod_sandbox_id: sandbox.to_string(),
                config: Some(encode::container_config(spec)),
                sandbox_config: Some(encode::sandbox_config(sandbox_spec)),
            };
            let mut client = self.runtime();
            let call = self.call("CreateContainer");
            let answer = call
                .run(request, |request| async move { client.create_container(request).await })
                .await?;
            if answer.container_id.is_empty() {
                let message = format!("ContainerId is not set for container {}", spec.name);
                return Err(incomplete(call.method, message));
            }
            Ok(answer.container_id.into())
        })
    }

    fn start_container<'a>(&'a self, id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::StartContainerRequest { container_id: id.to_string() };
            let (mut client, call) = (self.runtime(), self.call("StartContainer"));
            let start = async move {
                let send = |request| async move { client.start_container(request).await };
                call.run(request, send).await.map(drop)
            };
            // A start that its caller gives up is let run to its end: cancelled half way,
            // containerd may keep the container for good.
            let ended = tokio::spawn(start.in_current_span()).await;
            ended.unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(RuntimeError {
                    call: "StartContainer",
                    kind: RuntimeErrorKind::Canceled,
                    message: error.to_string(),
                }),
            })
        })
    }

    fn stop_container<'a>(
        &'a self,
        id: &'a ContainerId,
        grace: GracePeriod,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::StopContainerRequest {
                container_id: id.to_string(),
                timeout: grace.as_secs(),
            };
            let mut client = self.runtime();
            let call =
                Call { method: "StopContainer", deadline: Some(self.timeouts().stop(grace)) };
            or_gone(
                call.run(request, |request| async move { client.stop_container(request).await })
                    .await,
            )
        })
    }

    fn remove_container<'a>(&'a self, id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::RemoveContainerRequest { container_id: id.to_string() };
            let mut client = self.runtime();
            or_gone(
                self.call("RemoveContainer")
                    .run(request, |request| async move { client.remove_container(request).await })
                    .await,
            )
        })
    }

    fn update_container<'a>(
        &'a self,
        id: &'a ContainerId,
        resources: &'a LinuxResources,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::UpdateContainerResourcesRequest {
                container_id: id.to_string(),
                linux: Some(encode::resources(resources)),
                ..Default::default()
            };
            let mut client = self.runtime();
            self.call("UpdateContainerResources")
                .run(
                    request,
                    |request| async move { client.update_container_resources(request).await },
                )
                .await
                .map(drop)
        })
    }

    fn announce_resources<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        bounds: PodBounds<'a>,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::UpdatePodSandboxResourcesRequest {
                pod_sandbox_id: sandbox.to_string(),
                overhead: Some(encode::resources(bounds.overhead)),
                resources: Some(encode::resources(bounds.resources)),
            };
            let mut client = self.runtime();
            let told = self
                .call("UpdatePodSandboxResources")
                .run(request, |request| async move {
                    client.update_pod_sandbox_resources(request).await
                })
                .await;
            match told {
                // containerd 2.2 and 2.3 say it without the code.
                Err(error)
                    if error.kind == RuntimeErrorKind::Unknown
                        && error.message.contains("not implemented") =>
                {
                    Err(RuntimeError { kind: RuntimeErrorKind::Unimplemented, ..error })
                }
                told => told.map(drop),
            }
        })
    }

    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        timeout: Duration,
    ) -> Fut<'a, Result<ExecOutput, RuntimeError>> {
        Box::pin(async move {
            let request = proto::ExecSyncRequest {
                container_id: id.to_string(),
                cmd: command.to_vec(),
                timeout: whole_seconds(timeout),
            };
            let mut client = self.runtime();
            let call = Call { method: "ExecSync", deadline: self.timeouts().exec(timeout) };
            let answer =
                call.run(request, |request| async move { client.exec_sync(request).await }).await?;
            Ok(ExecOutput {
                code: answer.exit_code,
                stdout: bounded(answer.stdout),
                stderr: bounded(answer.stderr),
            })
        })
    }

    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let request = proto::UpdateRuntimeConfigRequest {
                runtime_config: Some(proto::RuntimeConfig {
                    network_config: Some(proto::NetworkConfig { pod_cidr: cidr.to_owned() }),
                }),
            };
            let mut client = self.runtime();
            self.call("UpdateRuntimeConfig")
                .run(request, |request| async move { client.update_runtime_config(request).await })
                .await
                .map(drop)
        })
    }
}

impl CriClient {
    /// Both lists at once, of what carries all these labels.
    async fn list_labelled(
        &self,
        selector: &BTreeMap<String, String>,
    ) -> Result<(Vec<proto::PodSandbox>, Vec<proto::Container>), RuntimeError> {
        let (mut sandbox_client, mut container_client) = (self.runtime(), self.runtime());
        let sandboxes = proto::ListPodSandboxRequest {
            filter: Some(proto::PodSandboxFilter {
                label_selector: selector.clone(),
                ..Default::default()
            }),
        };
        let containers = proto::ListContainersRequest {
            filter: Some(proto::ContainerFilter {
                label_selector: selector.clone(),
                ..Default::default()
            }),
        };
        let sandboxes = self.call("ListPodSandbox").run(sandboxes, |request| async move {
            sandbox_client.list_pod_sandbox(request).await
        });
        let containers = self.call("ListContainers").run(containers, |request| async move {
            container_client.list_containers(request).await
        });
        let (sandboxes, containers) = futures::future::try_join(sandboxes, containers).await?;
        Ok((sandboxes.items, containers.containers))
    }

    /// `None` when it is gone since it was listed.
    async fn sandbox_status(
        &self,
        id: String,
    ) -> Result<Option<proto::PodSandboxStatus>, RuntimeError> {
        let request = proto::PodSandboxStatusRequest { pod_sandbox_id: id, verbose: false };
        let mut client = self.runtime();
        let answer = self
            .call("PodSandboxStatus")
            .run(request, |request| async move { client.pod_sandbox_status(request).await })
            .await;
        Ok(found(answer)?.and_then(|answer| answer.status))
    }

    /// `None` when it is gone since it was listed.
    async fn container_status(
        &self,
        id: String,
    ) -> Result<Option<proto::ContainerStatus>, RuntimeError> {
        let request = proto::ContainerStatusRequest { container_id: id, verbose: false };
        let mut client = self.runtime();
        let answer = self
            .call("ContainerStatus")
            .run(request, |request| async move { client.container_status(request).await })
            .await;
        Ok(found(answer)?.and_then(|answer| answer.status))
    }
}

/// CRI counts whole seconds, and its zero means for ever: half a second becomes one.
fn whole_seconds(span: Duration) -> i64 {
    let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn bounded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(MAX_EXEC_OUTPUT);
    bytes.shrink_to_fit();
    bytes
}
