package main

import (
	_ "unsafe"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/utils/cpuset"
)

// Unexported functions, reached by symbol: the empty link.s lets functions have no body.

//go:linkname takePacked k8s.io/kubernetes/pkg/kubelet/cm/cpumanager.takeByTopologyNUMAPacked
func takePacked(logger klog.Logger, topo *topology.CPUTopology, availableCPUs cpuset.CPUSet, numCPUs int, s cpumanager.CPUSortingStrategy, preferAlignByUncoreCache bool) (cpuset.CPUSet, error)

//go:linkname takeDistributed k8s.io/kubernetes/pkg/kubelet/cm/cpumanager.takeByTopologyNUMADistributed
func takeDistributed(logger klog.Logger, topo *topology.CPUTopology, availableCPUs cpuset.CPUSet, numCPUs int, cpuGroupSize int, s cpumanager.CPUSortingStrategy, alignBySocket bool) (cpuset.CPUSet, error)
