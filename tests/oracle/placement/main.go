// The oracle of placement: upstream's own CPU, memory and topology managers answer.
//
// One question a line on standard input, one answer a line on standard output, both JSON. Kinds:
//
//	take   the choice of processors, packed or distributed
//	merge  the topology policies' choice among hints
//	admit  the three managers together on an invented machine: pods come, go, and are met again after
//	       a restart from the state files
//
// gen.py makes questions; ../recorded holds answers, so that the project's tests need no Go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

type H = map[string]any

var logger = klog.Background()

var kinds = map[string]func(json.RawMessage) (any, error){"take": doTake, "merge": doMerge, "admit": doAdmit}

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	if err := utilfeature.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=true"); err != nil {
		panic(err)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<28)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var q struct {
			Kind string
			In   json.RawMessage
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			panic(err)
		}
		a, err := answer(q.Kind, q.In)
		r := H{"kind": q.Kind, "out": a}
		if err != nil {
			r["error"] = err.Error()
		}
		if err := out.Encode(r); err != nil {
			panic(err)
		}
	}
}

func answer(kind string, in json.RawMessage) (a any, err error) {
	defer func() {
		if r := recover(); r != nil {
			a, err = nil, fmt.Errorf("panic: %v", r)
		}
	}()
	return kinds[kind](in)
}

// ---- processors

type cpu struct{ ID, Core, Socket, Node, Cache int }

func topo(cpus []cpu) *topology.CPUTopology {
	t := &topology.CPUTopology{CPUDetails: topology.CPUDetails{}}
	s, c, n, u := map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, it := range cpus {
		t.CPUDetails[it.ID] = topology.CPUInfo{NUMANodeID: it.Node, SocketID: it.Socket, CoreID: it.Core, UncoreCacheID: it.Cache}
		s[it.Socket], c[it.Core], n[it.Node], u[it.Cache] = true, true, true, true
	}
	t.NumCPUs, t.NumSockets, t.NumCores, t.NumNUMANodes, t.NumUncoreCache = len(cpus), len(s), len(c), len(n), len(u)
	return t
}

func doTake(raw json.RawMessage) (any, error) {
	var q struct {
		CPUs          []cpu
		Available     string
		N             int
		Spread        bool
		Uncore        bool
		Distributed   bool
		Group         int
		AlignBySocket bool
	}
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, err
	}
	avail, err := cpuset.Parse(q.Available)
	if err != nil {
		return nil, err
	}
	strategy := cpumanager.CPUSortingStrategyPacked
	if q.Spread {
		strategy = cpumanager.CPUSortingStrategySpread
	}
	var got cpuset.CPUSet
	if q.Distributed {
		got, err = takeDistributed(logger, topo(q.CPUs), avail, q.N, q.Group, strategy, q.AlignBySocket)
	} else {
		got, err = takePacked(logger, topo(q.CPUs), avail, q.N, strategy, q.Uncore)
	}
	return got.String(), err
}

// ---- hints

type hint struct {
	Nodes     []int
	Any       bool
	Preferred bool
}

func (h hint) get() topologymanager.TopologyHint {
	if h.Any {
		return topologymanager.TopologyHint{Preferred: h.Preferred}
	}
	m, err := bitmask.NewBitMask(h.Nodes...)
	if err != nil {
		panic(err)
	}
	return topologymanager.TopologyHint{NUMANodeAffinity: m, Preferred: h.Preferred}
}

func doMerge(raw json.RawMessage) (any, error) {
	var q struct {
		Policy    string
		Options   map[string]string
		Nodes     []cadvisorapi.Node
		Providers []map[string][]hint
	}
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, err
	}
	opts, err := topologymanager.NewPolicyOptions(logger, q.Options)
	if err != nil {
		return nil, err
	}
	info, err := topologymanager.NewNUMAInfo(q.Nodes, opts)
	if err != nil {
		return nil, err
	}
	var p topologymanager.Policy
	switch q.Policy {
	case "none":
		p = topologymanager.NewNonePolicy()
	case "best-effort":
		p = topologymanager.NewBestEffortPolicy(info, opts)
	case "restricted":
		p = topologymanager.NewRestrictedPolicy(info, opts)
	case "single-numa-node":
		p = topologymanager.NewSingleNumaNodePolicy(info, opts)
	}
	var given []map[string][]topologymanager.TopologyHint
	for _, one := range q.Providers {
		m := map[string][]topologymanager.TopologyHint{}
		for k, v := range one {
			if v == nil {
				m[k] = nil
				continue
			}
			m[k] = []topologymanager.TopologyHint{}
			for _, h := range v {
				m[k] = append(m[k], h.get())
			}
		}
		given = append(given, m)
	}
	th, ok := p.Merge(logger, given)
	a := H{"admit": ok, "preferred": th.Preferred}
	if th.NUMANodeAffinity != nil {
		a["nodes"] = th.NUMANodeAffinity.GetBits()
	}
	return a, nil
}

// ---- the managers together: a made-up machine, pods that come and go

type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

type noStatus struct{}

func (noStatus) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

type noRuntime struct{}

func (noRuntime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

type question struct {
	Machine         cadvisorapi.MachineInfo
	CPUPolicy       string
	CPUOptions      map[string]string
	ReservedCPUs    string
	MemoryPolicy    string
	ReservedMemory  []kubeletconfig.MemoryReservation
	Reservation     v1.ResourceList
	TopologyPolicy  string
	TopologyScope   string
	TopologyOptions map[string]string
	Steps           []struct {
		Add     *v1.Pod
		Remove  string
		Restart bool
	}
}

type node struct {
	t    topologymanager.Manager
	c    cpumanager.Manager
	m    memorymanager.Manager
	pods map[string]*v1.Pod
}

// start makes the managers anew from what is on disk; an answer that is not nil says why not.
func start(q *question, dir string, pods map[string]*v1.Pod) (*node, any) {
	reserved, err := cpuset.Parse(q.ReservedCPUs)
	if err != nil {
		return nil, H{"reserved": err.Error()}
	}
	ctx := context.Background()
	t, err := topologymanager.NewManager(logger, q.Machine.Topology, q.TopologyPolicy, q.TopologyScope, q.TopologyOptions)
	if err != nil {
		return nil, H{"topology": err.Error()}
	}
	c, err := cpumanager.NewManager(logger, q.CPUPolicy, q.CPUOptions, time.Hour, &q.Machine, reserved, q.Reservation, dir, t)
	if err != nil {
		return nil, H{"cpu": err.Error()}
	}
	t.AddHintProvider(logger, c)
	m, err := memorymanager.NewManager(logger, q.MemoryPolicy, &q.Machine, q.Reservation, q.ReservedMemory, dir, t)
	if err != nil {
		return nil, H{"memory": err.Error()}
	}
	t.AddHintProvider(logger, m)
	active := func() []*v1.Pod {
		var out []*v1.Pod
		for _, p := range pods {
			out = append(out, p)
		}
		return out
	}
	if err := c.Start(ctx, active, ready{}, noStatus{}, noRuntime{}, containermap.NewContainerMap()); err != nil {
		return nil, H{"cpuStart": err.Error()}
	}
	if err := m.Start(ctx, active, ready{}, noStatus{}, noRuntime{}, containermap.NewContainerMap()); err != nil {
		return nil, H{"memoryStart": err.Error()}
	}
	return &node{t, c, m, pods}, nil
}

func (n *node) admit(p *v1.Pod) any {
	n.pods[string(p.UID)] = p
	r := n.t.Admit(context.Background(), &lifecycle.PodAdmitAttributes{Pod: p, Operation: lifecycle.AddOperation})
	a := H{"admit": r.Admit, "reason": r.Reason, "message": r.Message}
	if !r.Admit {
		delete(n.pods, string(p.UID))
		return a
	}
	cs := H{}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			name := list[i].Name
			n.c.AddContainer(logger, p, &list[i], string(p.UID)+name)
			n.m.AddContainer(logger, p, &list[i], string(p.UID)+name)
			cs[name] = H{"cpus": n.c.GetExclusiveCPUs(string(p.UID), name).String(), "affinity": n.c.GetCPUAffinity(string(p.UID), name).String(), "memory": n.m.GetMemory(logger, string(p.UID), name)}
		}
	}
	a["containers"] = cs
	return a
}

func doAdmit(raw json.RawMessage) (any, error) {
	q := &question{}
	if err := json.Unmarshal(raw, q); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "oracle")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	pods, order := map[string]*v1.Pod{}, []*v1.Pod{}
	n, refused := start(q, dir, pods)
	if refused != nil {
		return refused, nil
	}
	var steps []any
	for _, s := range q.Steps {
		switch {
		case s.Add != nil:
			steps = append(steps, n.admit(s.Add))
			order = append(order, s.Add)
		case s.Restart:
			if n, refused = start(q, dir, pods); refused != nil {
				return H{"steps": steps, "restart": refused}, nil
			}
			var again []any
			for _, p := range order {
				if _, ok := pods[string(p.UID)]; ok {
					again = append(again, n.admit(p))
				}
			}
			steps = append(steps, H{"again": again})
		default:
			delete(pods, s.Remove)
			steps = append(steps, H{"removed": s.Remove})
		}
	}
	read := func(n string) any {
		b, err := os.ReadFile(dir + "/" + n)
		if err != nil {
			return nil
		}
		return json.RawMessage(b)
	}
	return H{"steps": steps, "cpu_manager_state": read("cpu_manager_state"), "memory_manager_state": read("memory_manager_state"), "allocatable": n.c.GetAllocatableCPUs().String()}, nil
}
