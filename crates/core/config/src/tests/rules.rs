//! Every rule of the specification's table, by a value that breaks it.

use super::load_file;
use crate::{CgroupVersion, config};

/// Files with one fault each: the fields, the path that is blamed, a part of the message.
#[rustfmt::skip]
const BROKEN: &[(&str, &str, &str)] = &[
    ("podLogsDir: /var//log", "podLogsDir", "shortest form, /var/log"),
    ("podLogsDir: /var/lög", "podLogsDir", "ASCII"),
    ("syncFrequency: -1s", "syncFrequency", "negative"),
    ("address: here", "address", "not an IP address"),
    ("port: 65536", "port", "between 1 and 65535"),
    ("port: -1", "port", "between 1 and 65535"),
    ("readOnlyPort: 65536", "readOnlyPort", "between 0 and 65535"),
    ("tlsCipherSuites: [TLS_NONE]", "tlsCipherSuites", "not a known cipher suite"),
    ("tlsCurvePreferences: [1]", "tlsCurvePreferences", "must be one of"),
    ("tlsCurvePreferences: [29, 29]", "tlsCurvePreferences", "twice"),
    ("tlsMinVersion: VersionTLS9", "tlsMinVersion", "must be one of"),
    ("serverTLSBootstrap: true\nfeatureGates: {RotateKubeletServerCertificate: false}", "serverTLSBootstrap", "needs the feature gate"),
    ("registryPullQPS: -1", "registryPullQPS", "negative"),
    ("registryBurst: -1", "registryBurst", "negative"),
    ("imagePullCredentialsVerificationPolicy: Sometimes", "imagePullCredentialsVerificationPolicy", "must be one of"),
    ("imagePullCredentialsVerificationPolicy: NeverVerify\nfeatureGates: {KubeletEnsureSecretPulledImages: false}", "imagePullCredentialsVerificationPolicy", "needs the feature gate"),
    ("preloadedImagesVerificationAllowlist: [a/b]", "preloadedImagesVerificationAllowlist", "NeverVerifyAllowlistedImages"),
    ("imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['a/b:tag']", "preloadedImagesVerificationAllowlist", "neither tag nor digest"),
    ("imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['a*/b']", "preloadedImagesVerificationAllowlist", "only as the ending"),
    ("eventRecordQPS: -1", "eventRecordQPS", "negative"),
    ("eventBurst: -1", "eventBurst", "negative"),
    ("healthzPort: 65536", "healthzPort", "between 0 and 65535"),
    ("oomScoreAdj: -1001", "oomScoreAdj", "between -1000 and 1000"),
    ("oomScoreAdj: 1001", "oomScoreAdj", "between -1000 and 1000"),
    ("nodeLeaseDurationSeconds: -1", "nodeLeaseDurationSeconds", "1 or more"),
    ("imageMinimumGCAge: -1s", "imageMinimumGCAge", "negative"),
    ("imageMaximumGCAge: -1s", "imageMaximumGCAge", "negative"),
    ("imageMaximumGCAge: 1m", "imageMaximumGCAge", "more than imageMinimumGCAge"),
    ("imageGCHighThresholdPercent: 101", "imageGCHighThresholdPercent", "between 0 and 100"),
    ("imageGCLowThresholdPercent: -1", "imageGCLowThresholdPercent", "between 0 and 100"),
    ("imageGCLowThresholdPercent: 85", "imageGCLowThresholdPercent", "less than imageGCHighThresholdPercent"),
    ("systemCgroups: /system", "systemCgroups", "needs cgroupRoot"),
    ("cgroupDriver: openrc", "cgroupDriver", "must be one of"),
    ("cpuManagerPolicy: dynamic", "cpuManagerPolicy", "must be one of"),
    ("memoryManagerPolicy: none", "memoryManagerPolicy", "must be one of"),
    ("topologyManagerPolicy: all", "topologyManagerPolicy", "must be one of"),
    ("topologyManagerScope: node", "topologyManagerScope", "must be one of"),
    ("qosReserved: {memory: 101%}", "qosReserved.memory", "from 0% to 100%"),
    ("qosReserved: {cpu: 10%}", "qosReserved.cpu", "only memory"),
    ("runtimeRequestTimeout: -1s", "runtimeRequestTimeout", "negative"),
    ("hairpinMode: loop", "hairpinMode", "must be one of"),
    ("maxPods: -1", "maxPods", "negative"),
    ("runOnce: true", "runOnce", "must not be set"),
    ("cpuCFSQuotaPeriod: 2s", "cpuCFSQuotaPeriod", "between 1ms and 1s"),
    ("cpuCFSQuotaPeriod: 10us", "cpuCFSQuotaPeriod", "between 1ms and 1s"),
    ("nodeStatusMaxImages: -2", "nodeStatusMaxImages", "-1 or more"),
    ("maxOpenFiles: -1", "maxOpenFiles", "negative"),
    ("kubeAPIQPS: -1", "kubeAPIQPS", "negative"),
    ("kubeAPIBurst: -1", "kubeAPIBurst", "negative"),
    ("serializeImagePulls: true\nmaxParallelImagePulls: 2", "maxParallelImagePulls", "serializeImagePulls"),
    ("maxParallelImagePulls: 0", "maxParallelImagePulls", "1 or more"),
    ("evictionHard: {memory.avail: 1Gi}", "evictionHard.memory.avail", "unknown eviction signal; did you mean \"memory.available\"?"),
    ("evictionHard: {memory.available: '0'}", "evictionHard.memory.available", "more than zero"),
    ("evictionHard: {memory.available: 101%}", "evictionHard.memory.available", "between 0% and 100%"),
    ("evictionHard: {memory.available: much}", "evictionHard.memory.available", "not a quantity"),
    ("evictionSoft: {memory.available: 1Gi}", "evictionSoft.memory.available", "evictionSoftGracePeriod"),
    ("evictionSoftGracePeriod: {memory.available: -1s}", "evictionSoftGracePeriod.memory.available", "not negative"),
    ("evictionMinimumReclaim: {memory.available: -1Gi}", "evictionMinimumReclaim.memory.available", "negative"),
    ("evictionMinimumReclaim: {memory.available: 0%}", "evictionMinimumReclaim.memory.available", "more than 0%"),
    ("podsPerCore: -1", "podsPerCore", "negative"),
    ("iptablesMasqueradeBit: 32", "iptablesMasqueradeBit", "between 0 and 31"),
    ("iptablesDropBit: -1", "iptablesDropBit", "between 0 and 31"),
    ("featureGates: {Nonsense: true}", "featureGates.Nonsense", "unknown feature gate"),
    ("memorySwap: {swapBehavior: UnlimitedSwap}", "memorySwap.swapBehavior", "must be one of"),
    ("containerLogMaxSize: big", "containerLogMaxSize", "not a quantity"),
    ("containerLogMaxFiles: 1", "containerLogMaxFiles", "2 or more"),
    ("containerLogMaxWorkers: 0", "containerLogMaxWorkers", "1 or more"),
    ("containerLogMonitorInterval: 2s", "containerLogMonitorInterval", "3s or more"),
    ("configMapAndSecretChangeDetectionStrategy: Poll", "configMapAndSecretChangeDetectionStrategy", "must be one of"),
    ("systemReserved: {gpu: '1'}", "systemReserved.gpu", "only cpu, memory"),
    ("kubeReserved: {cpu: '-1'}", "kubeReserved.cpu", "negative"),
    ("reservedSystemCPUs: 3-1", "reservedSystemCPUs", "not a CPU list"),
    ("reservedSystemCPUs: '0'\nkubeReservedCgroup: /k", "reservedSystemCPUs", "together with"),
    ("showHiddenMetricsForVersion: '1.35'", "showHiddenMetricsForVersion", "1.36"),
    ("enforceNodeAllocatable: [none, pods]", "enforceNodeAllocatable", "stand alone"),
    ("enforceNodeAllocatable: [pods, pods]", "enforceNodeAllocatable", "twice"),
    ("enforceNodeAllocatable: [everything]", "enforceNodeAllocatable", "must be none, pods"),
    ("enforceNodeAllocatable: [system-reserved]", "enforceNodeAllocatable", "systemReservedCgroup"),
    ("enforceNodeAllocatable: [kube-reserved-compressible]", "enforceNodeAllocatable", "kubeReservedCgroup"),
    ("kubeReservedCgroup: /k\nenforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]", "enforceNodeAllocatable", "exclude each other"),
    ("cgroupsPerQOS: false", "enforceNodeAllocatable", "needs cgroupsPerQOS"),
    ("defaultPodSysctls: {net.core.somaxconn: '1'}", "defaultPodSysctls", "needs the feature gate"),
    ("featureGates: {DefaultPodSysctls: true}\ndefaultPodSysctls: {vm.swappiness: '1'}", "defaultPodSysctls.vm.swappiness", "per namespace"),
    ("featureGates: {DefaultPodSysctls: true}\ndefaultPodSysctls: {'net..x': '1'}", "defaultPodSysctls.net..x", "not a sysctl name"),
    ("featureGates: {DefaultPodSysctls: true}\ndefaultPodSysctls: {net.a.b: '1', net/a/b: '2'}", "defaultPodSysctls.net/a/b", "twice"),
    ("logging: {format: xml}", "logging.format", "must be one of"),
    ("logging: {flushFrequency: -1s}", "logging.flushFrequency", "negative"),
    ("logging: {verbosity: 4000000000}", "logging.verbosity", "between 0 and"),
    ("logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}", "logging.vmodule", "text format only"),
    ("logging: {vmodule: [{filePattern: '', verbosity: 1}]}", "logging.vmodule[0].filePattern", "must not be empty"),
    ("logging: {options: {json: {splitStream: true}}}", "logging.options.json.splitStream", "needs the feature gate"),
    ("logging: {options: {text: {infoBufferSize: 1Ki}}}", "logging.options.text.infoBufferSize", "needs the feature gate"),
    ("enableSystemLogQuery: true\nenableSystemLogHandler: false", "enableSystemLogQuery", "needs enableSystemLogHandler"),
    ("shutdownGracePeriod: 100ms", "shutdownGracePeriod", "1s or more"),
    ("shutdownGracePeriod: 1s\nshutdownGracePeriodCriticalPods: 2s", "shutdownGracePeriodCriticalPods", "more than shutdownGracePeriod"),
    ("shutdownGracePeriod: 9s\nfeatureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}", "shutdownGracePeriod", "needs the feature gate"),
    ("shutdownGracePeriod: 9s\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 1}]", "shutdownGracePeriodByPodPriority", "together with"),
    ("featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 1}]", "shutdownGracePeriodByPodPriority", "needs the feature gate"),
    ("crashLoopBackOff: {maxContainerRestartPeriod: 301s}", "crashLoopBackOff.maxContainerRestartPeriod", "between 1s and 300s"),
    ("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}", "crashLoopBackOff.maxContainerRestartPeriod", "needs the feature gate"),
    ("reservedMemory: [{numaNode: 0, limits: {cpu: '1'}}]", "reservedMemory[0].limits.cpu", "only memory and hugepages"),
    ("reservedMemory: [{numaNode: 0, limits: {memory: '0'}}]", "reservedMemory[0].limits.memory", "not be zero"),
    ("reservedMemory: [{numaNode: 0, limits: {memory: 1}}, {numaNode: 0, limits: {memory: 2}}]", "reservedMemory[1].limits.memory", "twice"),
    ("memoryThrottlingFactor: 1.5", "memoryThrottlingFactor", "more than 0 and at most 1"),
    ("memoryThrottlingFactor: 0.5\nfeatureGates: {MemoryQoS: false}", "memoryThrottlingFactor", "needs the feature gate"),
    ("memoryReservationPolicy: TieredReservation\nfeatureGates: {MemoryQoS: false}", "memoryReservationPolicy", "needs the feature gate"),
    ("memoryReservationPolicy: All", "memoryReservationPolicy", "must be one of"),
    ("registerWithTaints: [{key: '-', effect: NoSchedule}]", "registerWithTaints[0].key", "not a valid taint key"),
    ("registerWithTaints: [{key: a, value: '-', effect: NoSchedule}]", "registerWithTaints[0].value", "not a valid taint value"),
    ("registerWithTaints: [{key: a, effect: Never}]", "registerWithTaints[0].effect", "must be NoSchedule"),
    ("registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: '2020-01-01T00:00:00Z'}]", "registerWithTaints[0].timeAdded", "must not be set"),
    ("tracing: {endpoint: 'http://x'}", "tracing.endpoint", "must have no scheme"),
    ("tracing: {samplingRatePerMillion: 1000001}", "tracing.samplingRatePerMillion", "between 0 and 1000000"),
    ("containerRuntimeEndpoint: tcp://127.0.0.1:1", "containerRuntimeEndpoint", "unix socket"),
    ("imageServiceEndpoint: unix://relative", "imageServiceEndpoint", "absolute path"),
    ("userNamespaces: {idsPerPod: 1000}", "userNamespaces.idsPerPod", "multiple of 65536"),
    ("userNamespaces: {idsPerPod: 4295032832}", "userNamespaces.idsPerPod", "more than 4294967295"),
    ("authorization: {mode: RBAC}", "authorization.mode", "must be one of"),
];

#[test]
fn each_broken_rule_is_reported_with_its_field() {
    for (fields, path, message) in BROKEN {
        let error = load_file(fields).expect_err(fields);
        let found: Vec<String> = error.faults.iter().map(ToString::to_string).collect();
        assert_eq!(error.faults.len(), 1, "{fields}: {found:?}");
        assert_eq!(error.faults[0].path, *path, "{fields}: {found:?}");
        assert!(error.faults[0].message.contains(message), "{fields}: {found:?}");
    }
}

#[test]
fn all_broken_rules_are_reported_at_once() {
    let error = load_file("port: -1\nmaxPods: -1\nhairpinMode: x\nrunOnce: true").unwrap_err();
    assert_eq!(error.faults.len(), 4, "{error}");
}

/// Values at the edge of the rules, all of which are fine.
#[test]
fn what_is_just_within_the_rules_is_accepted() {
    for fields in [
        "cpuCFSQuotaPeriod: 1s",
        "memoryThrottlingFactor: 0.9\nfeatureGates: {MemoryQoS: false}",
        "crashLoopBackOff: {maxContainerRestartPeriod: 1s}",
        "enforceNodeAllocatable: [none]\ncgroupsPerQOS: false",
        "kubeReservedCgroup: /k\nenforceNodeAllocatable: [pods, kube-reserved]",
        "evictionSoft: {memory.available: 10%}\nevictionSoftGracePeriod: {memory.available: 0s}",
        "shutdownGracePeriod: 1s\nshutdownGracePeriodCriticalPods: 1s",
        "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 64Mi}}]",
        "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['r.io:5000/a/*', docker.io/library/busybox]",
        "featureGates: {DefaultPodSysctls: true}\ndefaultPodSysctls: {net.core.somaxconn: '1'}",
        "logging: {format: json}",
        "tracing: {endpoint: 'localhost:4317', samplingRatePerMillion: 100}",
        "userNamespaces: {idsPerPod: 131072}",
        "registerWithTaints: [{key: example.com/a, effect: NoExecute}]",
        "showHiddenMetricsForVersion: '1.36'",
        "reservedSystemCPUs: 0-3,7",
    ] {
        load_file(fields).unwrap_or_else(|error| panic!("{fields}: {error}"));
    }
}

#[test]
fn sentinels_become_options() {
    let config = load_file(
        "registryPullQPS: 0\neventRecordQPS: 0\nhealthzPort: 0\nnodeStatusMaxImages: -1\ncpuCFSQuota: false\n\
         maxParallelImagePulls: 3\nvolumeStatsAggPeriod: -1s\nevictionMaxPodGracePeriod: -1\ncgroupRoot: /pods\n\
         containerLogMaxSize: '-1'",
    )
    .unwrap()
    .config;
    assert_eq!(config.images.pulls_per_second, None);
    assert_eq!(config.events.per_second, None);
    assert_eq!(config.container_logs.max_size, None);
    assert_eq!(config.server.healthz_port, None);
    assert_eq!(config.node.status_max_images, None);
    assert_eq!(config.cgroups.cpu_quota_period, None);
    assert_eq!(config.cgroups.pod_pids_limit, None);
    assert_eq!(config.volumes.stats_period, None);
    assert_eq!(config.eviction.max_pod_grace_period, None);
    assert_eq!(config.cgroups.root, "/pods");
    assert_eq!(config.images.concurrency, config::PullConcurrency::AtMost(3.try_into().unwrap()));
}

#[test]
fn the_hosts_control_groups_are_judged_apart() {
    let config = load_file("singleProcessOOMKill: false").unwrap().config;
    assert_eq!(config.check_host(CgroupVersion::V2), Ok(()));
    assert_eq!(config.check_host(CgroupVersion::V1).unwrap_err().len(), 2);
}
