package main

// The mock driver of Kubernetes' own storage tests: it mounts nothing and checks every request. Calls of it are noted and
// made to fail like ours.

import "k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"

func upstreamsMock() service.Service {
	return service.New(service.Config{
		DriverName:                  *name,
		AttachLimit:                 *limit,
		NodeExpansionRequired:       true,
		NodeVolumeConditionRequired: *health,
		NodeStorageHealthRequired:   *health,
		VolumeMountGroupRequired:    *takeGroup,
		EnableTopology:              true,
	})
}
