//! `pod-resources/kubelet.sock`: which pods there are and what each container was given for itself.
//!
//! As upstream, version 1 shows the pods that still have a part to play, and the containers that
//! may run side by side: sidecars and ordinary ones. The old version shows every pod and ordinary
//! containers only.

use std::sync::Arc;

use ferrolet_ports::{
    Given, GivenClaim, GivenClaimDevice, GivenDevices, GivenMemory, GivenView, PodsView,
    metrics::{self, Counter, process},
};
use ferrolet_types::{
    Pod,
    pod::{Phase, PodView as _},
};
use http::{Request, Response};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Container;
use tonic::{Status, body::Body, codegen::Service as _};

use super::{LocalSocket, limit::Limit, listen::Answers};
use crate::proto::{
    local_alpha::{self as alpha, pod_resources_lister_server as alpha_server},
    pod_resources::{
        AllocatableResourcesRequest, AllocatableResourcesResponse, CdiDevice, ClaimResource,
        ContainerDevices, ContainerMemory, ContainerResources, DynamicResource,
        GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
        ListPodResourcesResponse, NumaNode, PodResources as Shown, TopologyInfo,
        pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer},
    },
};

/// Which pods version 1 lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Active,
    All,
}

/// The service, in both its versions.
#[derive(Clone)]
pub struct PodResources {
    pods: Arc<dyn PodsView>,
    given: Arc<dyn GivenView>,
    listed: Listed,
}

impl PodResources {
    /// A service over these views, which leaves out pods that have ended.
    pub fn new(pods: Arc<dyn PodsView>, given: Arc<dyn GivenView>) -> Self {
        Self { pods, given, listed: Listed::Active }
    }

    /// The same with pods that have ended, as before the gate
    /// `KubeletPodResourcesListUseActivePods`.
    #[must_use]
    pub fn with_ended_pods(self) -> Self {
        Self { listed: Listed::All, ..self }
    }

    /// Answers on this socket until it is dropped.
    pub async fn serve(self, socket: LocalSocket) {
        let limit = Limit::new();
        let service = self;
        socket.serve(Both { service, limit }).await;
    }

    fn shown(&self, pod: &Pod) -> Shown {
        let spec = pod.spec_ref();
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|it| it.restart_policy.as_deref() == Some("Always"));
        let containers = sidecars.chain(&spec.containers);
        Shown {
            name: pod.metadata.name.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            containers: containers.map(|it| self.container(pod, it)).collect(),
            cpu_ids: Vec::new(),
            memory: Vec::new(),
        }
    }

    fn container(&self, pod: &Pod, container: &Container) -> ContainerResources {
        let Given { devices, cpus, memory, claims } = self.given.given_to(pod, container);
        ContainerResources {
            name: container.name.clone(),
            devices: devices.into_iter().map(Into::into).collect(),
            cpu_ids: cpus,
            memory: memory.into_iter().map(Into::into).collect(),
            dynamic_resources: claims.into_iter().map(Into::into).collect(),
        }
    }
}

fn is_active(pod: &Pod) -> bool {
    !pod.api_phase().is_some_and(Phase::is_terminal)
}

fn topology(nodes: Vec<i64>) -> Option<TopologyInfo> {
    let nodes: Vec<NumaNode> = nodes.into_iter().map(|id| NumaNode { id }).collect();
    (!nodes.is_empty()).then_some(TopologyInfo { nodes })
}

impl From<GivenDevices> for ContainerDevices {
    fn from(given: GivenDevices) -> Self {
        Self {
            resource_name: given.resource,
            device_ids: given.ids,
            topology: topology(given.numa_nodes),
        }
    }
}

impl From<GivenClaim> for DynamicResource {
    fn from(given: GivenClaim) -> Self {
        let resource = |it: GivenClaimDevice| ClaimResource {
            cdi_devices: it.cdi_ids.into_iter().map(|name| CdiDevice { name }).collect(),
            driver_name: it.driver,
            pool_name: it.pool,
            device_name: it.device,
            share_id: it.share_id,
        };
        Self {
            claim_name: given.name,
            claim_namespace: given.namespace,
            claim_resources: given.devices.into_iter().map(resource).collect(),
        }
    }
}

impl From<GivenMemory> for ContainerMemory {
    fn from(given: GivenMemory) -> Self {
        Self { memory_type: given.kind, size: given.bytes, topology: topology(given.numa_nodes) }
    }
}

fn count(version: &str, method: Option<Counter<1>>) {
    process().add(metrics::KUBELET_POD_RESOURCES_ENDPOINT_REQUESTS_TOTAL, [version], 1.0);
    if let Some(counter) = method {
        process().add(counter, [version], 1.0);
    }
}

type Answer<T> = Result<tonic::Response<T>, Status>;

#[tonic::async_trait]
impl PodResourcesLister for PodResources {
    async fn list(
        &self,
        _: tonic::Request<ListPodResourcesRequest>,
    ) -> Answer<ListPodResourcesResponse> {
        count("v1", Some(metrics::KUBELET_POD_RESOURCES_ENDPOINT_REQUESTS_LIST));
        let pods = self.pods.pods().into_iter();
        let pods = pods.filter(|pod| self.listed == Listed::All || is_active(pod));
        let pod_resources = pods.map(|pod| self.shown(&pod)).collect();
        Ok(ListPodResourcesResponse { pod_resources }.into())
    }

    async fn get_allocatable_resources(
        &self,
        _: tonic::Request<AllocatableResourcesRequest>,
    ) -> Answer<AllocatableResourcesResponse> {
        count("v1", Some(metrics::KUBELET_POD_RESOURCES_ENDPOINT_REQUESTS_GET_ALLOCATABLE));
        let all = self.given.allocatable();
        let answer = AllocatableResourcesResponse {
            devices: all.devices.into_iter().map(Into::into).collect(),
            cpu_ids: all.cpus,
            memory: all.memory.into_iter().map(Into::into).collect(),
        };
        Ok(answer.into())
    }

    async fn get(
        &self,
        request: tonic::Request<GetPodResourcesRequest>,
    ) -> Answer<GetPodResourcesResponse> {
        count("v1", Some(metrics::KUBELET_POD_RESOURCES_ENDPOINT_REQUESTS_GET));
        let asked = request.into_inner();
        let (namespace, name) = (asked.pod_namespace, asked.pod_name);
        let pod = self.pods.pod_named(&namespace, &name).filter(is_active);
        let Some(pod) = pod else {
            process().add(metrics::KUBELET_POD_RESOURCES_ENDPOINT_ERRORS_GET, ["v1"], 1.0);
            let words = format!("pod {name} in namespace {namespace} not found");
            return Err(Status::unknown(words));
        };
        let pod_resources = Some(self.shown(&pod));
        Ok(GetPodResourcesResponse { pod_resources }.into())
    }
}

#[tonic::async_trait]
impl alpha_server::PodResourcesLister for PodResources {
    async fn list(
        &self,
        _: tonic::Request<alpha::ListPodResourcesRequest>,
    ) -> Answer<alpha::ListPodResourcesResponse> {
        count("v1alpha1", None);
        let pods = self.pods.pods().into_iter();
        let pod_resources = pods.map(|pod| self.old_form(&pod)).collect();
        Ok(alpha::ListPodResourcesResponse { pod_resources }.into())
    }
}

impl PodResources {
    fn old_form(&self, pod: &Pod) -> alpha::PodResources {
        let container = |container: &Container| {
            let given = self.given.given_to(pod, container);
            let devices = given.devices.into_iter();
            alpha::ContainerResources {
                name: container.name.clone(),
                devices: devices
                    .map(|it| alpha::ContainerDevices {
                        resource_name: it.resource,
                        device_ids: it.ids,
                    })
                    .collect(),
            }
        };
        alpha::PodResources {
            name: pod.metadata.name.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            containers: pod.spec_ref().containers.iter().map(container).collect(),
        }
    }
}

/// Both versions behind one socket.
struct Both {
    service: PodResources,
    limit: Limit,
}

impl Answers for Both {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Err(status) = self.limit.take() {
            return status.into_http();
        }
        let service = self.service.clone();
        let answered = if request.uri().path().starts_with("/v1alpha1.") {
            alpha_server::PodResourcesListerServer::new(service).call(request).await
        } else {
            PodResourcesListerServer::new(service).call(request).await
        };
        answered.unwrap_or_else(|never| match never {})
    }
}
