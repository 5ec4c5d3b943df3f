"""Random KubeletConfigurations, answered by upstream's own decoder, defaults and validation, recorded compactly.

    python3 gen.py SEED N ORACLE > ../recorded/config-validate.jsonl

ORACLE is the oracle program (kind "validate"). Each line is [given fields, accepted, effective fields that differ from
those of an empty file]. The test is crates/core/config/src/tests/oracle.rs; it needs neither Python nor Go.
"""
import json, random, subprocess, sys

R = random.Random(int(sys.argv[1]))
N = int(sys.argv[2])
ORACLE = sys.argv[3]
# The machine that answers may have cgroup v1, which is refused by default.
HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failCgroupV1": False}

D = ["0s", "1s", "10s", "3s", "1m30s", "2h", "-1s", "300s", "301s", "100ms", "999ms", "2s"]
I = [-1, 0, 1, 2, 5, 50, 99, 100, 101, 1000, 65535, 65536, -1000, -1001, 1001, 31, 32]
B = [True, False]
T = ["", "none", "static", "None", "Static", "cgroupfs", "systemd", "container", "pod", "best-effort", "restricted",
     "single-numa-node", "nonsense"]
Q = ["100m", "1", "1Gi", "0", "-1", "50%", "x", "500Mi"]


def amounts():
    return {R.choice(["cpu", "memory", "ephemeral-storage", "pid", "pods", "nonsense"]): R.choice(["100m", "1Gi", "0", "-1", "x", "10"])
            for _ in range(R.randint(1, 2))}


def thresholds(values):
    names = ["memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "pid.available", "nonsense.available"]
    return {R.choice(names): R.choice(values) for _ in range(R.randint(1, 2))}


FIELDS = {
    "enableServer": B, "port": I, "readOnlyPort": I, "healthzPort": I, "tlsMinVersion": ["", "VersionTLS12", "VersionTLS13", "VersionTLS10", "TLS12"],
    "tlsCipherSuites": [[], ["TLS_AES_128_GCM_SHA256"], ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], ["NONSENSE"]],
    "rotateCertificates": B, "serverTLSBootstrap": B,
    "authentication": [{"anonymous": {"enabled": True}}, {"webhook": {"enabled": False, "cacheTTL": "5s"}}, {"x509": {"clientCAFile": "/ca"}}],
    "authorization": [{"mode": "AlwaysAllow"}, {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "1s"}}],
    "registryPullQPS": I, "registryBurst": I, "eventRecordQPS": I, "eventBurst": I, "enableDebuggingHandlers": B,
    "enableContentionProfiling": B, "oomScoreAdj": I, "clusterDomain": ["", "cluster.local"], "clusterDNS": [[], ["10.0.0.10"]],
    "streamingConnectionIdleTimeout": ["0s", "1h"], "nodeStatusUpdateFrequency": ["4s", "10s", "1m"],
    "nodeStatusReportFrequency": ["4s", "10m"], "nodeLeaseDurationSeconds": I,
    "imageMinimumGCAge": ["0s", "1s", "5m"], "imageMaximumGCAge": ["0s", "1s", "10m", "1m"],
    "imageGCHighThresholdPercent": I, "imageGCLowThresholdPercent": I, "volumeStatsAggPeriod": ["1m", "10s", "-1s"],
    "kubeletCgroups": ["", "/kubelet"], "systemCgroups": ["", "/system"], "cgroupRoot": ["", "/", "/pods"], "cgroupsPerQOS": B,
    "cgroupDriver": ["cgroupfs", "systemd"],
    "cpuManagerReconcilePeriod": ["5s", "10s"],
    "topologyManagerPolicy": ["none", "best-effort", "restricted", "single-numa-node", "nonsense"],
    "topologyManagerScope": ["container", "pod", "nonsense"],
    "runtimeRequestTimeout": ["1s", "2m"], "hairpinMode": ["none", "hairpin-veth", "promiscuous-bridge", "nonsense"],
    "maxPods": I, "podCIDR": ["", "10.0.0.0/24"], "podPidsLimit": I, "resolvConf": ["/etc/r", ""], "cpuCFSQuota": B,
    "cpuCFSQuotaPeriod": ["1ms", "100ms", "1s", "2s", "999us"], "nodeStatusMaxImages": I, "maxOpenFiles": I,
    "kubeAPIQPS": I, "kubeAPIBurst": I, "serializeImagePulls": B, "maxParallelImagePulls": I,
    "evictionSoft": lambda: thresholds(["100Mi", "10%", "0", "-1", "101%", "x"]),
    "evictionSoftGracePeriod": lambda: thresholds(["1m", "0s", "-1s", "x"]),
    "evictionPressureTransitionPeriod": ["5m", "0s"], "evictionMaxPodGracePeriod": I,
    "evictionMinimumReclaim": lambda: thresholds(["100Mi", "10%", "0", "-1", "x"]),
    "podsPerCore": I, "enableControllerAttachDetach": B, "protectKernelDefaults": B, "makeIPTablesUtilChains": B,
    "iptablesMasqueradeBit": I, "iptablesDropBit": I, "failSwapOn": B,
    "memorySwap": [{}, {"swapBehavior": "NoSwap"}, {"swapBehavior": "LimitedSwap"}, {"swapBehavior": "nonsense"}],
    "containerLogMaxSize": ["10Mi", "1Gi", "0"], "containerLogMaxFiles": I, "containerLogMaxWorkers": I, "containerLogMonitorInterval": D,
    "systemReserved": amounts, "kubeReserved": amounts, "reservedSystemCPUs": ["", "0", "0-3", "x", "3-1"],
    "systemReservedCgroup": ["", "/system"], "kubeReservedCgroup": ["", "/kube"],
    "enforceNodeAllocatable": [[], ["pods"], ["none"], ["pods", "none"], ["pods", "system-reserved"], ["pods", "kube-reserved"],
                               ["pods", "pods"], ["system-reserved", "system-reserved-compressible"], ["kube-reserved-compressible"], ["x"]],
    "allowedUnsafeSysctls": [[], ["net.core.*"]], "volumePluginDir": ["/plugins"], "providerID": ["", "aws://1"],
    "kernelMemcgNotification": B, "enableSystemLogHandler": B, "enableSystemLogQuery": B,
    "shutdownGracePeriod": ["0s", "1s", "30s", "500ms", "-1s"], "shutdownGracePeriodCriticalPods": ["0s", "1s", "10s", "60s", "500ms"],
    "shutdownGracePeriodByPodPriority": [[], [{"priority": 0, "shutdownGracePeriodSeconds": 5}], [{"priority": 1, "shutdownGracePeriodSeconds": 0}]],
    "crashLoopBackOff": [{}, {"maxContainerRestartPeriod": "1s"}, {"maxContainerRestartPeriod": "300s"},
                         {"maxContainerRestartPeriod": "301s"}, {"maxContainerRestartPeriod": "0s"}],
    "reservedMemory": [[], [{"numaNode": 0, "limits": {"memory": "1Gi"}}], [{"numaNode": 0, "limits": {"memory": "0"}}],
                       [{"numaNode": 0, "limits": {"cpu": "1"}}],
                       [{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 0, "limits": {"memory": "1Gi"}}]],
    "enableProfilingHandler": B, "enableDebugFlagsHandler": B, "seccompDefault": B,
    "memoryThrottlingFactor": [0.0, 0.5, 0.9, 1.0, 1.5, -0.1],
    "memoryReservationPolicy": ["None", "TieredReservation", "nonsense"],
    "registerWithTaints": [[], [{"key": "a", "value": "b", "effect": "NoSchedule"}], [{"key": "", "effect": "NoSchedule"}],
                           [{"key": "a", "effect": "nonsense"}], [{"key": "a b", "effect": "NoExecute"}]],
    "registerNode": B, "localStorageCapacityIsolation": B, "containerRuntimeEndpoint": ["unix:///run/c.sock"],
    "tracing": [{"endpoint": "localhost:4317"}, {"samplingRatePerMillion": 1000001}, {"samplingRatePerMillion": -1}, {"samplingRatePerMillion": 5}],
    "imagePullCredentialsVerificationPolicy": ["NeverVerify", "AlwaysVerify", "NeverVerifyAllowlistedImages", "nonsense"],
    "preloadedImagesVerificationAllowlist": [[], ["docker.io/a"], ["docker.io/*"], ["docker.io/a:1"], ["*"], ["a/b*"]],
    "userNamespaces": [{"idsPerPod": 65536}, {"idsPerPod": 131072}, {"idsPerPod": 65537}, {"idsPerPod": 0}],
    "podLogsDir": ["/var/log/pods", "relative", "/a/../b", "/ä", "/a/"], "showHiddenMetricsForVersion": ["", "1.36", "1.35", "x"],
    "staticPodPath": ["", "/manifests"], "syncFrequency": ["1s", "2m"],
    "logging": [{"format": "json"}, {"verbosity": 4}, {"format": "nonsense"}, {"flushFrequency": "9s"}, {"format": "json", "vmodule": [{"filePattern": "a", "verbosity": 2}]}],
    "featureGates": [{"EventedPLEG": True}, {"NodeSwap": False}, {"NodeSwap": True}, {"Nonsense": True}, {"AllAlpha": False},
                     {"GracefulNodeShutdown": False}, {"MemoryQoS": False}, {"CustomCPUCFSQuotaPeriod": False},
                     {"RotateKubeletServerCertificate": False}, {"PodLevelResources": False}],
}


def one():
    out = {}
    for name in R.sample(sorted(FIELDS), R.choice([1, 1, 2, 2, 3, 4, 6])):
        values = FIELDS[name]
        out[name] = values() if callable(values) else R.choice(values)
    return out


def ask(all_given):
    lines = "".join(json.dumps({"Kind": "validate", "In": json.dumps({**HEAD, **given})}) + "\n" for given in all_given)
    told = subprocess.run([ORACLE], input=lines, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in told.splitlines()]


given = [{}] + [one() for _ in range(N)]
answers = ask(given)
empty = answers[0]["out"]["config"]
for fields, answer in zip(given, answers):
    out = answer.get("out") or {}
    if "panic" in answer.get("error", ""):
        continue
    accepted = not any(it in out for it in ("decode", "invalid", "gates")) and "error" not in answer
    diff = {}
    if accepted:
        config = out["config"]
        diff = {k: config.get(k) for k in sorted({*config, *empty}) if config.get(k) != empty.get(k) and k != "evictionHard"}
    print(json.dumps([fields, accepted, diff], separators=(",", ":"), sort_keys=True, ensure_ascii=False))
