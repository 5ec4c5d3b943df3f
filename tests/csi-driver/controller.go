package main

// The part of a driver that makes volumes: just enough for csi-test to have some to play with.

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const mostBytes = 1 << 40

type controller struct {
	csi.UnimplementedControllerServer
}

type made struct {
	Bytes int64
}

func note(id string) string {
	return filepath.Join(*state, "made", id)
}

func find(id string) (made, bool) {
	var found made
	text, err := os.ReadFile(note(id))
	if err != nil {
		return found, false
	}
	return found, json.Unmarshal(text, &found) == nil
}

// name of a volume as an id: no part of it leads anywhere.
func idOf(name string) string {
	return "made-" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
}

func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if r.GetName() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no name or capabilities")
	}
	bytes := r.GetCapacityRange().GetRequiredBytes()
	limit := r.GetCapacityRange().GetLimitBytes()
	if bytes > mostBytes {
		return nil, status.Error(codes.OutOfRange, "nobody has so much")
	}
	id := idOf(r.GetName())
	if before, ok := find(id); ok {
		if before.Bytes < bytes || limit != 0 && before.Bytes > limit {
			return nil, status.Error(codes.AlreadyExists, "it is there with another size")
		}
		bytes = before.Bytes
	}
	text, _ := json.Marshal(made{Bytes: bytes})
	os.MkdirAll(filepath.Join(*state, "made"), 0o755)
	if err := os.WriteFile(note(id), text, 0o600); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: bytes}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id")
	}
	if !strings.Contains(r.GetVolumeId(), "/") {
		os.Remove(note(r.GetVolumeId()))
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no volume id or capabilities")
	}
	if _, ok := find(r.GetVolumeId()); !ok {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()},
	}, nil
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	kind := csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}},
	}}}, nil
}
