package main

// What is wrong with volumes: lines "KIND Reason and a sentence" of a file -state/health/<volume>, or of -state/health/storage for
// all that the driver stores. Where there is no file, all is well.

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func complaints(of string) [][3]string {
	text, _ := os.ReadFile(filepath.Join(*state, "health", of))
	var found [][3]string
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if words := strings.SplitN(line, " ", 3); len(words) == 3 {
			found = append(found, [3]string(words))
		}
	}
	return found
}

func (d *driver) NodeGetVolumeHealth(_ context.Context, r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if r.GetVolumeId() == "" || strings.Contains(r.GetVolumeId(), "/") {
		return nil, status.Error(codes.InvalidArgument, "no volume id")
	}
	told := &csi.VolumeHealth{VolumeId: r.GetVolumeId()}
	for _, it := range complaints(r.GetVolumeId()) {
		told.HealthStatuses = append(told.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status:  csi.VolumeHealthErrorType(csi.VolumeHealthErrorType_value[it[0]]),
			Reason:  it[1],
			Message: it[2],
		})
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: told}, nil
}

func (d *driver) NodeGetStorageHealth(context.Context, *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	told := &csi.NodeGetStorageHealthResponse{}
	for _, it := range complaints("storage") {
		told.BackendHealth = append(told.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status:  csi.StorageHealthErrorType(csi.StorageHealthErrorType_value[it[0]]),
			Reason:  it[1],
			Message: it[2],
		})
	}
	return told, nil
}
