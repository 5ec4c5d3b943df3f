//! The families this agent can show. Names, types, labels and stability are upstream's; the help is
//! our own.

/// Where a family is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Metrics,
    Resource,
    Probes,
    Slis,
}

/// A family's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Counter,
    Gauge,
    Histogram,
}

impl Type {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// How much a family may still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stability {
    Alpha,
    Beta,
    Stable,
}

impl Stability {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
        }
    }
}

/// One family.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) endpoint: Endpoint,
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) stability: Stability,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

impl Family {
    /// True for a count of what the agent does, without kinds of it.
    pub(super) fn counts_all(&self) -> bool {
        self.kind == Type::Counter && self.labels.is_empty() && self.name.starts_with("kubelet_")
    }
}

/// The families of an endpoint, by name.
pub(super) fn shown_at(endpoint: Endpoint) -> impl Iterator<Item = &'static Family> {
    TABLE.iter().filter(move |family| family.endpoint == endpoint)
}

/// How many families there are of each stability.
pub(super) fn n_by_stability() -> impl Iterator<Item = (&'static str, usize)> {
    [Stability::Alpha, Stability::Beta, Stability::Stable].into_iter().map(|stability| {
        let n = TABLE.iter().filter(|it| it.stability == stability);
        (stability.word(), n.count())
    })
}

/// One family by name.
pub(super) fn family(name: &str) -> &'static Family {
    let found = TABLE.iter().find(|family| family.name == name);
    found.expect("the table has every family this crate writes")
}

/// One family per line: where, name, type, stability, labels in order, help.
macro_rules! families {
    ($($endpoint:ident $name:literal $kind:ident $stability:ident [$($label:literal),*] $help:literal;)*) => {
        &[$(Family {
            endpoint: Endpoint::$endpoint,
            name: $name,
            kind: Type::$kind,
            stability: Stability::$stability,
            labels: &[$($label),*],
            help: $help,
        }),*]
    };
}

const TABLE: &[Family] = families! {
    Metrics "apiserver_client_certificate_expiration_seconds" Histogram Alpha [] "How long certificates of callers still held when they were shown, in seconds.";
    Metrics "apiserver_delegated_authn_request_duration_seconds" Histogram Alpha ["code"] "Time the API server took to answer who a caller is, in seconds.";
    Metrics "apiserver_delegated_authn_request_total" Counter Alpha ["code"] "Questions to the API server about who a caller is.";
    Metrics "apiserver_delegated_authz_request_duration_seconds" Histogram Alpha ["code"] "Time the API server took to answer what a caller may do, in seconds.";
    Metrics "apiserver_delegated_authz_request_total" Counter Alpha ["code"] "Questions to the API server about what a caller may do.";
    Metrics "authentication_token_cache_active_fetch_count" Gauge Alpha ["status"] "Questions about tokens under way, or waiting for their turn.";
    Metrics "authentication_token_cache_fetch_total" Counter Alpha ["status"] "Questions about tokens, by whether there was an answer.";
    Metrics "authentication_token_cache_request_duration_seconds" Histogram Alpha ["status"] "Time it took to know whose a token is, in seconds.";
    Metrics "authentication_token_cache_request_total" Counter Alpha ["status"] "Tokens that were shown, by whether the answer was known.";
    Metrics "csi_node_storage_health_status" Gauge Alpha ["driver_name", "reason", "status"] "What drivers say is wrong with all that they store (1 while they say so).";
    Metrics "csi_operations_seconds" Histogram Alpha ["driver_name", "grpc_status_code", "method_name", "migrated"] "Time calls of CSI drivers took, in seconds, by how they ended.";
    Metrics "disabled_metrics_total" Counter Beta [] "Families that were switched off.";
    Metrics "hidden_metrics_total" Counter Beta [] "Families that are hidden.";
    Metrics "kubelet_active_pods" Gauge Alpha ["static"] "Pods that are not over.";
    Metrics "kubelet_admission_rejections_total" Counter Alpha ["reason"] "Pods that this node refused.";
    Metrics "kubelet_certificate_manager_client_expiration_renew_errors" Counter Alpha [] "Attempts to renew the client certificate that failed.";
    Metrics "kubelet_certificate_manager_client_ttl_seconds" Gauge Alpha [] "How long the client certificate still holds, in seconds.";
    Metrics "kubelet_certificate_manager_server_rotation_seconds" Histogram Alpha [] "Age of serving certificates when they were replaced, in seconds.";
    Metrics "kubelet_certificate_manager_server_ttl_seconds" Gauge Alpha [] "How long the serving certificate still holds, in seconds.";
    Metrics "kubelet_cgroup_manager_duration_seconds" Histogram Alpha ["operation_type"] "Time operations on cgroups of pods took, in seconds.";
    Metrics "kubelet_cgroup_version" Gauge Alpha [] "Version of the cgroup hierarchy.";
    Metrics "kubelet_container_aligned_compute_resources_count" Counter Alpha ["boundary", "scope"] "What was given from within one part of the machine, by that part.";
    Metrics "kubelet_container_aligned_compute_resources_failure_count" Counter Alpha ["boundary", "scope"] "What could not be given from within one part of the machine, by that part.";
    Metrics "kubelet_container_log_filesystem_used_bytes" Gauge Alpha ["container", "namespace", "pod", "uid"] "What logs of a container take on disk, in bytes.";
    Metrics "kubelet_container_requested_resizes_total" Counter Alpha ["operation", "requirement", "resource"] "Changes of what containers ask for, while they run.";
    Metrics "kubelet_containers_per_pod_count" Histogram Alpha [] "Containers of the pods that came to this node.";
    Metrics "kubelet_cpu_manager_allocation_per_numa" Gauge Alpha ["numa_node"] "Processors that containers have for themselves, by NUMA node.";
    Metrics "kubelet_cpu_manager_exclusive_cpu_allocation_count" Gauge Alpha [] "Processors that containers have for themselves.";
    Metrics "kubelet_cpu_manager_pinning_errors_total" Counter Alpha [] "Containers that could not have the processors they asked for.";
    Metrics "kubelet_cpu_manager_pinning_requests_total" Counter Alpha [] "Containers that asked for processors of their own.";
    Metrics "kubelet_cpu_manager_shared_pool_size_millicores" Gauge Alpha [] "Processors that can still be given away, in thousandths.";
    Metrics "kubelet_credential_provider_plugin_duration" Histogram Alpha ["plugin_name"] "Time credential plugins took, in seconds.";
    Metrics "kubelet_credential_provider_plugin_errors_total" Counter Alpha ["plugin_name"] "Runs of credential plugins that failed.";
    Metrics "kubelet_desired_pods" Gauge Alpha ["static"] "Pods that should be here.";
    Metrics "kubelet_device_plugin_alloc_duration_seconds" Histogram Alpha ["resource_name"] "Time plugins took to give devices to a container, in seconds.";
    Metrics "kubelet_device_plugin_registration_total" Counter Alpha ["resource_name"] "Registrations of device plugins.";
    Metrics "kubelet_evented_pleg_connection_error_count" Counter Alpha [] "Attempts to hear the runtime's events that failed.";
    Metrics "kubelet_evented_pleg_connection_latency_seconds" Histogram Alpha [] "Time it took to be heard by the runtime's events, in seconds.";
    Metrics "kubelet_evented_pleg_connection_success_count" Counter Alpha [] "Streams of the runtime's events that were opened.";
    Metrics "kubelet_eviction_stats_age_seconds" Histogram Alpha ["eviction_signal"] "Age of the figures by which pods were evicted, in seconds.";
    Metrics "kubelet_evictions" Counter Alpha ["eviction_signal"] "Pods that were evicted, by what they or the node ran out of.";
    Metrics "kubelet_graceful_shutdown_end_time_seconds" Gauge Alpha [] "When the last graceful shutdown of the node ended, in seconds since the epoch.";
    Metrics "kubelet_graceful_shutdown_start_time_seconds" Gauge Alpha [] "When the last graceful shutdown of the node began, in seconds since the epoch.";
    Metrics "kubelet_http_inflight_requests" Gauge Alpha ["long_running", "method", "path", "server_type"] "HTTP requests being answered.";
    Metrics "kubelet_http_requests_duration_seconds" Histogram Alpha ["long_running", "method", "path", "server_type"] "Time taken to answer HTTP requests.";
    Metrics "kubelet_http_requests_total" Counter Alpha ["long_running", "method", "path", "server_type"] "HTTP requests received.";
    Metrics "kubelet_image_garbage_collected_total" Counter Alpha ["reason"] "Images that were removed to free space or because of their age.";
    Metrics "kubelet_image_manager_ensure_image_requests_total" Counter Alpha ["present_locally", "pull_policy", "pull_required"] "Images that containers asked for.";
    Metrics "kubelet_image_pull_duration_seconds" Histogram Alpha ["image_size_in_bytes"] "Time pulls of images took, in seconds, by size.";
    Metrics "kubelet_image_volume_mounted_errors_total" Counter Beta [] "Image volumes that could not be mounted.";
    Metrics "kubelet_image_volume_mounted_succeed_total" Counter Beta [] "Image volumes that were mounted.";
    Metrics "kubelet_image_volume_requested_total" Counter Beta [] "Image volumes that were asked for.";
    Metrics "kubelet_imagemanager_image_mustpull_checks_total" Counter Alpha ["result"] "Images that were here, by whether their user had to prove its credentials.";
    Metrics "kubelet_lifecycle_handler_http_fallbacks_total" Counter Alpha [] "Hooks over HTTPS that were answered over HTTP.";
    Metrics "kubelet_managed_ephemeral_containers" Gauge Alpha [] "Ephemeral containers in pods here.";
    Metrics "kubelet_memory_manager_pinning_errors_total" Counter Alpha [] "Containers that could not have the memory they asked for.";
    Metrics "kubelet_memory_manager_pinning_requests_total" Counter Alpha [] "Containers that asked for memory of their own.";
    Metrics "kubelet_memory_qos_node_memory_low_bytes" Gauge Alpha [] "Memory that is kept for burstable pods while there is any other to reclaim (memory.low).";
    Metrics "kubelet_memory_qos_node_memory_min_bytes" Gauge Alpha [] "Memory that is kept for guaranteed pods whatever happens (memory.min).";
    Metrics "kubelet_metrics_provider" Gauge Alpha ["provider"] "Always 1; the label says where figures of containers come from.";
    Metrics "kubelet_mirror_pods" Gauge Alpha [] "Static pods that the API server shows.";
    Metrics "kubelet_node_name" Gauge Alpha ["node"] "Always 1; the label is the node's name.";
    Metrics "kubelet_node_startup_duration_seconds" Gauge Alpha [] "Time from the boot of the machine until the node was ready, in seconds.";
    Metrics "kubelet_node_startup_post_registration_duration_seconds" Gauge Alpha [] "Time from registration until the node was ready, in seconds.";
    Metrics "kubelet_node_startup_pre_kubelet_duration_seconds" Gauge Alpha [] "Time from the boot of the machine until the agent started, in seconds.";
    Metrics "kubelet_node_startup_pre_registration_duration_seconds" Gauge Alpha [] "Time from the start of the agent until its first attempt to register, in seconds.";
    Metrics "kubelet_node_startup_registration_duration_seconds" Gauge Alpha [] "Time registration took, in seconds.";
    Metrics "kubelet_orphaned_runtime_pods_total" Counter Alpha [] "Pods that ran here without anybody asking for them.";
    Metrics "kubelet_pleg_discard_events" Counter Alpha [] "Events of pods that were dropped.";
    Metrics "kubelet_pleg_last_seen_seconds" Gauge Alpha [] "When the runtime was last listed, in seconds since the epoch.";
    Metrics "kubelet_pleg_pod_relist_duration_seconds" Histogram Alpha [] "Time it took to look at one pod, in seconds.";
    Metrics "kubelet_pleg_relist_duration_seconds" Histogram Alpha [] "Time listings of the runtime took, in seconds.";
    Metrics "kubelet_pleg_relist_interval_seconds" Histogram Alpha [] "Time between two listings of the runtime, in seconds.";
    Metrics "kubelet_pod_deferred_accepted_resizes_total" Counter Alpha ["retry_trigger"] "Resizes that had to wait and were granted, by what made room.";
    Metrics "kubelet_pod_deferred_resize_duration_seconds" Histogram Alpha ["priority_bucket", "resolution"] "Time resizes waited for room, by how that ended and by priority, in seconds.";
    Metrics "kubelet_pod_in_progress_resizes" Gauge Alpha [] "Pods whose new resources are being put in force.";
    Metrics "kubelet_pod_infeasible_resizes_total" Counter Alpha ["reason_detail"] "Resizes that this node can never do, by why.";
    Metrics "kubelet_pod_level_resources_admission_total" Counter Alpha ["config_mode", "qos_class"] "Pods that were taken, by where they ask for resources and by class.";
    Metrics "kubelet_pod_pending_resizes" Gauge Alpha ["priority_bucket", "reason"] "Pods whose new resources are not granted, by reason and priority.";
    Metrics "kubelet_pod_requests_get_total" Counter Alpha ["server_api_version", "status_code"] "Pods that were asked for one by one.";
    Metrics "kubelet_pod_requests_list_total" Counter Alpha ["server_api_version", "status_code"] "Lists of pods that were asked for.";
    Metrics "kubelet_pod_requests_total" Counter Alpha ["server_api_version", "status_code"] "Requests to the pods API.";
    Metrics "kubelet_pod_requests_watch_total" Counter Alpha ["server_api_version", "status_code"] "Watches of pods that ended.";
    Metrics "kubelet_pod_resize_duration_milliseconds" Histogram Alpha ["success"] "Time it took to put resources in force, in milliseconds.";
    Metrics "kubelet_pod_resources_endpoint_errors_get" Counter Alpha ["server_api_version"] "Failed requests for what one pod was given.";
    Metrics "kubelet_pod_resources_endpoint_requests_get" Counter Alpha ["server_api_version"] "Requests for what one pod was given.";
    Metrics "kubelet_pod_resources_endpoint_requests_get_allocatable" Counter Alpha ["server_api_version"] "Requests for what there is to give.";
    Metrics "kubelet_pod_resources_endpoint_requests_list" Counter Alpha ["server_api_version"] "Requests for what all pods were given.";
    Metrics "kubelet_pod_resources_endpoint_requests_total" Counter Alpha ["server_api_version"] "Requests to the pod resources API.";
    Metrics "kubelet_pod_start_duration_seconds" Histogram Alpha [] "Time from the first sight of a pod until it ran, in seconds.";
    Metrics "kubelet_pod_start_sli_duration_seconds" Histogram Alpha [] "Time from the creation of a pod until it ran, without pulls and init containers, in seconds.";
    Metrics "kubelet_pod_start_total_duration_seconds" Histogram Alpha [] "Time from the creation of a pod until it ran, in seconds.";
    Metrics "kubelet_pod_status_sync_duration_seconds" Histogram Alpha [] "Time from a change of a pod's status until the API had it, in seconds.";
    Metrics "kubelet_pod_watch_events_dropped_total" Counter Alpha [] "Changes of pods that slow watchers missed.";
    Metrics "kubelet_pod_worker_duration_seconds" Histogram Alpha ["operation_type"] "Time turns of pods' workers took, in seconds.";
    Metrics "kubelet_pod_worker_start_duration_seconds" Histogram Alpha [] "Time from the first sight of a pod until it had a worker, in seconds.";
    Metrics "kubelet_preemptions" Counter Alpha ["preemption_signal"] "Pods that made room for a critical one, by what was missing.";
    Metrics "kubelet_restarted_pods_total" Counter Alpha ["static"] "Pods that came back under their old identity.";
    Metrics "kubelet_run_podsandbox_duration_seconds" Histogram Alpha ["runtime_handler"] "Time it took to make sandboxes, in seconds.";
    Metrics "kubelet_run_podsandbox_errors_total" Counter Alpha ["runtime_handler"] "Sandboxes that could not be made.";
    Metrics "kubelet_running_containers" Gauge Alpha ["container_state"] "Containers by state.";
    Metrics "kubelet_running_pods" Gauge Alpha [] "Pods with a container that runs.";
    Metrics "kubelet_runtime_operations_duration_seconds" Histogram Alpha ["operation_type"] "Time calls to the runtime took, in seconds.";
    Metrics "kubelet_runtime_operations_errors_total" Counter Alpha ["operation_type"] "Calls to the runtime that failed.";
    Metrics "kubelet_runtime_operations_total" Counter Alpha ["operation_type"] "Calls to the runtime.";
    Metrics "kubelet_server_expiration_renew_errors" Counter Alpha [] "Attempts to renew the serving certificate that failed.";
    Metrics "kubelet_sleep_action_terminated_early_total" Counter Alpha [] "Hooks that slept and were woken too early.";
    Metrics "kubelet_started_containers_errors_total" Counter Alpha ["code", "container_type"] "Containers that could not be started.";
    Metrics "kubelet_started_containers_total" Counter Alpha ["container_type"] "Containers that were to be started.";
    Metrics "kubelet_started_pods_errors_total" Counter Alpha [] "Sandboxes that could not be started.";
    Metrics "kubelet_started_pods_total" Counter Alpha [] "Sandboxes that were started.";
    Metrics "kubelet_started_user_namespaced_pods_errors_total" Counter Alpha [] "Sandboxes with users of their own that could not be made.";
    Metrics "kubelet_started_user_namespaced_pods_total" Counter Alpha [] "Sandboxes with users of their own.";
    Metrics "kubelet_terminated_containers_total" Counter Alpha ["container_type", "exit_code", "reason"] "Containers that ended, by how they did.";
    Metrics "kubelet_topology_manager_admission_duration_ms" Histogram Alpha [] "Time it took to find a place for a pod, in milliseconds.";
    Metrics "kubelet_topology_manager_admission_errors_total" Counter Alpha [] "Pods that no place was found for.";
    Metrics "kubelet_topology_manager_admission_requests_total" Counter Alpha [] "Pods that a place was looked for.";
    Metrics "kubelet_volume_stats_available_bytes" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Bytes left on a volume.";
    Metrics "kubelet_volume_stats_capacity_bytes" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Size of a volume, in bytes.";
    Metrics "kubelet_volume_stats_inodes" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Inodes of a volume.";
    Metrics "kubelet_volume_stats_inodes_free" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Inodes left on a volume.";
    Metrics "kubelet_volume_stats_inodes_used" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Inodes in use on a volume.";
    Metrics "kubelet_volume_stats_used_bytes" Gauge Alpha ["namespace", "persistentvolumeclaim"] "Bytes in use on a volume.";
    Metrics "kubelet_websocket_streaming_requests_total" Counter Alpha ["subresource"] "Streams that came by WebSocket all the way.";
    Metrics "kubelet_working_pods" Gauge Alpha ["config", "lifecycle", "static"] "Pods that have a worker, by how far they are and who wants them.";
    Metrics "kubernetes_build_info" Gauge Beta ["build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version", "major", "minor", "platform"] "Always 1; the labels tell the version.";
    Metrics "kubernetes_feature_enabled" Gauge Beta ["name", "stage"] "1 for each feature that is on, 0 for each that is off.";
    Metrics "plugin_manager_total_plugins" Gauge Alpha ["socket_path", "state"] "Plugins that are there, and plugins that are registered.";
    Metrics "process_cpu_seconds_total" Counter Alpha [] "Processor time of this process, in seconds.";
    Metrics "process_max_fds" Gauge Alpha [] "File descriptors this process may have.";
    Metrics "process_network_receive_bytes_total" Counter Alpha [] "Bytes received in the network of this process.";
    Metrics "process_network_transmit_bytes_total" Counter Alpha [] "Bytes sent in the network of this process.";
    Metrics "process_open_fds" Gauge Alpha [] "File descriptors this process has.";
    Metrics "process_resident_memory_bytes" Gauge Alpha [] "Memory of this process, in bytes.";
    Metrics "process_start_time_seconds" Gauge Alpha [] "When this process started, in seconds since the epoch.";
    Metrics "process_virtual_memory_bytes" Gauge Alpha [] "Address space of this process, in bytes.";
    Metrics "process_virtual_memory_max_bytes" Gauge Alpha [] "Address space this process may have, in bytes.";
    Metrics "registered_metrics_total" Counter Beta ["deprecated_version", "stability_level"] "Families this agent knows, by stability.";
    Metrics "rest_client_rate_limiter_duration_seconds" Histogram Alpha ["host", "verb"] "Time requests to the API server waited for their rate, in seconds.";
    Metrics "rest_client_request_duration_seconds" Histogram Alpha ["host", "verb"] "Time the API server took to begin its answers, in seconds.";
    Metrics "rest_client_request_size_bytes" Histogram Alpha ["host", "verb"] "Sizes of requests to the API server, in bytes.";
    Metrics "rest_client_requests_total" Counter Alpha ["code", "host", "method"] "Requests to the API server, by answer.";
    Metrics "rest_client_response_size_bytes" Histogram Alpha ["host", "verb"] "Sizes of answers of the API server, in bytes.";
    Metrics "storage_operation_duration_seconds" Histogram Beta ["migrated", "operation_name", "status", "volume_plugin"] "Time operations on volumes took, in seconds.";
    Metrics "volume_manager_total_volumes" Gauge Alpha ["plugin_name", "state"] "Volumes that pods should have, and volumes that they have.";
    Metrics "volume_operation_total_seconds" Histogram Beta ["operation_name", "plugin_name"] "Time operations on volumes took from end to end, in seconds.";
    Metrics "workqueue_adds_total" Counter Beta ["name"] "Things that were put in a line.";
    Metrics "workqueue_depth" Gauge Beta ["name"] "Things in a line.";
    Metrics "workqueue_longest_running_processor_seconds" Gauge Beta ["name"] "How long the oldest work under way has taken, in seconds.";
    Metrics "workqueue_queue_duration_seconds" Histogram Beta ["name"] "Time things waited in a line, in seconds.";
    Metrics "workqueue_retries_total" Counter Beta ["name"] "Things that were put in a line again.";
    Metrics "workqueue_unfinished_work_seconds" Gauge Beta ["name"] "How long all work under way has taken, in seconds.";
    Metrics "workqueue_work_duration_seconds" Histogram Beta ["name"] "Time work on things from a line took, in seconds.";
    Resource "container_cpu_usage_seconds_total" Counter Stable ["container", "namespace", "pod"] "Processor time a container has used, in core seconds.";
    Resource "container_memory_working_set_bytes" Gauge Stable ["container", "namespace", "pod"] "Working set of a container, in bytes.";
    Resource "container_start_time_seconds" Gauge Stable ["container", "namespace", "pod"] "When a container started, in seconds since the epoch.";
    Resource "container_swap_limit_bytes" Gauge Alpha ["container", "namespace", "pod"] "Swap a container may use, in bytes.";
    Resource "container_swap_usage_bytes" Gauge Alpha ["container", "namespace", "pod"] "Swap a container uses, in bytes.";
    Resource "node_cpu_usage_seconds_total" Counter Stable [] "Processor time the node has used, in core seconds.";
    Resource "node_memory_working_set_bytes" Gauge Stable [] "Working set of the node, in bytes.";
    Resource "node_swap_usage_bytes" Gauge Alpha [] "Swap the node uses, in bytes.";
    Resource "pod_cpu_usage_seconds_total" Counter Stable ["namespace", "pod"] "Processor time a pod has used, in core seconds.";
    Resource "pod_memory_working_set_bytes" Gauge Stable ["namespace", "pod"] "Working set of a pod, in bytes.";
    Resource "pod_swap_usage_bytes" Gauge Alpha ["namespace", "pod"] "Swap a pod uses, in bytes.";
    Resource "resource_scrape_error" Gauge Stable [] "1 when the figures could not be read, else 0.";
    Probes "prober_probe_duration_seconds" Histogram Alpha ["container", "namespace", "pod", "probe_type"] "Time a probe took, in seconds.";
    Probes "prober_probe_total" Counter Beta ["container", "namespace", "pod", "pod_uid", "probe_type", "result"] "Probes of containers, by result.";
    Probes "process_start_time_seconds" Gauge Alpha [] "When this process started, in seconds since the epoch.";
    Slis "kubernetes_healthcheck" Gauge Stable ["name", "type"] "1 while a check passes, else 0.";
    Slis "kubernetes_healthchecks_total" Counter Stable ["name", "status", "type"] "Checks that were made, by outcome.";
    Slis "process_start_time_seconds" Gauge Alpha [] "When this process started, in seconds since the epoch.";
};

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::Endpoint::{Metrics, Probes, Resource, Slis};
    use super::*;

    #[test]
    fn every_family_is_upstreams_and_none_is_there_twice() {
        let upstream = include_str!("upstream.txt");
        for family in TABLE {
            let endpoint = match family.endpoint {
                Metrics => "metrics",
                Resource => "resource",
                Probes => "probes",
                Slis => "slis",
            };
            let start = format!("{endpoint} {} ", family.name);
            let line = upstream.lines().find(|line| line.starts_with(&start));
            let words: Vec<&str> = line.unwrap_or_else(|| panic!("{start}")).split(' ').collect();
            assert_eq!(words[2], family.kind.word(), "{start}");
            assert_eq!(words[3], family.stability.word().to_lowercase(), "{start}");
            let mut labels: Vec<&str> = words[4].split(',').filter(|it| *it != "-").collect();
            labels.sort_unstable();
            assert_eq!(labels, family.labels, "{start}");
            assert!(family.help.ends_with('.') && !family.help.contains('\n'));
        }
        // What upstream promises to keep is all here; where nobody measures it yet, nothing is
        // shown.
        for line in upstream.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let is_promised = ["stable", "beta"].contains(&words[3]);
            let is_here = TABLE.iter().any(|family| family.name == words[1]);
            assert!(is_here || !is_promised, "{line}");
        }
        for endpoint in [Metrics, Resource, Probes, Slis] {
            let names: Vec<&str> = shown_at(endpoint).map(|family| family.name).collect();
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(names, sorted, "in order, once each");
        }
    }
    /// Text of this workspace's crates but for this file, tests included.
    fn sources(directory: &Path, text: &mut String) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["tests", "main_tests", "target"].contains(&name.as_str()) {
                    sources(&path, text);
                }
            } else if name.ends_with(".rs") && !["table.rs", "tests.rs"].contains(&name.as_str()) {
                let file = fs::read_to_string(&path).unwrap();
                // What a module's own tests say is not said to anybody else.
                *text += file.split("#[cfg(test)]\nmod tests {").next().unwrap();
            }
        }
    }

    /// A family that is counted and not in the table would never be seen, and one in the table that
    /// nobody counts would promise too much.
    #[test]
    fn what_is_counted_anywhere_is_in_the_table_and_the_other_way_round() {
        let mut text = String::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        sources(&crates, &mut text);
        let is_counted = |name: &str| text.contains(&format!("\"{name}\""));
        let upstream = include_str!("upstream.txt").lines();
        for name in upstream.filter_map(|line| line.split(' ').nth(1)) {
            let is_shown = TABLE.iter().any(|family| family.name == name);
            assert_eq!(is_counted(name), is_shown, "{name} is counted, is shown");
        }
    }
}
