//! Every family that this agent shows. Names, types, labels, bounds and stability are upstream's;
//! the help is our own. Sorted by name; a handle is called as its family, so that a search for
//! either finds both.
//!
//! cAdvisor's families are the server's: they are written as they are read, and nobody counts them.

use super::family::{Counter, Endpoint, Family, Gauge, Histogram, Stability, Type};

/// Prometheus' usual upper bounds, in seconds.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Finding a place for a pod, in milliseconds: doubled fourteen times.
const ADMISSIONS: &[f64] =
    &[0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];
/// Ages of certificates that are replaced: a minute to four years, in seconds.
const AGES: &[f64] = &[
    60.0,
    3600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];
/// Requests to the API server and their answers, in bytes.
const BYTES: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
/// Calls to the runtime, in seconds: each two and a half times the last.
const CALLS: &[f64] = &[
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];
/// Containers of a pod.
const CONTAINERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
/// Resizes that wait, in seconds.
const DEFERRED: &[f64] = &[
    5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 150.0, 180.0, 300.0, 600.0, 1200.0,
    1800.0, 3600.0,
];
/// Calls of drivers of dynamic resources, in seconds: from the first to the last, each as many
/// times the one before.
const DRIVERS: &[f64] = &[
    0.1,
    0.1534127404634391,
    0.23535468936502524,
    0.36106407876409946,
    0.5539182980610752,
    0.8497812409839363,
    1.303672689737678,
    1.9999999999999993,
    3.068254809268781,
    4.707093787300503,
    7.221281575281985,
    11.0783659612215,
    16.995624819678717,
    26.07345379475355,
    39.99999999999997,
];
/// Questions to the API server about callers, in seconds.
const DELEGATED: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
/// No buckets at all: only the sum and the count are asked for.
const NONE: &[f64] = &[];
/// Pulls of images, in seconds.
const PULLS: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];
/// Things in a line, in seconds.
const QUEUES: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];
/// What is left of a certificate: none to a year, in seconds.
const REMAINING: &[f64] = &[
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];
/// Requests to the API server, in seconds.
const REQUESTS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Resizes, in milliseconds.
const RESIZES: &[f64] = &[
    10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0,
    120_000.0, 300_000.0, 600_000.0,
];
/// Starts of pods, in seconds.
const STARTS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// Statuses on their way to the API, in seconds.
const STATUSES: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Operations on volumes, in seconds.
const VOLUMES: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// One family per line: where it is shown, handle, name, type, stability, labels in order, help.
macro_rules! families {
    ($(
        $($endpoint:ident)|+ $id:ident $name:literal $kind:ident $(($bounds:ident))? $stability:ident
        [$($label:literal),*] $help:literal;
    )*) => {
        /// A family's place in the table.
        #[expect(non_camel_case_types, reason = "called as the handles, which are constants")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Id { $($id),* }

        $(
            #[doc = $help]
            pub const $id: $kind<{ n_labels(&[$($label),*]) }> = $kind(Id::$id);
        )*

        static TABLE: &[Family] = &[$(Family {
            id: Id::$id,
            endpoints: &[$(Endpoint::$endpoint),+],
            name: $name,
            kind: Type::$kind,
            bounds: families!(@bounds $($bounds)?),
            stability: Stability::$stability,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
    (@bounds) => { NONE };
    (@bounds $bounds:ident) => { $bounds };
}

const fn n_labels(labels: &[&str]) -> usize {
    labels.len()
}

/// All families, each at the place of its id.
pub(super) fn families() -> &'static [Family] {
    TABLE
}

families! {
    Metrics APISERVER_CLIENT_CERTIFICATE_EXPIRATION_SECONDS "apiserver_client_certificate_expiration_seconds" Histogram(REMAINING) Alpha [] "How long certificates of callers still held when they were shown, in seconds.";
    Metrics APISERVER_DELEGATED_AUTHN_REQUEST_DURATION_SECONDS "apiserver_delegated_authn_request_duration_seconds" Histogram(DELEGATED) Alpha ["code"] "Time the API server took to answer who a caller is, in seconds.";
    Metrics APISERVER_DELEGATED_AUTHN_REQUEST_TOTAL "apiserver_delegated_authn_request_total" Counter Alpha ["code"] "Questions to the API server about who a caller is.";
    Metrics APISERVER_DELEGATED_AUTHZ_REQUEST_DURATION_SECONDS "apiserver_delegated_authz_request_duration_seconds" Histogram(DELEGATED) Alpha ["code"] "Time the API server took to answer what a caller may do, in seconds.";
    Metrics APISERVER_DELEGATED_AUTHZ_REQUEST_TOTAL "apiserver_delegated_authz_request_total" Counter Alpha ["code"] "Questions to the API server about what a caller may do.";
    Metrics AUTHENTICATION_TOKEN_CACHE_ACTIVE_FETCH_COUNT "authentication_token_cache_active_fetch_count" Gauge Alpha ["status"] "Questions about tokens under way, or waiting for their turn.";
    Metrics AUTHENTICATION_TOKEN_CACHE_FETCH_TOTAL "authentication_token_cache_fetch_total" Counter Alpha ["status"] "Questions about tokens, by whether there was an answer.";
    Metrics AUTHENTICATION_TOKEN_CACHE_REQUEST_DURATION_SECONDS "authentication_token_cache_request_duration_seconds" Histogram(SECONDS) Alpha ["status"] "Time it took to know whose a token is, in seconds.";
    Metrics AUTHENTICATION_TOKEN_CACHE_REQUEST_TOTAL "authentication_token_cache_request_total" Counter Alpha ["status"] "Tokens that were shown, by whether the answer was known.";
    Resource CONTAINER_CPU_USAGE_SECONDS_TOTAL "container_cpu_usage_seconds_total" Counter Stable ["container", "namespace", "pod"] "Processor time a container has used, in core seconds.";
    Resource CONTAINER_MEMORY_WORKING_SET_BYTES "container_memory_working_set_bytes" Gauge Stable ["container", "namespace", "pod"] "Working set of a container, in bytes.";
    Resource CONTAINER_START_TIME_SECONDS "container_start_time_seconds" Gauge Stable ["container", "namespace", "pod"] "When a container started, in seconds since the epoch.";
    Resource CONTAINER_SWAP_LIMIT_BYTES "container_swap_limit_bytes" Gauge Alpha ["container", "namespace", "pod"] "Swap a container may use, in bytes.";
    Resource CONTAINER_SWAP_USAGE_BYTES "container_swap_usage_bytes" Gauge Alpha ["container", "namespace", "pod"] "Swap a container uses, in bytes.";
    Metrics CSI_NODE_STORAGE_HEALTH_STATUS "csi_node_storage_health_status" Gauge Alpha ["driver_name", "reason", "status"] "What drivers say is wrong with all that they store (1 while they say so).";
    Metrics CSI_OPERATIONS_SECONDS "csi_operations_seconds" Histogram(VOLUMES) Alpha ["driver_name", "grpc_status_code", "method_name", "migrated"] "Time calls of CSI drivers took, in seconds, by how they ended.";
    Metrics DISABLED_METRICS_TOTAL "disabled_metrics_total" Counter Beta [] "Families that were switched off.";
    Metrics DRA_GRPC_OPERATIONS_DURATION_SECONDS "dra_grpc_operations_duration_seconds" Histogram(DRIVERS) Alpha ["driver_name", "grpc_status_code", "method_name"] "Time calls of drivers of dynamic resources took, in seconds, by how they ended.";
    Metrics DRA_NODE_PREPARE_SKIPS_TOTAL "dra_node_prepare_skips_total" Counter Alpha ["driver_name"] "Claims that a driver need not prepare.";
    Metrics DRA_NODE_UNPREPARE_SKIPS_TOTAL "dra_node_unprepare_skips_total" Counter Alpha ["driver_name"] "Claims that a driver need not take back.";
    Metrics DRA_OPERATIONS_DURATION_SECONDS "dra_operations_duration_seconds" Histogram(DRIVERS) Alpha ["is_error", "operation_name"] "Time it took to have the claims of a pod prepared or taken back, in seconds.";
    Metrics DRA_RESOURCE_CLAIMS_IN_USE "dra_resource_claims_in_use" Gauge Alpha ["driver_name"] "Claims of dynamic resources that pods use, by driver.";
    Metrics HIDDEN_METRICS_TOTAL "hidden_metrics_total" Counter Beta [] "Families that are hidden.";
    Metrics KUBELET_ACTIVE_PODS "kubelet_active_pods" Gauge Alpha ["static"] "Pods that are not over.";
    Metrics KUBELET_ADMISSION_REJECTIONS_TOTAL "kubelet_admission_rejections_total" Counter Alpha ["reason"] "Pods that this node refused.";
    Metrics KUBELET_CERTIFICATE_MANAGER_CLIENT_EXPIRATION_RENEW_ERRORS "kubelet_certificate_manager_client_expiration_renew_errors" Counter Alpha [] "Attempts to renew the client certificate that failed.";
    Metrics KUBELET_CERTIFICATE_MANAGER_CLIENT_TTL_SECONDS "kubelet_certificate_manager_client_ttl_seconds" Gauge Alpha [] "How long the client certificate still holds, in seconds.";
    Metrics KUBELET_CERTIFICATE_MANAGER_SERVER_ROTATION_SECONDS "kubelet_certificate_manager_server_rotation_seconds" Histogram(AGES) Alpha [] "Age of serving certificates when they were replaced, in seconds.";
    Metrics KUBELET_CERTIFICATE_MANAGER_SERVER_TTL_SECONDS "kubelet_certificate_manager_server_ttl_seconds" Gauge Alpha [] "How long the serving certificate still holds, in seconds.";
    Metrics KUBELET_CGROUP_MANAGER_DURATION_SECONDS "kubelet_cgroup_manager_duration_seconds" Histogram(SECONDS) Alpha ["operation_type"] "Time operations on cgroups of pods took, in seconds.";
    Metrics KUBELET_CGROUP_VERSION "kubelet_cgroup_version" Gauge Alpha [] "Version of the cgroup hierarchy.";
    Metrics KUBELET_CONTAINER_ALIGNED_COMPUTE_RESOURCES_COUNT "kubelet_container_aligned_compute_resources_count" Counter Alpha ["boundary", "scope"] "What was given from within one part of the machine, by that part.";
    Metrics KUBELET_CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE_COUNT "kubelet_container_aligned_compute_resources_failure_count" Counter Alpha ["boundary", "scope"] "What could not be given from within one part of the machine, by that part.";
    Metrics KUBELET_CONTAINER_LOG_FILESYSTEM_USED_BYTES "kubelet_container_log_filesystem_used_bytes" Gauge Alpha ["container", "namespace", "pod", "uid"] "What logs of a container take on disk, in bytes.";
    Metrics KUBELET_CONTAINER_REQUESTED_RESIZES_TOTAL "kubelet_container_requested_resizes_total" Counter Alpha ["operation", "requirement", "resource"] "Changes of what containers ask for, while they run.";
    Metrics KUBELET_CONTAINERS_PER_POD_COUNT "kubelet_containers_per_pod_count" Histogram(CONTAINERS) Alpha [] "Containers of the pods that came to this node.";
    Metrics KUBELET_CPU_MANAGER_ALLOCATION_PER_NUMA "kubelet_cpu_manager_allocation_per_numa" Gauge Alpha ["numa_node"] "Processors that containers have for themselves, by NUMA node.";
    Metrics KUBELET_CPU_MANAGER_EXCLUSIVE_CPU_ALLOCATION_COUNT "kubelet_cpu_manager_exclusive_cpu_allocation_count" Gauge Alpha [] "Processors that containers have for themselves.";
    Metrics KUBELET_CPU_MANAGER_PINNING_ERRORS_TOTAL "kubelet_cpu_manager_pinning_errors_total" Counter Alpha [] "Containers that could not have the processors they asked for.";
    Metrics KUBELET_CPU_MANAGER_PINNING_REQUESTS_TOTAL "kubelet_cpu_manager_pinning_requests_total" Counter Alpha [] "Containers that asked for processors of their own.";
    Metrics KUBELET_CPU_MANAGER_SHARED_POOL_SIZE_MILLICORES "kubelet_cpu_manager_shared_pool_size_millicores" Gauge Alpha [] "Processors that can still be given away, in thousandths.";
    Metrics KUBELET_CREDENTIAL_PROVIDER_PLUGIN_DURATION "kubelet_credential_provider_plugin_duration" Histogram(SECONDS) Alpha ["plugin_name"] "Time credential plugins took, in seconds.";
    Metrics KUBELET_CREDENTIAL_PROVIDER_PLUGIN_ERRORS_TOTAL "kubelet_credential_provider_plugin_errors_total" Counter Alpha ["plugin_name"] "Runs of credential plugins that failed.";
    Metrics KUBELET_DESIRED_PODS "kubelet_desired_pods" Gauge Alpha ["static"] "Pods that should be here.";
    Metrics KUBELET_DEVICE_PLUGIN_ALLOC_DURATION_SECONDS "kubelet_device_plugin_alloc_duration_seconds" Histogram(SECONDS) Alpha ["resource_name"] "Time plugins took to give devices to a container, in seconds.";
    Metrics KUBELET_DEVICE_PLUGIN_REGISTRATION_TOTAL "kubelet_device_plugin_registration_total" Counter Alpha ["resource_name"] "Registrations of device plugins.";
    Metrics KUBELET_EVENTED_PLEG_CONNECTION_ERROR_COUNT "kubelet_evented_pleg_connection_error_count" Counter Alpha [] "Attempts to hear the runtime's events that failed.";
    Metrics KUBELET_EVENTED_PLEG_CONNECTION_LATENCY_SECONDS "kubelet_evented_pleg_connection_latency_seconds" Histogram(SECONDS) Alpha [] "Time it took to be heard by the runtime's events, in seconds.";
    Metrics KUBELET_EVENTED_PLEG_CONNECTION_SUCCESS_COUNT "kubelet_evented_pleg_connection_success_count" Counter Alpha [] "Streams of the runtime's events that were opened.";
    Metrics KUBELET_EVICTION_STATS_AGE_SECONDS "kubelet_eviction_stats_age_seconds" Histogram(SECONDS) Alpha ["eviction_signal"] "Age of the figures by which pods were evicted, in seconds.";
    Metrics KUBELET_EVICTIONS "kubelet_evictions" Counter Alpha ["eviction_signal"] "Pods that were evicted, by what they or the node ran out of.";
    Metrics KUBELET_GRACEFUL_SHUTDOWN_END_TIME_SECONDS "kubelet_graceful_shutdown_end_time_seconds" Gauge Alpha [] "When the last graceful shutdown of the node ended, in seconds since the epoch.";
    Metrics KUBELET_GRACEFUL_SHUTDOWN_START_TIME_SECONDS "kubelet_graceful_shutdown_start_time_seconds" Gauge Alpha [] "When the last graceful shutdown of the node began, in seconds since the epoch.";
    Metrics KUBELET_HTTP_INFLIGHT_REQUESTS "kubelet_http_inflight_requests" Gauge Alpha ["long_running", "method", "path", "server_type"] "HTTP requests being answered.";
    Metrics KUBELET_HTTP_REQUESTS_DURATION_SECONDS "kubelet_http_requests_duration_seconds" Histogram(SECONDS) Alpha ["long_running", "method", "path", "server_type"] "Time taken to answer HTTP requests.";
    Metrics KUBELET_HTTP_REQUESTS_TOTAL "kubelet_http_requests_total" Counter Alpha ["long_running", "method", "path", "server_type"] "HTTP requests received.";
    Metrics KUBELET_IMAGE_GARBAGE_COLLECTED_TOTAL "kubelet_image_garbage_collected_total" Counter Alpha ["reason"] "Images that were removed to free space or because of their age.";
    Metrics KUBELET_IMAGE_MANAGER_ENSURE_IMAGE_REQUESTS_TOTAL "kubelet_image_manager_ensure_image_requests_total" Counter Alpha ["present_locally", "pull_policy", "pull_required"] "Images that containers asked for.";
    Metrics KUBELET_IMAGE_PULL_DURATION_SECONDS "kubelet_image_pull_duration_seconds" Histogram(PULLS) Alpha ["image_size_in_bytes"] "Time pulls of images took, in seconds, by size.";
    Metrics KUBELET_IMAGE_VOLUME_MOUNTED_ERRORS_TOTAL "kubelet_image_volume_mounted_errors_total" Counter Beta [] "Image volumes that could not be mounted.";
    Metrics KUBELET_IMAGE_VOLUME_MOUNTED_SUCCEED_TOTAL "kubelet_image_volume_mounted_succeed_total" Counter Beta [] "Image volumes that were mounted.";
    Metrics KUBELET_IMAGE_VOLUME_REQUESTED_TOTAL "kubelet_image_volume_requested_total" Counter Beta [] "Image volumes that were asked for.";
    Metrics KUBELET_IMAGEMANAGER_IMAGE_MUSTPULL_CHECKS_TOTAL "kubelet_imagemanager_image_mustpull_checks_total" Counter Alpha ["result"] "Images that were here, by whether their user had to prove its credentials.";
    Metrics KUBELET_LIFECYCLE_HANDLER_HTTP_FALLBACKS_TOTAL "kubelet_lifecycle_handler_http_fallbacks_total" Counter Alpha [] "Hooks over HTTPS that were answered over HTTP.";
    Metrics KUBELET_MANAGED_EPHEMERAL_CONTAINERS "kubelet_managed_ephemeral_containers" Gauge Alpha [] "Ephemeral containers in pods here.";
    Metrics KUBELET_MEMORY_MANAGER_PINNING_ERRORS_TOTAL "kubelet_memory_manager_pinning_errors_total" Counter Alpha [] "Containers that could not have the memory they asked for.";
    Metrics KUBELET_MEMORY_MANAGER_PINNING_REQUESTS_TOTAL "kubelet_memory_manager_pinning_requests_total" Counter Alpha [] "Containers that asked for memory of their own.";
    Metrics KUBELET_MEMORY_QOS_NODE_MEMORY_LOW_BYTES "kubelet_memory_qos_node_memory_low_bytes" Gauge Alpha [] "Memory that is kept for burstable pods while there is any other to reclaim (memory.low).";
    Metrics KUBELET_MEMORY_QOS_NODE_MEMORY_MIN_BYTES "kubelet_memory_qos_node_memory_min_bytes" Gauge Alpha [] "Memory that is kept for guaranteed pods whatever happens (memory.min).";
    Metrics KUBELET_METRICS_PROVIDER "kubelet_metrics_provider" Gauge Alpha ["provider"] "Always 1; the label says where figures of containers come from.";
    Metrics KUBELET_MIRROR_PODS "kubelet_mirror_pods" Gauge Alpha [] "Static pods that the API server shows.";
    Metrics KUBELET_NODE_NAME "kubelet_node_name" Gauge Alpha ["node"] "Always 1; the label is the node's name.";
    Metrics KUBELET_NODE_STARTUP_DURATION_SECONDS "kubelet_node_startup_duration_seconds" Gauge Alpha [] "Time from the boot of the machine until the node was ready, in seconds.";
    Metrics KUBELET_NODE_STARTUP_POST_REGISTRATION_DURATION_SECONDS "kubelet_node_startup_post_registration_duration_seconds" Gauge Alpha [] "Time from registration until the node was ready, in seconds.";
    Metrics KUBELET_NODE_STARTUP_PRE_KUBELET_DURATION_SECONDS "kubelet_node_startup_pre_kubelet_duration_seconds" Gauge Alpha [] "Time from the boot of the machine until the agent started, in seconds.";
    Metrics KUBELET_NODE_STARTUP_PRE_REGISTRATION_DURATION_SECONDS "kubelet_node_startup_pre_registration_duration_seconds" Gauge Alpha [] "Time from the start of the agent until its first attempt to register, in seconds.";
    Metrics KUBELET_NODE_STARTUP_REGISTRATION_DURATION_SECONDS "kubelet_node_startup_registration_duration_seconds" Gauge Alpha [] "Time registration took, in seconds.";
    Metrics KUBELET_ORPHANED_RUNTIME_PODS_TOTAL "kubelet_orphaned_runtime_pods_total" Counter Alpha [] "Pods that ran here without anybody asking for them.";
    Metrics KUBELET_PLEG_DISCARD_EVENTS "kubelet_pleg_discard_events" Counter Alpha [] "Events of pods that were dropped.";
    Metrics KUBELET_PLEG_LAST_SEEN_SECONDS "kubelet_pleg_last_seen_seconds" Gauge Alpha [] "When the runtime was last listed, in seconds since the epoch.";
    Metrics KUBELET_PLEG_POD_RELIST_DURATION_SECONDS "kubelet_pleg_pod_relist_duration_seconds" Histogram(SECONDS) Alpha [] "Time it took to look at one pod, in seconds.";
    Metrics KUBELET_PLEG_RELIST_DURATION_SECONDS "kubelet_pleg_relist_duration_seconds" Histogram(SECONDS) Alpha [] "Time listings of the runtime took, in seconds.";
    Metrics KUBELET_PLEG_RELIST_INTERVAL_SECONDS "kubelet_pleg_relist_interval_seconds" Histogram(SECONDS) Alpha [] "Time between two listings of the runtime, in seconds.";
    Metrics KUBELET_POD_DEFERRED_ACCEPTED_RESIZES_TOTAL "kubelet_pod_deferred_accepted_resizes_total" Counter Alpha ["retry_trigger"] "Resizes that had to wait and were granted, by what made room.";
    Metrics KUBELET_POD_DEFERRED_RESIZE_DURATION_SECONDS "kubelet_pod_deferred_resize_duration_seconds" Histogram(DEFERRED) Alpha ["priority_bucket", "resolution"] "Time resizes waited for room, by how that ended and by priority, in seconds.";
    Metrics KUBELET_POD_IN_PROGRESS_RESIZES "kubelet_pod_in_progress_resizes" Gauge Alpha [] "Pods whose new resources are being put in force.";
    Metrics KUBELET_POD_INFEASIBLE_RESIZES_TOTAL "kubelet_pod_infeasible_resizes_total" Counter Alpha ["reason_detail"] "Resizes that this node can never do, by why.";
    Metrics KUBELET_POD_LEVEL_RESOURCES_ADMISSION_TOTAL "kubelet_pod_level_resources_admission_total" Counter Alpha ["config_mode", "qos_class"] "Pods that were taken, by where they ask for resources and by class.";
    Metrics KUBELET_POD_PENDING_RESIZES "kubelet_pod_pending_resizes" Gauge Alpha ["priority_bucket", "reason"] "Pods whose new resources are not granted, by reason and priority.";
    Metrics KUBELET_POD_REQUESTS_GET_TOTAL "kubelet_pod_requests_get_total" Counter Alpha ["server_api_version", "status_code"] "Pods that were asked for one by one.";
    Metrics KUBELET_POD_REQUESTS_LIST_TOTAL "kubelet_pod_requests_list_total" Counter Alpha ["server_api_version", "status_code"] "Lists of pods that were asked for.";
    Metrics KUBELET_POD_REQUESTS_TOTAL "kubelet_pod_requests_total" Counter Alpha ["server_api_version", "status_code"] "Requests to the pods API.";
    Metrics KUBELET_POD_REQUESTS_WATCH_TOTAL "kubelet_pod_requests_watch_total" Counter Alpha ["server_api_version", "status_code"] "Watches of pods that ended.";
    Metrics KUBELET_POD_RESIZE_DURATION_MILLISECONDS "kubelet_pod_resize_duration_milliseconds" Histogram(RESIZES) Alpha ["success"] "Time it took to put resources in force, in milliseconds.";
    Metrics KUBELET_POD_RESOURCES_ENDPOINT_ERRORS_GET "kubelet_pod_resources_endpoint_errors_get" Counter Alpha ["server_api_version"] "Failed requests for what one pod was given.";
    Metrics KUBELET_POD_RESOURCES_ENDPOINT_REQUESTS_GET "kubelet_pod_resources_endpoint_requests_get" Counter Alpha ["server_api_version"] "Requests for what one pod was given.";
    Metrics KUBELET_POD_RESOURCES_ENDPOINT_REQUESTS_GET_ALLOCATABLE "kubelet_pod_resources_endpoint_requests_get_allocatable" Counter Alpha ["server_api_version"] "Requests for what there is to give.";
    Metrics KUBELET_POD_RESOURCES_ENDPOINT_REQUESTS_LIST "kubelet_pod_resources_endpoint_requests_list" Counter Alpha ["server_api_version"] "Requests for what all pods were given.";
    Metrics KUBELET_POD_RESOURCES_ENDPOINT_REQUESTS_TOTAL "kubelet_pod_resources_endpoint_requests_total" Counter Alpha ["server_api_version"] "Requests to the pod resources API.";
    Metrics KUBELET_POD_START_DURATION_SECONDS "kubelet_pod_start_duration_seconds" Histogram(STARTS) Alpha [] "Time from the first sight of a pod until it ran, in seconds.";
    Metrics KUBELET_POD_START_SLI_DURATION_SECONDS "kubelet_pod_start_sli_duration_seconds" Histogram(STARTS) Alpha [] "Time from the creation of a pod until it ran, without pulls and init containers, in seconds.";
    Metrics KUBELET_POD_START_TOTAL_DURATION_SECONDS "kubelet_pod_start_total_duration_seconds" Histogram(STARTS) Alpha [] "Time from the creation of a pod until it ran, in seconds.";
    Metrics KUBELET_POD_STATUS_SYNC_DURATION_SECONDS "kubelet_pod_status_sync_duration_seconds" Histogram(STATUSES) Alpha [] "Time from a change of a pod's status until the API had it, in seconds.";
    Metrics KUBELET_POD_WATCH_EVENTS_DROPPED_TOTAL "kubelet_pod_watch_events_dropped_total" Counter Alpha [] "Changes of pods that slow watchers missed.";
    Metrics KUBELET_POD_WORKER_DURATION_SECONDS "kubelet_pod_worker_duration_seconds" Histogram(SECONDS) Alpha ["operation_type"] "Time turns of pods' workers took, in seconds.";
    Metrics KUBELET_POD_WORKER_START_DURATION_SECONDS "kubelet_pod_worker_start_duration_seconds" Histogram(SECONDS) Alpha [] "Time from the first sight of a pod until it had a worker, in seconds.";
    Metrics KUBELET_PREEMPTIONS "kubelet_preemptions" Counter Alpha ["preemption_signal"] "Pods that made room for a critical one, by what was missing.";
    Metrics KUBELET_RESTARTED_PODS_TOTAL "kubelet_restarted_pods_total" Counter Alpha ["static"] "Pods that came back under their old identity.";
    Metrics KUBELET_RUN_PODSANDBOX_DURATION_SECONDS "kubelet_run_podsandbox_duration_seconds" Histogram(SECONDS) Alpha ["runtime_handler"] "Time it took to make sandboxes, in seconds.";
    Metrics KUBELET_RUN_PODSANDBOX_ERRORS_TOTAL "kubelet_run_podsandbox_errors_total" Counter Alpha ["runtime_handler"] "Sandboxes that could not be made.";
    Metrics KUBELET_RUNNING_CONTAINERS "kubelet_running_containers" Gauge Alpha ["container_state"] "Containers by state.";
    Metrics KUBELET_RUNNING_PODS "kubelet_running_pods" Gauge Alpha [] "Pods with a container that runs.";
    Metrics KUBELET_RUNTIME_OPERATIONS_DURATION_SECONDS "kubelet_runtime_operations_duration_seconds" Histogram(CALLS) Alpha ["operation_type"] "Time calls to the runtime took, in seconds.";
    Metrics KUBELET_RUNTIME_OPERATIONS_ERRORS_TOTAL "kubelet_runtime_operations_errors_total" Counter Alpha ["operation_type"] "Calls to the runtime that failed.";
    Metrics KUBELET_RUNTIME_OPERATIONS_TOTAL "kubelet_runtime_operations_total" Counter Alpha ["operation_type"] "Calls to the runtime.";
    Metrics KUBELET_SERVER_EXPIRATION_RENEW_ERRORS "kubelet_server_expiration_renew_errors" Counter Alpha [] "Attempts to renew the serving certificate that failed.";
    Metrics KUBELET_SLEEP_ACTION_TERMINATED_EARLY_TOTAL "kubelet_sleep_action_terminated_early_total" Counter Alpha [] "Hooks that slept and were woken too early.";
    Metrics KUBELET_STARTED_CONTAINERS_ERRORS_TOTAL "kubelet_started_containers_errors_total" Counter Alpha ["code", "container_type"] "Containers that could not be started.";
    Metrics KUBELET_STARTED_CONTAINERS_TOTAL "kubelet_started_containers_total" Counter Alpha ["container_type"] "Containers that were to be started.";
    Metrics KUBELET_STARTED_PODS_ERRORS_TOTAL "kubelet_started_pods_errors_total" Counter Alpha [] "Sandboxes that could not be started.";
    Metrics KUBELET_STARTED_PODS_TOTAL "kubelet_started_pods_total" Counter Alpha [] "Sandboxes that were started.";
    Metrics KUBELET_STARTED_USER_NAMESPACED_PODS_ERRORS_TOTAL "kubelet_started_user_namespaced_pods_errors_total" Counter Alpha [] "Sandboxes with users of their own that could not be made.";
    Metrics KUBELET_STARTED_USER_NAMESPACED_PODS_TOTAL "kubelet_started_user_namespaced_pods_total" Counter Alpha [] "Sandboxes with users of their own.";
    Metrics KUBELET_TERMINATED_CONTAINERS_TOTAL "kubelet_terminated_containers_total" Counter Alpha ["container_type", "exit_code", "reason"] "Containers that ended, by how they did.";
    Metrics KUBELET_TOPOLOGY_MANAGER_ADMISSION_DURATION_MS "kubelet_topology_manager_admission_duration_ms" Histogram(ADMISSIONS) Alpha [] "Time it took to find a place for a pod, in milliseconds.";
    Metrics KUBELET_TOPOLOGY_MANAGER_ADMISSION_ERRORS_TOTAL "kubelet_topology_manager_admission_errors_total" Counter Alpha [] "Pods that no place was found for.";
    Metrics KUBELET_TOPOLOGY_MANAGER_ADMISSION_REQUESTS_TOTAL "kubelet_topology_manager_admission_requests_total" Counter Alpha [] "Pods that a place was looked for.";
    Metrics KUBELET_VOLUME_STATS_AVAILABLE_BYTES "kubelet_volume_stats_available_bytes" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Bytes left on a volume.";
    Metrics KUBELET_VOLUME_STATS_CAPACITY_BYTES "kubelet_volume_stats_capacity_bytes" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Size of a volume, in bytes.";
    Metrics KUBELET_VOLUME_STATS_INODES "kubelet_volume_stats_inodes" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Inodes of a volume.";
    Metrics KUBELET_VOLUME_STATS_INODES_FREE "kubelet_volume_stats_inodes_free" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Inodes left on a volume.";
    Metrics KUBELET_VOLUME_STATS_INODES_USED "kubelet_volume_stats_inodes_used" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Inodes in use on a volume.";
    Metrics KUBELET_VOLUME_STATS_USED_BYTES "kubelet_volume_stats_used_bytes" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Bytes in use on a volume.";
    Metrics KUBELET_WEBSOCKET_STREAMING_REQUESTS_TOTAL "kubelet_websocket_streaming_requests_total" Counter Alpha ["subresource"] "Streams that came by WebSocket all the way.";
    Metrics KUBELET_WORKING_PODS "kubelet_working_pods" Gauge Alpha ["config", "lifecycle", "static"] "Pods that have a worker, by how far they are and who wants them.";
    Metrics KUBERNETES_BUILD_INFO "kubernetes_build_info" Gauge Beta ["build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version", "major", "minor", "platform"] "Always 1; the labels tell the version.";
    Metrics KUBERNETES_FEATURE_ENABLED "kubernetes_feature_enabled" Gauge Beta ["name", "stage"] "1 for each feature that is on, 0 for each that is off.";
    Slis KUBERNETES_HEALTHCHECK "kubernetes_healthcheck" Gauge Stable ["name", "type"] "1 while a check passes, else 0.";
    Slis KUBERNETES_HEALTHCHECKS_TOTAL "kubernetes_healthchecks_total" Counter Stable ["name", "status", "type"] "Checks that were made, by outcome.";
    Resource NODE_CPU_USAGE_SECONDS_TOTAL "node_cpu_usage_seconds_total" Counter Stable [] "Processor time the node has used, in core seconds.";
    Resource NODE_MEMORY_WORKING_SET_BYTES "node_memory_working_set_bytes" Gauge Stable [] "Working set of the node, in bytes.";
    Resource NODE_SWAP_USAGE_BYTES "node_swap_usage_bytes" Gauge Alpha [] "Swap the node uses, in bytes.";
    Metrics PLUGIN_MANAGER_TOTAL_PLUGINS "plugin_manager_total_plugins" Gauge Alpha ["socket_path", "state"] "Plugins that are there, and plugins that are registered.";
    Resource POD_CPU_USAGE_SECONDS_TOTAL "pod_cpu_usage_seconds_total" Counter Stable ["namespace", "pod"] "Processor time a pod has used, in core seconds.";
    Resource POD_MEMORY_WORKING_SET_BYTES "pod_memory_working_set_bytes" Gauge Stable ["namespace", "pod"] "Working set of a pod, in bytes.";
    Resource POD_SWAP_USAGE_BYTES "pod_swap_usage_bytes" Gauge Alpha ["namespace", "pod"] "Swap a pod uses, in bytes.";
    Probes PROBER_PROBE_DURATION_SECONDS "prober_probe_duration_seconds" Histogram(NONE) Alpha ["container", "namespace", "pod", "probe_type"] "Time a probe took, in seconds.";
    Probes PROBER_PROBE_TOTAL "prober_probe_total" Counter Beta ["container", "namespace", "pod", "pod_uid", "probe_type", "result"] "Probes of containers, by result.";
    Metrics PROCESS_CPU_SECONDS_TOTAL "process_cpu_seconds_total" Counter Alpha [] "Processor time of this process, in seconds.";
    Metrics PROCESS_MAX_FDS "process_max_fds" Gauge Alpha [] "File descriptors this process may have.";
    Metrics PROCESS_NETWORK_RECEIVE_BYTES_TOTAL "process_network_receive_bytes_total" Counter Alpha [] "Bytes received in the network of this process.";
    Metrics PROCESS_NETWORK_TRANSMIT_BYTES_TOTAL "process_network_transmit_bytes_total" Counter Alpha [] "Bytes sent in the network of this process.";
    Metrics PROCESS_OPEN_FDS "process_open_fds" Gauge Alpha [] "File descriptors this process has.";
    Metrics PROCESS_RESIDENT_MEMORY_BYTES "process_resident_memory_bytes" Gauge Alpha [] "Memory of this process, in bytes.";
    Metrics|Probes|Slis PROCESS_START_TIME_SECONDS "process_start_time_seconds" Gauge Alpha [] "When this process started, in seconds since the epoch.";
    Metrics PROCESS_VIRTUAL_MEMORY_BYTES "process_virtual_memory_bytes" Gauge Alpha [] "Address space of this process, in bytes.";
    Metrics PROCESS_VIRTUAL_MEMORY_MAX_BYTES "process_virtual_memory_max_bytes" Gauge Alpha [] "Address space this process may have, in bytes.";
    Metrics REGISTERED_METRICS_TOTAL "registered_metrics_total" Counter Beta ["deprecated_version", "stability_level"] "Families this agent knows, by stability.";
    Resource RESOURCE_SCRAPE_ERROR "resource_scrape_error" Gauge Stable [] "1 when the figures could not be read, else 0.";
    Metrics REST_CLIENT_RATE_LIMITER_DURATION_SECONDS "rest_client_rate_limiter_duration_seconds" Histogram(REQUESTS) Alpha ["host", "verb"] "Time requests to the API server waited for their rate, in seconds.";
    Metrics REST_CLIENT_REQUEST_DURATION_SECONDS "rest_client_request_duration_seconds" Histogram(REQUESTS) Alpha ["host", "verb"] "Time the API server took to begin its answers, in seconds.";
    Metrics REST_CLIENT_REQUEST_SIZE_BYTES "rest_client_request_size_bytes" Histogram(BYTES) Alpha ["host", "verb"] "Sizes of requests to the API server, in bytes.";
    Metrics REST_CLIENT_REQUESTS_TOTAL "rest_client_requests_total" Counter Alpha ["code", "host", "method"] "Requests to the API server, by answer.";
    Metrics REST_CLIENT_RESPONSE_SIZE_BYTES "rest_client_response_size_bytes" Histogram(BYTES) Alpha ["host", "verb"] "Sizes of answers of the API server, in bytes.";
    Resource SCRAPE_ERROR "scrape_error" Gauge Alpha [] "(Deprecated since 1.29.0) 1 when the figures could not be read, else 0.";
    Metrics STORAGE_OPERATION_DURATION_SECONDS "storage_operation_duration_seconds" Histogram(VOLUMES) Beta ["migrated", "operation_name", "status", "volume_plugin"] "Time operations on volumes took, in seconds.";
    Metrics VOLUME_MANAGER_TOTAL_VOLUMES "volume_manager_total_volumes" Gauge Alpha ["plugin_name", "state"] "Volumes that pods should have, and volumes that they have.";
    Metrics VOLUME_OPERATION_TOTAL_SECONDS "volume_operation_total_seconds" Histogram(VOLUMES) Beta ["operation_name", "plugin_name"] "Time operations on volumes took from end to end, in seconds.";
    Metrics WORKQUEUE_ADDS_TOTAL "workqueue_adds_total" Counter Beta ["name"] "Things that were put in a line.";
    Metrics WORKQUEUE_DEPTH "workqueue_depth" Gauge Beta ["name"] "Things in a line.";
    Metrics WORKQUEUE_LONGEST_RUNNING_PROCESSOR_SECONDS "workqueue_longest_running_processor_seconds" Gauge Beta ["name"] "How long the oldest work under way has taken, in seconds.";
    Metrics WORKQUEUE_QUEUE_DURATION_SECONDS "workqueue_queue_duration_seconds" Histogram(QUEUES) Beta ["name"] "Time things waited in a line, in seconds.";
    Metrics WORKQUEUE_RETRIES_TOTAL "workqueue_retries_total" Counter Beta ["name"] "Things that were put in a line again.";
    Metrics WORKQUEUE_UNFINISHED_WORK_SECONDS "workqueue_unfinished_work_seconds" Gauge Beta ["name"] "How long all work under way has taken, in seconds.";
    Metrics WORKQUEUE_WORK_DURATION_SECONDS "workqueue_work_duration_seconds" Histogram(QUEUES) Beta ["name"] "Time work on things from a line took, in seconds.";
}
