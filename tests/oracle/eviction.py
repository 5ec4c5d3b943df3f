"""Records what upstream's kubelet answers to invented questions about eviction and pre-emption.

    go build -o /tmp/oracle .  &&  python3 eviction.py /tmp/oracle

writes recorded/{thresholds,evict,preempt}.jsonl.gz: a question and its answers on each line. Where
upstream's answer depends on the order of a map, the same question is asked several times and every
answer is kept. The tests that compare are in crates/engine/eviction and crates/core/resources; they
need neither Go nor Python.
"""
import gzip, json, random, re, subprocess, sys

MI, GI = 1 << 20, 1 << 30
SIGNALS = ["memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available"]


def ask(oracle, kind, questions):
    text = "".join(json.dumps({"Kind": kind, "In": q}) + "\n" for q in questions)
    done = subprocess.run([oracle], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def thresholds(r):
    """Maps of thresholds, most of them right."""
    good = ["100Mi", "5%", "10%", "1Gi", "500", "12.5%", "0%", "100%"]
    bad = ["0", "150%", "-1Mi", "-5%", "abc", "", "1e3", "5 %", "%", "0.0%"]
    def value():
        return r.choice(good) if r.random() < .93 else r.choice(bad)
    names = SIGNALS + ["containerfs.available"] + (["bogus.available"] if r.random() < .05 else [])
    hard = {n: value() for n in names if r.random() < .3}
    soft = {n: value() for n in names if r.random() < .15}
    grace = {n: r.choice(["30s", "1m", "0s"]) if r.random() < .95 else r.choice(["-1s", "x", ""]) for n in soft if r.random() < .97}
    reclaim = {n: value() for n in names if r.random() < .1}
    return {"Allocatable": r.choice([[], ["pods"]]), "Hard": hard, "Soft": soft, "Grace": grace, "Reclaim": reclaim}


def pod(r, n, sizes):
    name = "p%d" % n
    containers = []
    for i in range(r.choice([1, 1, 2])):
        requests, limits = {}, {}
        for resource, values in sizes:
            if r.random() < .5:
                requests[resource] = r.choice(values)
                # As the API defaults and checks them: a limit is no less than its request.
                if r.random() < .4:
                    limits[resource] = requests[resource]
        resources = {k: v for k, v in (("requests", requests), ("limits", limits)) if v}
        containers.append({"name": "c%d" % i, "resources": resources})
    p = {"metadata": {"name": name, "uid": name, "namespace": "d"}, "spec": {"containers": containers}}
    if r.random() < .4:
        p["spec"]["priority"] = r.choice([0, 10, 1000, -5, 2000000000, 2000001000])
    return p


def evict(r):
    sizes = [("memory", ["64Mi", "512Mi", "1Gi"]), ("ephemeral-storage", ["1Gi", "500Mi"]), ("cpu", ["100m"])]
    pods = [pod(r, n, sizes) for n in range(r.randint(1, 4))]
    for p in pods:
        if r.random() < .3:
            p["spec"]["terminationGracePeriodSeconds"] = r.choice([1, 10, 90])
        if r.random() < .3:
            p["spec"]["volumes"] = [r.choice([{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {"medium": "Memory"}}, {"name": "v", "configMap": {"name": "x"}}])]
        if r.random() < .1:
            p["spec"]["resources"] = {"requests": {"memory": r.choice(["100Mi", "2Gi"])}}
    misses = r.random() < .1
    disks = r.choice([(False, False), (True, False), (True, True)])
    hard = {k: v for k, v in (("memory.available", "200Mi"), ("nodefs.available", "10%"), ("nodefs.inodesFree", "5%"), ("imagefs.available", "15%"), ("imagefs.inodesFree", "5%"), ("pid.available", "10%")) if r.random() < .4}
    soft = {k: v for k, v in (("memory.available", "500Mi"), ("nodefs.available", "20%"), ("pid.available", "50%")) if r.random() < .3}
    reclaim = {k: "200Mi" for k in ("memory.available", "nodefs.available") if r.random() < .3 and (k in hard or k in soft)}
    healthy_first = True
    t, steps = 0, []
    for i in range(r.randint(1, 5)):
        after = r.choice([5, 10, 31, 61])
        t += after
        at = "2026-01-01T00:%02d:%02dZ" % (t // 60, t % 60)
        left = lambda: r.choice([50, 50, 150, 300, 650, 4000]) * MI
        def fs(healthy):
            gi = 50 if healthy else r.choice([1, 6, 12, 18, 50])
            return {"time": at, "availableBytes": gi * GI, "capacityBytes": 100 * GI, "inodesFree": 900000 if healthy else r.choice([1000, 60000, 900000]), "inodes": 1000000}
        stats = []
        for p in pods:
            if misses and r.random() < .3:
                continue
            cs = [{"name": c["name"], "startTime": None, "memory": {"time": at, "workingSetBytes": r.randrange(250) * 8 * MI}, "rootfs": {"usedBytes": r.randrange(250) * 16 * MI, "inodesUsed": r.randrange(250)}, "logs": {"usedBytes": r.randrange(9) * 100 * MI, "inodesUsed": 1}} for c in p["spec"]["containers"]]
            s = {"podRef": {"name": p["metadata"]["name"], "namespace": "d", "uid": p["metadata"]["uid"]}, "startTime": None, "memory": {"time": at, "workingSetBytes": sum(c["memory"]["workingSetBytes"] for c in cs)}, "containers": cs, "process_stats": {"process_count": r.randrange(1, 500)}}
            if "volumes" in p["spec"]:
                s["volume"] = [{"name": "v", "usedBytes": r.randrange(250) * 16 * MI, "inodesUsed": r.randrange(250)}]
            stats.append(s)
        available, pods_left = left(), left()
        # One disk has one figure. The very first look of upstream's does not know containerfs yet.
        node = fs(i == 0)
        image = node if not disks[0] else fs(i == 0)
        container = node if disks[1] else image
        steps.append({"AfterSeconds": after, "Summary": {"node": {"nodeName": "n", "startTime": None, "memory": {"time": at, "availableBytes": available, "workingSetBytes": 8 * GI - available, "usageBytes": 8 * GI - available}, "systemContainers": [{"name": "pods", "startTime": None, "memory": {"time": at, "availableBytes": pods_left, "workingSetBytes": 6 * GI - pods_left, "usageBytes": 6 * GI - pods_left}}], "fs": node, "runtime": {"imageFs": image, "containerFs": container}, "rlimit": {"time": at, "maxpid": 32768, "curproc": r.choice([100, 20000, 32000])}}, "pods": stats}})
    return {"Thresholds": {"Allocatable": r.choice([[], ["pods"]]), "Hard": hard, "Soft": soft, "Grace": {k: r.choice(["10s", "60s"]) for k in soft}, "Reclaim": reclaim}, "TransitionSecond": r.choice([30, 300]), "MaxGrace": r.choice([0, 5, 60]), "Disks": {"Images": disks[0], "Containers": disks[1]}, "LocalStorage": False, "Pods": pods, "Steps": steps}


def told(step):
    """What one look of upstream's came to, without what follows from the rest."""
    events = step["events"] or []
    killed = []
    for k in step["killed"] or []:
        status = k["status"]
        assert status["phase"] == "Failed" and status["reason"] == "Evicted"
        assert [c["message"] for c in status["conditions"]] == [status["message"]]
        event = [e for e in events if e.startswith("Warning Evicted " + status["message"])][0]
        killed.append({"pod": k["pod"], "grace": k["grace"], "message": status["message"], "annotations": event[len("Warning Evicted " + status["message"]):].strip()})
    message = step["admitBestEffort"]["Message"]
    message = re.sub(r"\[(.*)\]", lambda m: "[%s]" % " ".join(sorted(m.group(1).split())), message)
    return {"killed": killed, "gc": step["gc"] or [], "met": [e.split("reclaim ")[1] for e in events if "EvictionThresholdMet" in e], "memory": step["memory"], "disk": step["disk"], "pid": step["pid"], "admit": message}


def preempt(r):
    sizes = [("memory", ["64Mi", "512Mi", "1Gi", "2Gi"]), ("cpu", ["100m", "500m", "1", "2"])]
    p = pod(r, 0, sizes)
    p["spec"]["priority"] = r.choice([2000001000, 2000000000])
    others = [pod(r, n + 1, sizes) for n in range(r.randint(1, 8))]
    missing = []
    for k in r.sample(["cpu", "memory", "pods"], r.randint(1, 2)):
        unit = {"cpu": 1, "memory": MI, "pods": 1}[k]
        requested, used, capacity = (1, r.choice([3, 4]), 3) if k == "pods" else (r.choice([100, 500, 1000, 4000]) * unit, r.choice([900, 1000]) * unit, 1000 * unit)
        missing.append({"Name": k, "Requested": requested, "Used": used, "Capacity": capacity})
    return {"Pod": p, "Others": others, "Missing": missing}


def main():
    oracle = sys.argv[1]
    r = random.Random(37)
    def write(name, rows):
        with gzip.GzipFile("recorded/%s.jsonl.gz" % name, "wb", mtime=0) as f:
            for row in rows:
                f.write((json.dumps(row, separators=(",", ":"), sort_keys=True) + "\n").encode())
        print(name, len(rows))
    qs = [thresholds(r) for _ in range(3000)]
    def threshold(t):
        value = lambda v: v and (v["Quantity"] if v["Quantity"] is not None else v["Percentage"])
        return [t["Signal"], value(t["Value"]), t["GracePeriod"], value(t["MinReclaim"])]
    write("thresholds", [{"in": q, "out": None if "error" in a else sorted(map(threshold, a["out"]), key=str)} for q, a in zip(qs, ask(oracle, "thresholds", qs))])
    qs = [preempt(r) for _ in range(3000)]
    write("preempt", [{"in": q, "out": {"error": a["error"]} if "error" in a else {"killed": a["out"]["killed"] or []}} for q, a in zip(qs, ask(oracle, "preempt", qs))])
    qs = [evict(r) for _ in range(1000)]
    answers = [[] for _ in qs]
    for _ in range(40):
        for kept, a in zip(answers, ask(oracle, "evict", qs)):
            out = [told(step) for step in a["out"]]
            if out not in kept:
                kept.append(out)
    write("evict", [{"in": q, "out": kept} for q, kept in zip(qs, answers)])
    print("with more than one answer:", sum(len(kept) > 1 for kept in answers))


main()
