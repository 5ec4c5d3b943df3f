//! The shape of `KubeletConfiguration` v1beta1 as data: every field, its type, and its default.
//!
//! One table serves decoding, defaulting, the effective configuration and the flags, so that none
//! of them can forget a field. Defaults that depend on other fields or on feature gates are in
//! `defaults`; rules about values are in `config`.

/// The one API version that is understood.
pub(crate) const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// The one kind that is understood.
pub(crate) const KIND: &str = "KubeletConfiguration";

/// A kind of file: what it calls itself, and what may be in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Document {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) fields: &'static [Field],
}

/// The kubelet's own configuration.
pub(crate) const KUBELET: Document =
    Document { api_version: API_VERSION, kind: KIND, fields: FIELDS };

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Float,
    Text,
    /// A text that names a file; a relative one is meant from the directory of the file it stands
    /// in.
    Path,
    /// `1m30s`.
    Duration,
    /// `5s`, or a plain number of nanoseconds.
    DurationOrNanos,
    /// A Kubernetes quantity: a text such as `64Mi`, or a number.
    Quantity,
    List(&'static Kind),
    Map(&'static Kind),
    Object(&'static [Field]),
}

/// When a field counts as not given. Upstream's types differ in this, and users rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The zero value means "not given": `0`, `""`, `0s`.
    Plain,
    /// Only absence means "not given": a zero is a value.
    Pointer,
}

/// What a field becomes when it is not given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fallback {
    Nothing,
    Yes,
    No,
    Number(i64),
    Word(&'static str),
    Words(&'static [&'static str]),
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) presence: Presence,
    pub(crate) fallback: Fallback,
}

use Fallback::{No, Nothing, Number, Word, Words, Yes};
use Kind::{
    Bool, Duration, DurationOrNanos, Float, Int32, Int64, List, Map, Object, Path, Quantity, Text,
    Uint32,
};

pub(crate) const fn plain(name: &'static str, kind: Kind, fallback: Fallback) -> Field {
    Field { name, kind, presence: Presence::Plain, fallback }
}

pub(crate) const fn pointer(name: &'static str, kind: Kind, fallback: Fallback) -> Field {
    Field { name, kind, presence: Presence::Pointer, fallback }
}

/// The kind at a dotted path such as `logging.options.text.splitStream`.
pub(crate) fn kind_at(path: &str) -> Option<Kind> {
    let mut fields = FIELDS;
    let mut found = None;
    for name in path.split('.') {
        let field = fields.iter().find(|field| field.name == name)?;
        found = Some(field.kind);
        fields = if let Object(inner) = field.kind { inner } else { &[] };
    }
    found
}

const AUTHENTICATION: &[Field] = &[
    plain("x509", Object(&[plain("clientCAFile", Path, Nothing)]), Nothing),
    plain(
        "webhook",
        Object(&[pointer("enabled", Bool, Yes), plain("cacheTTL", Duration, Word("2m"))]),
        Nothing,
    ),
    plain("anonymous", Object(&[pointer("enabled", Bool, No)]), Nothing),
];

const AUTHORIZATION: &[Field] = &[
    plain("mode", Text, Word("Webhook")),
    plain(
        "webhook",
        Object(&[
            plain("cacheAuthorizedTTL", Duration, Word("5m")),
            plain("cacheUnauthorizedTTL", Duration, Word("30s")),
        ]),
        Nothing,
    ),
];

const MEMORY_SWAP: &[Field] = &[plain("swapBehavior", Text, Nothing)];

// The default depends on a feature gate: see `defaults`.
const CRASH_LOOP: &[Field] = &[pointer("maxContainerRestartPeriod", Duration, Nothing)];

const RESERVED_MEMORY: &[Field] =
    &[pointer("numaNode", Int32, Number(0)), pointer("limits", Map(&Quantity), Nothing)];

const SHUTDOWN_BY_PRIORITY: &[Field] = &[
    pointer("priority", Int32, Number(0)),
    pointer("shutdownGracePeriodSeconds", Int64, Number(0)),
];

const TAINT: &[Field] = &[
    pointer("key", Text, Word("")),
    plain("value", Text, Nothing),
    pointer("effect", Text, Word("")),
    plain("timeAdded", Text, Nothing),
];

const TRACING: &[Field] =
    &[pointer("endpoint", Text, Nothing), pointer("samplingRatePerMillion", Int32, Nothing)];

const USER_NAMESPACES: &[Field] = &[pointer("idsPerPod", Int64, Nothing)];

const LOG_OUTPUT: &[Field] =
    &[plain("splitStream", Bool, Nothing), pointer("infoBufferSize", Quantity, Word("0"))];

const LOGGING: &[Field] = &[
    plain("format", Text, Word("text")),
    plain("flushFrequency", DurationOrNanos, Word("5s")),
    pointer("verbosity", Uint32, Number(0)),
    plain(
        "vmodule",
        List(&Object(&[
            pointer("filePattern", Text, Word("")),
            pointer("verbosity", Uint32, Number(0)),
        ])),
        Nothing,
    ),
    plain(
        "options",
        Object(&[
            plain("text", Object(LOG_OUTPUT), Nothing),
            plain("json", Object(LOG_OUTPUT), Nothing),
        ]),
        Nothing,
    ),
];

/// The fields of `KubeletConfiguration` itself, in upstream's order, without `apiVersion` and
/// `kind`.
#[rustfmt::skip]
pub(crate) const FIELDS: &[Field] = &[
    pointer("enableServer", Bool, Yes),
    plain("staticPodPath", Path, Nothing),
    plain("podLogsDir", Path, Word("/var/log/pods")),
    plain("syncFrequency", Duration, Word("1m")),
    plain("fileCheckFrequency", Duration, Word("20s")),
    plain("httpCheckFrequency", Duration, Word("20s")),
    plain("staticPodURL", Text, Nothing),
    plain("staticPodURLHeader", Map(&List(&Text)), Nothing),
    plain("address", Text, Word("0.0.0.0")),
    plain("port", Int32, Number(10_250)),
    plain("readOnlyPort", Int32, Nothing),
    plain("tlsCertFile", Path, Nothing),
    plain("tlsPrivateKeyFile", Path, Nothing),
    plain("tlsCipherSuites", List(&Text), Nothing),
    plain("tlsCurvePreferences", List(&Int32), Nothing),
    plain("tlsMinVersion", Text, Nothing),
    plain("rotateCertificates", Bool, Nothing),
    plain("serverTLSBootstrap", Bool, Nothing),
    plain("authentication", Object(AUTHENTICATION), Nothing),
    plain("authorization", Object(AUTHORIZATION), Nothing),
    pointer("registryPullQPS", Int32, Number(5)),
    plain("registryBurst", Int32, Number(10)),
    plain("imagePullCredentialsVerificationPolicy", Text, Nothing),
    plain("preloadedImagesVerificationAllowlist", List(&Text), Nothing),
    pointer("eventRecordQPS", Int32, Number(50)),
    plain("eventBurst", Int32, Number(100)),
    pointer("enableDebuggingHandlers", Bool, Yes),
    plain("enableContentionProfiling", Bool, Nothing),
    pointer("healthzPort", Int32, Number(10_248)),
    plain("healthzBindAddress", Text, Word("127.0.0.1")),
    pointer("oomScoreAdj", Int32, Number(-999)),
    plain("clusterDomain", Text, Nothing),
    plain("clusterDNS", List(&Text), Nothing),
    plain("streamingConnectionIdleTimeout", Duration, Word("4h")),
    plain("nodeStatusUpdateFrequency", Duration, Word("10s")),
    plain("nodeStatusReportFrequency", Duration, Word("5m")),
    plain("nodeLeaseDurationSeconds", Int32, Number(40)),
    plain("imageMinimumGCAge", Duration, Word("2m")),
    plain("imageMaximumGCAge", Duration, Word("0s")),
    pointer("imageGCHighThresholdPercent", Int32, Number(85)),
    pointer("imageGCLowThresholdPercent", Int32, Number(80)),
    plain("volumeStatsAggPeriod", Duration, Word("1m")),
    plain("kubeletCgroups", Text, Nothing),
    plain("systemCgroups", Text, Nothing),
    plain("cgroupRoot", Text, Nothing),
    pointer("cgroupsPerQOS", Bool, Yes),
    plain("cgroupDriver", Text, Word("cgroupfs")),
    plain("cpuManagerPolicy", Text, Word("none")),
    pointer("singleProcessOOMKill", Bool, Nothing),
    plain("cpuManagerPolicyOptions", Map(&Text), Nothing),
    plain("cpuManagerReconcilePeriod", Duration, Word("10s")),
    plain("memoryManagerPolicy", Text, Word("None")),
    plain("topologyManagerPolicy", Text, Word("none")),
    plain("topologyManagerScope", Text, Word("container")),
    plain("topologyManagerPolicyOptions", Map(&Text), Nothing),
    plain("qosReserved", Map(&Text), Nothing),
    plain("runtimeRequestTimeout", Duration, Word("2m")),
    plain("hairpinMode", Text, Word("promiscuous-bridge")),
    plain("maxPods", Int32, Number(110)),
    plain("podCIDR", Text, Nothing),
    pointer("podPidsLimit", Int64, Number(-1)),
    pointer("resolvConf", Path, Word("/etc/resolv.conf")),
    plain("runOnce", Bool, Nothing),
    pointer("cpuCFSQuota", Bool, Yes),
    pointer("cpuCFSQuotaPeriod", Duration, Word("100ms")),
    pointer("nodeStatusMaxImages", Int32, Number(50)),
    plain("maxOpenFiles", Int64, Number(1_000_000)),
    plain("contentType", Text, Word("application/vnd.kubernetes.protobuf")),
    pointer("kubeAPIQPS", Int32, Number(50)),
    plain("kubeAPIBurst", Int32, Number(100)),
    pointer("serializeImagePulls", Bool, Yes),
    pointer("maxParallelImagePulls", Int32, Nothing),
    plain("evictionHard", Map(&Text), Nothing),
    plain("evictionSoft", Map(&Text), Nothing),
    plain("evictionSoftGracePeriod", Map(&Text), Nothing),
    plain("evictionPressureTransitionPeriod", Duration, Word("5m")),
    plain("evictionMaxPodGracePeriod", Int32, Nothing),
    plain("evictionMinimumReclaim", Map(&Text), Nothing),
    pointer("mergeDefaultEvictionSettings", Bool, No),
    plain("podsPerCore", Int32, Nothing),
    pointer("enableControllerAttachDetach", Bool, Yes),
    plain("protectKernelDefaults", Bool, Nothing),
    pointer("makeIPTablesUtilChains", Bool, Yes),
    pointer("iptablesMasqueradeBit", Int32, Number(14)),
    pointer("iptablesDropBit", Int32, Number(15)),
    plain("featureGates", Map(&Bool), Nothing),
    pointer("failSwapOn", Bool, Yes),
    plain("memorySwap", Object(MEMORY_SWAP), Nothing),
    plain("containerLogMaxSize", Text, Word("10Mi")),
    pointer("containerLogMaxFiles", Int32, Number(5)),
    pointer("containerLogMaxWorkers", Int32, Number(1)),
    pointer("containerLogMonitorInterval", Duration, Word("10s")),
    plain("configMapAndSecretChangeDetectionStrategy", Text, Word("Watch")),
    plain("systemReserved", Map(&Text), Nothing),
    plain("kubeReserved", Map(&Text), Nothing),
    plain("reservedSystemCPUs", Text, Nothing),
    plain("showHiddenMetricsForVersion", Text, Nothing),
    plain("systemReservedCgroup", Text, Nothing),
    plain("kubeReservedCgroup", Text, Nothing),
    pointer("enforceNodeAllocatable", List(&Text), Words(&["pods"])),
    plain("allowedUnsafeSysctls", List(&Text), Nothing),
    plain("defaultPodSysctls", Map(&Text), Nothing),
    plain("volumePluginDir", Path, Word("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")),
    plain("providerID", Text, Nothing),
    plain("kernelMemcgNotification", Bool, Nothing),
    plain("logging", Object(LOGGING), Nothing),
    pointer("enableSystemLogHandler", Bool, Yes),
    pointer("enableSystemLogQuery", Bool, No),
    plain("shutdownGracePeriod", Duration, Word("0s")),
    plain("shutdownGracePeriodCriticalPods", Duration, Word("0s")),
    plain("shutdownGracePeriodByPodPriority", List(&Object(SHUTDOWN_BY_PRIORITY)), Nothing),
    plain("crashLoopBackOff", Object(CRASH_LOOP), Nothing),
    plain("reservedMemory", List(&Object(RESERVED_MEMORY)), Nothing),
    pointer("enableProfilingHandler", Bool, Yes),
    pointer("enableDebugFlagsHandler", Bool, Yes),
    pointer("seccompDefault", Bool, No),
    pointer("memoryThrottlingFactor", Float, Nothing),
    plain("memoryReservationPolicy", Text, Word("None")),
    plain("registerWithTaints", List(&Object(TAINT)), Nothing),
    pointer("registerNode", Bool, Yes),
    pointer("tracing", Object(TRACING), Nothing),
    pointer("localStorageCapacityIsolation", Bool, Yes),
    plain("containerRuntimeEndpoint", Text, Word("unix:///run/containerd/containerd.sock")),
    plain("imageServiceEndpoint", Text, Nothing),
    pointer("failCgroupV1", Bool, Yes),
    pointer("userNamespaces", Object(USER_NAMESPACES), Nothing),
];
