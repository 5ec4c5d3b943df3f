//! Every flag of `kubelet` as data: name, kind of value, what it sets, topic, and one line of help.
//!
//! The parser, the help text, the override of configuration fields and the list of deprecated flags
//! all come from this table. Names and meanings are upstream's 131 flags on Linux; a test compares
//! the names with a list of their own. The few that are ours say so in their help.

/// How a flag's text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Text,
    Duration,
    Address,
    Quantity,
    /// `a,b`.
    List,
    /// `k=v,k=v`.
    Pairs,
    /// `k=v,k`: a missing value is an empty one.
    Labels,
    /// `signal<value,…`.
    Thresholds,
    /// `Gate=true,…`.
    Gates,
    /// `name:value,…`, a name may come again.
    Headers,
    /// `key=value:Effect,…`.
    Taints,
    /// `0:memory=1Gi,hugepages-2Mi=64Mi;1:…`.
    NumaMemory,
    /// `pattern=N,…`.
    Verbosities,
    /// Nothing, `true`, `raw`, or a version to report.
    Version,
}

/// What a flag sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The kubelet itself; the text is the default.
    Own(&'static str),
    /// A field of the configuration.
    Field(&'static str),
}

/// Whether a flag has a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Future {
    Stays,
    /// Better written in the configuration file.
    Deprecated,
}

/// The heading a flag is listed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Configuration,
    Cluster,
    Node,
    StaticPods,
    Runtime,
    Images,
    Server,
    Access,
    Cgroups,
    Assignment,
    Reservations,
    Eviction,
    Pods,
    Network,
    Volumes,
    Kernel,
    Logging,
    General,
}

impl Topic {
    /// All headings in the order of the help text.
    pub(crate) const ALL: [(Self, &'static str); 18] = [
        (Self::General, "General"),
        (Self::Configuration, "Configuration"),
        (Self::Cluster, "Cluster"),
        (Self::Node, "Node"),
        (Self::StaticPods, "Static pods"),
        (Self::Runtime, "Container runtime"),
        (Self::Images, "Images"),
        (Self::Pods, "Pods"),
        (Self::Server, "Server"),
        (Self::Access, "Certificates and access"),
        (Self::Cgroups, "Control groups"),
        (Self::Assignment, "CPU, memory and topology"),
        (Self::Reservations, "Reservations"),
        (Self::Eviction, "Eviction"),
        (Self::Network, "Network and DNS"),
        (Self::Volumes, "Volumes"),
        (Self::Kernel, "Kernel"),
        (Self::Logging, "Logging"),
    ];
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) target: Target,
    pub(crate) topic: Topic,
    pub(crate) future: Future,
    pub(crate) help: &'static str,
}

use Kind::{
    Address, Bool, Duration, Gates, Headers, Int32, Int64, Labels, List, NumaMemory, Pairs,
    Quantity, Taints, Text, Thresholds, Uint32, Verbosities, Version,
};
use Topic::{
    Access, Assignment, Cgroups, Cluster, Configuration, Eviction, General, Images, Kernel,
    Logging, Network, Node, Pods, Reservations, Runtime, Server, StaticPods, Volumes,
};

const fn own(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    topic: Topic,
    help: &'static str,
) -> Flag {
    Flag { name, kind, target: Target::Own(default), topic, future: Future::Stays, help }
}

const fn old(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    topic: Topic,
    help: &'static str,
) -> Flag {
    Flag { name, kind, target: Target::Own(default), topic, future: Future::Deprecated, help }
}

const fn field(
    name: &'static str,
    kind: Kind,
    path: &'static str,
    topic: Topic,
    help: &'static str,
) -> Flag {
    Flag { name, kind, target: Target::Field(path), topic, future: Future::Deprecated, help }
}

const fn lasting(
    name: &'static str,
    kind: Kind,
    path: &'static str,
    topic: Topic,
    help: &'static str,
) -> Flag {
    Flag { name, kind, target: Target::Field(path), topic, future: Future::Stays, help }
}

/// The flags, topic by topic.
#[rustfmt::skip]
pub(crate) static FLAGS: &[Flag] = &[
    own("help", Bool, "false", General, "Print this text."),
    own("version", Version, "false", General, "Print the version; =raw for details; =v1.37.1-mine to report that one."),
    own("root-dir", Text, "/var/lib/kubelet", General, "Directory for the state of pods and volumes."),
    own("lock-file", Text, "", General, "File that keeps a second kubelet from running."),
    own("shutdown-on-sigterm", Bool, "false", General, "Ferrolet's own: SIGTERM says that the machine goes down; pods end by shutdownGracePeriod or shutdownGracePeriodByPodPriority, then the agent leaves. For machines without logind, which is not asked then."),
    own("exit-on-lock-contention", Bool, "false", General, "Give way and exit when another process wants the lock file."),
    own("housekeeping-interval", Duration, "10s", General, "Pace of container statistics."),
    old("minimum-container-ttl-duration", Duration, "0s", General, "Keep a dead container at least this long."),
    old("maximum-dead-containers-per-container", Int32, "1", General, "Dead instances kept per container."),
    old("maximum-dead-containers", Int32, "-1", General, "Dead containers kept on the node; negative for no limit."),
    field("runonce", Bool, "runOnce", General, "Gone; true is refused."),

    own("config", Text, "", Configuration, "KubeletConfiguration file, YAML or JSON. Flags win over it."),
    own("config-dir", Text, "", Configuration, "Directory of *.conf drop-ins merged over the file in lexical order."),
    field("feature-gates", Gates, "featureGates", Configuration, "Optional behaviours, Name=true or Name=false."),

    own("kubeconfig", Text, "", Cluster, "How to reach the API server. Without it the node stands alone."),
    own("bootstrap-kubeconfig", Text, "", Cluster, "How to ask for a first client certificate when --kubeconfig is missing."),
    own("offline-start", Bool, "false", Cluster, "Ferrolet's own: after a reboot without the API server, start pods from a copy on disk, secrets included."),
    field("kube-api-content-type", Text, "contentType", Cluster, "Encoding of requests to the API server."),
    field("kube-api-qps", Int32, "kubeAPIQPS", Cluster, "Requests per second to the API server."),
    field("kube-api-burst", Int32, "kubeAPIBurst", Cluster, "Requests to the API server at once."),
    field("event-qps", Int32, "eventRecordQPS", Cluster, "Events per second; 0 for no limit."),
    field("event-burst", Int32, "eventBurst", Cluster, "Events at once."),

    own("hostname-override", Text, "", Node, "Name of the node instead of the host's name."),
    own("node-ip", Text, "", Node, "Address of the node, or two of different families with a comma."),
    own("node-labels", Labels, "", Node, "Labels for registration, key=value with commas."),
    own("cloud-provider", Text, "", Node, "Empty for none, external when a controller fills in cloud details."),
    lasting("provider-id", Text, "providerID", Node, "The cloud's name for this machine."),
    field("register-node", Bool, "registerNode", Node, "Create the node object in the cluster."),
    field("register-with-taints", Taints, "registerWithTaints", Node, "Taints for registration, key=value:Effect with commas."),
    field("node-status-update-frequency", Duration, "nodeStatusUpdateFrequency", Node, "How often the node's status is computed."),
    field("node-status-max-images", Int32, "nodeStatusMaxImages", Node, "Images listed in the node's status; -1 for all."),
    field("max-pods", Int32, "maxPods", Node, "Pods on this node at most."),
    field("pods-per-core", Int32, "podsPerCore", Node, "Pods per core at most; 0 for no such limit."),

    field("pod-manifest-path", Text, "staticPodPath", StaticPods, "Directory of static pod manifests, or one manifest."),
    field("file-check-frequency", Duration, "fileCheckFrequency", StaticPods, "How often that path is read again."),
    field("manifest-url", Text, "staticPodURL", StaticPods, "Address that answers with a manifest."),
    field("manifest-url-header", Headers, "staticPodURLHeader", StaticPods, "Headers for that request, name:value with commas."),
    field("http-check-frequency", Duration, "httpCheckFrequency", StaticPods, "How often that address is asked."),
    own("run-once-within", Duration, "0s", StaticPods, "Ferrolet's own: start the pods of files and of the URL, and exit when each runs or has ended, or after this time; 0 for a node that stays."),

    field("container-runtime-endpoint", Text, "containerRuntimeEndpoint", Runtime, "Unix socket of the container runtime."),
    field("image-service-endpoint", Text, "imageServiceEndpoint", Runtime, "Unix socket of the image service, if it is another one."),
    field("runtime-request-timeout", Duration, "runtimeRequestTimeout", Runtime, "Limit for a call of the runtime, pulls and streams apart."),
    own("runtime-cgroups", Text, "", Runtime, "Control group the runtime lives in."),
    field("container-log-max-size", Text, "containerLogMaxSize", Runtime, "Size at which a container's log file is rotated."),
    field("container-log-max-files", Int32, "containerLogMaxFiles", Runtime, "Log files kept per container."),

    field("registry-qps", Int32, "registryPullQPS", Images, "Pulls per second; 0 for no limit."),
    field("registry-burst", Int32, "registryBurst", Images, "Pulls at once, within the rate."),
    field("serialize-image-pulls", Bool, "serializeImagePulls", Images, "Pull one image at a time."),
    field("minimum-image-ttl-duration", Duration, "imageMinimumGCAge", Images, "Keep an unused image at least this long."),
    field("image-gc-high-threshold", Int32, "imageGCHighThresholdPercent", Images, "Disk use in percent at which unused images are removed."),
    field("image-gc-low-threshold", Int32, "imageGCLowThresholdPercent", Images, "Disk use in percent at which removal stops."),
    own("image-credential-provider-config", Text, "", Images, "Configuration of credential provider plugins: a file or a directory."),
    own("image-credential-provider-bin-dir", Text, "", Images, "Directory of credential provider plugins."),

    field("sync-frequency", Duration, "syncFrequency", Pods, "How often each pod is looked at although nothing happened."),
    field("pod-max-pids", Int64, "podPidsLimit", Pods, "Processes per pod at most; -1 for the node's limit."),
    own("seccomp-default", Bool, "false", Pods, "Give containers without a seccomp profile the runtime's default."),
    field("allowed-unsafe-sysctls", List, "allowedUnsafeSysctls", Pods, "Sysctls pods may set at their own risk; may end in *."),

    field("enable-server", Bool, "enableServer", Server, "Run the kubelet's servers."),
    field("address", Address, "address", Server, "Address of the servers."),
    field("port", Int32, "port", Server, "Port of the main server."),
    field("read-only-port", Int32, "readOnlyPort", Server, "Port of the server without authentication; 0 for none."),
    field("healthz-port", Int32, "healthzPort", Server, "Port of the health server; 0 for none."),
    field("healthz-bind-address", Address, "healthzBindAddress", Server, "Address of the health server."),
    own("page-address", Text, "", Server, "Ferrolet's own: serve the node's page here, on loopback, to anybody on this machine: 127.0.0.1:4194."),
    field("enable-debugging-handlers", Bool, "enableDebuggingHandlers", Server, "Serve exec, attach, port-forward and logs."),
    field("contention-profiling", Bool, "enableContentionProfiling", Server, "Profile lock contention."),
    field("streaming-connection-idle-timeout", Duration, "streamingConnectionIdleTimeout", Server, "Silence after which a stream is closed."),

    own("cert-dir", Text, "/var/lib/kubelet/pki", Access, "Directory of certificates we are given or make."),
    field("tls-cert-file", Text, "tlsCertFile", Access, "Serving certificate."),
    field("tls-private-key-file", Text, "tlsPrivateKeyFile", Access, "Key of the serving certificate."),
    field("tls-cipher-suites", List, "tlsCipherSuites", Access, "Cipher suites of TLS 1.2, with commas."),
    field("tls-min-version", Text, "tlsMinVersion", Access, "Oldest TLS version: VersionTLS10 to VersionTLS13."),
    field("rotate-certificates", Bool, "rotateCertificates", Access, "Renew the client certificate before it expires."),
    field("rotate-server-certificates", Bool, "serverTLSBootstrap", Access, "Get and renew the serving certificate from the cluster."),
    field("client-ca-file", Text, "authentication.x509.clientCAFile", Access, "Authorities whose client certificates are believed."),
    field("anonymous-auth", Bool, "authentication.anonymous.enabled", Access, "Let callers without proof in as system:anonymous."),
    field("authentication-token-webhook", Bool, "authentication.webhook.enabled", Access, "Have the API server review bearer tokens."),
    field("authentication-token-webhook-cache-ttl", Duration, "authentication.webhook.cacheTTL", Access, "How long a review is kept."),
    field("authorization-mode", Text, "authorization.mode", Access, "AlwaysAllow, or Webhook to ask the API server."),
    field("authorization-webhook-cache-authorized-ttl", Duration, "authorization.webhook.cacheAuthorizedTTL", Access, "How long a yes is kept."),
    field("authorization-webhook-cache-unauthorized-ttl", Duration, "authorization.webhook.cacheUnauthorizedTTL", Access, "How long a no is kept."),

    field("cgroup-root", Text, "cgroupRoot", Cgroups, "Group under which pods live."),
    field("cgroup-driver", Text, "cgroupDriver", Cgroups, "cgroupfs or systemd; the runtime's word counts more."),
    field("cgroups-per-qos", Bool, "cgroupsPerQOS", Cgroups, "One group per quality-of-service class and pod."),
    field("kubelet-cgroups", Text, "kubeletCgroups", Cgroups, "Group for the kubelet itself."),
    field("system-cgroups", Text, "systemCgroups", Cgroups, "Group for processes that are in none; needs --cgroup-root."),
    field("cpu-cfs-quota", Bool, "cpuCFSQuota", Cgroups, "Enforce CPU limits."),
    field("cpu-cfs-quota-period", Duration, "cpuCFSQuotaPeriod", Cgroups, "Period over which they are enforced, 1ms to 1s."),
    lasting("fail-cgroupv1", Bool, "failCgroupV1", Cgroups, "Refuse to run on a cgroup v1 host."),

    field("cpu-manager-policy", Text, "cpuManagerPolicy", Assignment, "none or static."),
    field("cpu-manager-policy-options", Pairs, "cpuManagerPolicyOptions", Assignment, "Fine tuning, key=value."),
    field("cpu-manager-reconcile-period", Duration, "cpuManagerReconcilePeriod", Assignment, "How often CPU assignments are enforced again."),
    field("memory-manager-policy", Text, "memoryManagerPolicy", Assignment, "None or Static."),
    field("topology-manager-policy", Text, "topologyManagerPolicy", Assignment, "none, best-effort, restricted or single-numa-node."),
    field("topology-manager-scope", Text, "topologyManagerScope", Assignment, "container or pod."),
    field("topology-manager-policy-options", Pairs, "topologyManagerPolicyOptions", Assignment, "Fine tuning, key=value."),
    field("qos-reserved", Pairs, "qosReserved", Assignment, "Requests kept from lower classes, memory=50%."),

    field("system-reserved", Pairs, "systemReserved", Reservations, "Kept for the system, cpu=200m,memory=500Mi,…"),
    field("kube-reserved", Pairs, "kubeReserved", Reservations, "Kept for Kubernetes' daemons, cpu=200m,memory=500Mi,…"),
    field("reserved-cpus", Text, "reservedSystemCPUs", Reservations, "CPUs kept for both, as a list such as 0-3,7."),
    field("reserved-memory", NumaMemory, "reservedMemory", Reservations, "Memory kept per NUMA node, 0:memory=1Gi,hugepages-2Mi=64Mi."),
    field("enforce-node-allocatable", List, "enforceNodeAllocatable", Reservations, "Where limits are enforced: none, pods, system-reserved, kube-reserved, …"),
    field("system-reserved-cgroup", Text, "systemReservedCgroup", Reservations, "Group of the system's daemons."),
    field("kube-reserved-cgroup", Text, "kubeReservedCgroup", Reservations, "Group of Kubernetes' daemons."),

    field("eviction-hard", Thresholds, "evictionHard", Eviction, "Put pods out at once, memory.available<1Gi,…"),
    field("eviction-soft", Thresholds, "evictionSoft", Eviction, "Put pods out after a grace period, memory.available<1.5Gi,…"),
    field("eviction-soft-grace-period", Pairs, "evictionSoftGracePeriod", Eviction, "Those periods, memory.available=1m30s,…"),
    field("eviction-minimum-reclaim", Pairs, "evictionMinimumReclaim", Eviction, "Take back at least this much, imagefs.available=2Gi,…"),
    field("eviction-max-pod-grace-period", Int32, "evictionMaxPodGracePeriod", Eviction, "Longest grace in seconds at a soft threshold; negative for the pod's own."),
    field("eviction-pressure-transition-period", Duration, "evictionPressureTransitionPeriod", Eviction, "How long a pressure condition outlives its cause."),
    field("kernel-memcg-notification", Bool, "kernelMemcgNotification", Eviction, "Be told about memory by the kernel instead of asking."),
    old("experimental-allocatable-ignore-eviction", Bool, "false", Eviction, "Leave hard thresholds out of the node's allocatable amounts."),

    field("cluster-dns", List, "clusterDNS", Network, "Name servers of the cluster, with commas."),
    field("cluster-domain", Text, "clusterDomain", Network, "Domain of the cluster."),
    field("resolv-conf", Text, "resolvConf", Network, "Resolver file that pods' settings start from."),
    field("pod-cidr", Text, "podCIDR", Network, "Addresses for pods when the node stands alone."),
    field("hairpin-mode", Text, "hairpinMode", Network, "promiscuous-bridge, hairpin-veth or none."),
    field("make-iptables-util-chains", Bool, "makeIPTablesUtilChains", Network, "Keep the kubelet's chains in iptables."),

    field("volume-plugin-dir", Text, "volumePluginDir", Volumes, "Directory of volume drivers of the old kind."),
    field("volume-stats-agg-period", Duration, "volumeStatsAggPeriod", Volumes, "How often disk use of volumes is measured; negative for never."),
    field("enable-controller-attach-detach", Bool, "enableControllerAttachDetach", Volumes, "Leave attaching to the cluster's controller."),
    field("local-storage-capacity-isolation", Bool, "localStorageCapacityIsolation", Volumes, "Limit the local storage of pods."),
    old("experimental-mounter-path", Text, "", Volumes, "Program that mounts instead of mount."),

    field("fail-swap-on", Bool, "failSwapOn", Kernel, "Refuse to start while swap is on."),
    field("protect-kernel-defaults", Bool, "protectKernelDefaults", Kernel, "Refuse to start when kernel settings are not ours, instead of changing them."),
    field("oom-score-adj", Int32, "oomScoreAdj", Kernel, "The kubelet's own out-of-memory score, -1000 to 1000."),
    field("max-open-files", Int64, "maxOpenFiles", Kernel, "Files the kubelet may open."),

    lasting("v", Uint32, "logging.verbosity", Logging, "How talkative the log is; also -v."),
    lasting("vmodule", Verbosities, "logging.vmodule", Logging, "Another verbosity for some files, pattern=N,… (text format)."),
    field("logging-format", Text, "logging.format", Logging, "text or json."),
    lasting("log-flush-frequency", Duration, "logging.flushFrequency", Logging, "How long a line may wait in a buffer."),
    lasting("log-text-split-stream", Bool, "logging.options.text.splitStream", Logging, "Errors to stderr, the rest to stdout (alpha)."),
    lasting("log-text-info-buffer-size", Quantity, "logging.options.text.infoBufferSize", Logging, "Buffer for the rest (alpha)."),
    lasting("log-json-split-stream", Bool, "logging.options.json.splitStream", Logging, "Errors to stderr, the rest to stdout (alpha)."),
    lasting("log-json-info-buffer-size", Quantity, "logging.options.json.infoBufferSize", Logging, "Buffer for the rest (alpha)."),
];
