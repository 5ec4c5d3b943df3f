# Random questions for the oracle of placement: gen.py SEED N KIND, one JSON question a line.
# Machines have 1 to 8 sockets, 1 to 8 NUMA nodes, threads on or off, odd numbers of cores, caches that
# some cores share, uneven memory; some have processors offline, or cores of two sizes.
import json, random, sys

R = random.Random(int(sys.argv[1]))
N, KIND = int(sys.argv[2]), sys.argv[3]
G, M = 1 << 30, 1 << 20


def machine(wild=0.15, most=8):
    sockets = R.choice([1, 1, 2, 2, 4, 8])
    per = min(R.choice([1, 1, 2, 4, 8]), max(1, most // sockets))
    cores, smt, caches = R.choice([1, 2, 3, 4, 5, 6, 8]), R.choice([1, 2, 2, 2, 4]), R.choice([1, 1, 2])
    if sockets * per > 4:
        cores = min(cores, 5)
    nn = sockets * per
    total, pages, threads_far = nn * cores, R.random() < .3, R.random() < .7
    odd, uneven = R.random() < wild, R.random() < .3
    hybrid = odd and smt > 1 and R.random() < .5
    nodes, cpus, at = [], [], 0
    for s in range(sockets):
        for k in range(per):
            n, cs = s * per + k, []
            for c in range(cores):
                core = at
                at += 1
                th = [core + t * total for t in range(smt)] if threads_far else [core * smt + t for t in range(smt)]
                if hybrid and c % 2:
                    th = th[:1]
                if odd and not hybrid:
                    th = [t for t in th if R.random() < .85]
                    if not th:
                        continue
                u = n * caches + c * caches // cores
                cs.append({"core_id": core, "thread_ids": th, "socket_id": s,
                           "uncore_caches": [{"id": u, "size": 1, "type": "Unified", "level": 3}] if caches > 1 else None})
                cpus += [{"ID": t, "Core": min(th), "Socket": s, "Node": n, "Cache": u if caches > 1 else s} for t in th]
            mem = R.choice([2, 4, 8]) * G if uneven else 4 * G
            hp = [{"page_size": 2048, "num_pages": R.choice([0, 64, 128])}] if pages else []
            nodes.append({"node_id": n, "memory": mem, "hugepages": hp, "cores": cs,
                          "distances": [10 if i == n else 12 if i // per == s else R.choice([20, 21, 32]) for i in range(nn)]})
    if not cpus:
        return machine(wild, most)
    n_sockets = len({c["Socket"] for c in cpus})
    return {"num_cores": len(cpus), "num_physical_cores": sum(len(n["cores"]) for n in nodes), "num_sockets": n_sockets,
            "memory_capacity": sum(n["memory"] for n in nodes), "topology": nodes}, cpus, smt, odd


def cset(ids): return ','.join(map(str, sorted(ids)))


def take():
    m, c, smt, odd = machine()
    share = R.choice([.3, .7, .95, 1])
    av = [x["ID"] for x in c if R.random() < share]
    spread = R.random() < .25
    return {"CPUs": c, "Available": cset(av), "N": R.randint(1, max(1, len(av))), "Spread": spread, "Uncore": R.random() < .3,
            "Distributed": R.random() < .4, "Group": R.choice([1, smt]), "AlignBySocket": R.random() < .3}


def merge():
    nn = R.choice([1, 2, 2, 3, 4, 8])
    nodes = [{"node_id": i, "distances": [10 if i == j else R.choice([11, 20, 21, 32]) for j in range(nn)]} for i in range(nn)]

    def hint():
        if R.random() < .08:
            return {"Any": True, "Preferred": R.random() < .5}
        return {"Nodes": sorted(R.sample(range(nn), R.randint(1, nn))), "Preferred": R.random() < .5}
    providers = []
    for _ in range(R.randint(0, 3)):
        p = {}
        for r in R.sample(["cpu", "memory", "gpu", "nic"], R.randint(0, 2)):
            x = R.random()
            p[r] = None if x < .1 else [] if x < .18 else [hint() for _ in range(R.choice([1, 2, 3, 5, 30]))]
        providers.append(p)
    options = {"prefer-closest-numa-nodes": "true"} if R.random() < .3 else {}
    return {"Policy": R.choice(["none", "best-effort", "restricted", "single-numa-node"]), "Options": options, "Nodes": nodes, "Providers": providers}


def quant(s):
    for k, f in (("Mi", M), ("Gi", G), ("m", .001)):
        if s.endswith(k):
            return float(s[:-len(k)]) * f
    return float(s)


def container(name, sure, sidecar=False):
    if sure or R.random() < .5:
        r = {"cpu": R.choice(["1", "2", "3", "4", "500m", "6"]), "memory": R.choice(["256Mi", "1Gi", "2Gi", "5Gi"])}
        # Upstream ends itself when it is asked for pages that the machine does not have.
        if R.random() < (.15 if HAS_PAGES else .001):
            r["hugepages-2Mi"] = R.choice(["2Mi", "64Mi", "128Mi"])
        rr = {"requests": r, "limits": r}
    else:
        rr = {}
        for field in ("requests", "limits"):
            if R.random() < .6:
                rr[field] = {"cpu": R.choice(["100m", "1", "2"]), "memory": R.choice(["64Mi", "1Gi"])}
    c = {"name": name, "image": "x", "resources": rr}
    if sidecar:
        c["restartPolicy"] = "Always"
    return c


def qos(spec):
    sure, some = True, False
    for c in spec["containers"] + spec.get("initContainers", []):
        rq, lm = c["resources"].get("requests", {}), c["resources"].get("limits", {})
        for k in ("cpu", "memory"):
            a, b = rq.get(k, lm.get(k)), lm.get(k)
            some |= bool(a and quant(a)) or bool(b and quant(b))
            sure &= bool(b and quant(b) and a and quant(a) == quant(b))
    return "Guaranteed" if sure and some else "Burstable" if some else "BestEffort"


seq, HAS_PAGES = 0, False


def pod():
    global seq
    seq += 1
    n, sure = "p%d" % seq, R.random() < .75
    spec = {"containers": [container("c%d" % i, sure) for i in range(R.choice([1, 1, 2, 3]))]}
    if R.random() < .3:
        spec["initContainers"] = [container("i%d" % i, sure, R.random() < .5) for i in range(R.choice([1, 2, 3]))]
    return {"metadata": {"name": n, "uid": n, "namespace": "d"}, "spec": spec, "status": {"qosClass": qos(spec)}}


def admit():
    global seq, HAS_PAGES
    seq = 0
    m, c, smt, odd = machine(0.05)
    HAS_PAGES = bool(m["topology"][0]["hugepages"])
    ids = sorted(x["ID"] for x in c)
    rs = R.sample(ids, min(len(ids) - 1, R.choice([1, 1, 2, 4]))) if len(ids) > 1 else ids
    cpu = R.choice(["static"] * 7 + ["none"])
    topology = R.choice(["none", "best-effort", "restricted", "single-numa-node"])
    opts = {}
    if cpu == "static":
        style = R.choice(["", "", "numa", "cores", "cache"])
        if style == "numa": opts["distribute-cpus-across-numa"] = "true"
        if style == "cores": opts["distribute-cpus-across-cores"] = "true"
        if style == "cache": opts["prefer-align-cpus-by-uncorecache"] = "true"
        if style != "cores" and R.random() < .4: opts["full-pcpus-only"] = "true"
        if topology != "single-numa-node" and m["num_sockets"] <= sum(1 for n in m["topology"] if n["cores"]) and R.random() < .25: opts["align-by-socket"] = "true"
        if R.random() < .2: opts["strict-cpu-reservation"] = "true"
        if R.random() < .02: opts[R.choice(["x", "full-pcpus-only"])] = R.choice(["maybe", "true", "T"])
    steps, live = [], []
    for _ in range(R.randint(1, 12)):
        x = R.random()
        if live and x < .25:
            steps.append({"Remove": live.pop(R.randrange(len(live)))})
        elif live and x < .33:
            steps.append({"Restart": True})
        else:
            p = pod()
            live.append(p["metadata"]["uid"])
            steps.append({"Add": p})
    mem = R.random() < .65
    far = R.randrange(len(m["topology"]))
    rmem = [{"NumaNode": 0, "Limits": {"memory": "512Mi"}}] if far == 0 else [{"NumaNode": 0, "Limits": {"memory": "256Mi"}}, {"NumaNode": far, "Limits": {"memory": "256Mi"}}]
    if R.random() < .02: rmem = [{"NumaNode": R.choice([0, 9]), "Limits": {"memory": R.choice(["512Mi", "1Gi"])}}]
    return {"Machine": m, "CPUPolicy": cpu, "CPUOptions": opts, "ReservedCPUs": cset(rs) if R.random() < .7 else "",
            "MemoryPolicy": "Static" if mem else "None", "ReservedMemory": rmem if mem else [],
            "Reservation": {"cpu": str(len(rs)), "memory": "512Mi"}, "TopologyPolicy": topology,
            "TopologyScope": R.choice(["container", "pod"]), "TopologyOptions": {"prefer-closest-numa-nodes": "true"} if R.random() < .2 else {}, "Steps": steps}


for _ in range(N):
    print(json.dumps({"Kind": KIND, "In": {"take": take, "merge": merge, "admit": admit}[KIND]()}, separators=(',', ':')))
