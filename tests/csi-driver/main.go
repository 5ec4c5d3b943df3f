// A CSI driver for tests: it really mounts, registers itself with the node agent, and fails when it is told to.
//
// Volumes are directories below -state/volumes, or files there that are shown as loop devices (disks.go); staging and
// publishing are bind mounts. Every call is a line of JSON in -state/calls. A file -state/faults/<Method> holds a gRPC code: calls of that method fail with it until the file is gone;
// the word "hang" lets them wait instead. A file -state/limit says how many volumes the node takes, before -limit does;
// files below -state/health say what is wrong (health.go).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

var (
	name      = flag.String("name", "test.ferrolet.dev", "the driver's name")
	state     = flag.String("state", "", "where volumes, calls and faults are kept")
	endpoint  = flag.String("endpoint", "", "the driver's socket")
	registry  = flag.String("registry", "", "the directory in which plugins make themselves known")
	limit     = flag.Int64("limit", 0, "how many volumes a node takes")
	stages    = flag.Bool("stages", true, "whether volumes are staged")
	takeGroup = flag.Bool("takes-group", false, "whether the driver gives volumes to a group")
	mock      = flag.Bool("mock", false, "whether upstream's mock driver serves in our place")
	health    = flag.Bool("tells-health", false, "whether the driver says what is wrong with volumes")
)

type driver struct {
	csi.UnimplementedNodeServer
	csi.UnimplementedIdentityServer
	lock sync.Mutex
}

func (d *driver) note(method string, request any) {
	d.lock.Lock()
	defer d.lock.Unlock()
	file, err := os.OpenFile(filepath.Join(*state, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Print(err)
		return
	}
	defer file.Close()
	line, _ := json.Marshal(map[string]any{"method": method, "request": request})
	file.Write(append(line, '\n'))
}

// intercept notes every call and fails those that a test wants to fail.
func (d *driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	d.note(method, request)
	if text, err := os.ReadFile(filepath.Join(*state, "faults", method)); err == nil {
		word := strings.TrimSpace(string(text))
		if word == "hang" {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		code, _ := strconv.Atoi(word)
		return nil, status.Error(codes.Code(code), "a test wants it so")
	}
	return handler(ctx, request)
}

func isMounted(target string) bool {
	table, _ := os.ReadFile("/proc/self/mountinfo")
	for _, line := range strings.Split(string(table), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == target {
			return true
		}
	}
	return false
}

func bind(source, target string, readOnly bool) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if isMounted(target) {
		return nil
	}
	if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
		return status.Errorf(codes.Internal, "bind %s to %s: %v", source, target, err)
	}
	if readOnly {
		flags := uintptr(syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY)
		if err := syscall.Mount("", target, "", flags, ""); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
	}
	return nil
}

func unbind(target string) error {
	for isMounted(target) {
		if err := syscall.Unmount(target, 0); err != nil {
			return status.Errorf(codes.Internal, "unmount %s: %v", target, err)
		}
	}
	if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func volume(id string) (string, error) {
	if id == "" || strings.Contains(id, "/") {
		return "", status.Error(codes.InvalidArgument, "no volume id")
	}
	directory := filepath.Join(*state, "volumes", id)
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return "", status.Error(codes.Internal, err.Error())
	}
	return directory, nil
}

func (d *driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if r.GetVolumeCapability() == nil || r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no capability or path")
	}
	if isDisk(r.GetVolumeCapability(), r.GetVolumeContext()) {
		device, err := attach(r.GetVolumeId(), r.GetVolumeContext())
		if err == nil && r.GetVolumeCapability().GetBlock() == nil {
			err = mountDisk(device, r.GetStagingTargetPath(), r.GetVolumeCapability().GetMount().GetFsType())
		}
		return &csi.NodeStageVolumeResponse{}, err
	}
	source, err := volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, bind(source, r.GetStagingTargetPath(), false)
}

func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id or path")
	}
	for isMounted(r.GetStagingTargetPath()) {
		if err := syscall.Unmount(r.GetStagingTargetPath(), 0); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &csi.NodeUnstageVolumeResponse{}, detach(r.GetVolumeId())
}

func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if r.GetVolumeCapability() == nil || r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no capability or path")
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		device, err := attach(r.GetVolumeId(), r.GetVolumeContext())
		if err == nil {
			err = showDevice(device, r.GetTargetPath())
		}
		return &csi.NodePublishVolumeResponse{}, err
	}
	source := r.GetStagingTargetPath()
	if source == "" {
		own, err := volume(r.GetVolumeId())
		if err != nil {
			return nil, err
		}
		source = own
	} else if !isMounted(source) {
		return nil, status.Error(codes.FailedPrecondition, "it is not staged")
	}
	return &csi.NodePublishVolumeResponse{}, bind(source, r.GetTargetPath(), r.GetReadonly())
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id or path")
	}
	if err := unbind(r.GetTargetPath()); err != nil || *stages {
		return &csi.NodeUnpublishVolumeResponse{}, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, detach(r.GetVolumeId())
}

func (d *driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id or path")
	}
	if _, err := os.Stat(r.GetVolumePath()); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	bytes := r.GetCapacityRange().GetRequiredBytes()
	return &csi.NodeExpandVolumeResponse{CapacityBytes: bytes}, grow(r.GetVolumeId(), r.GetVolumePath(), bytes)
}

func (d *driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id or path")
	}
	found, err := usage(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: found}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	host, _ := os.Hostname()
	most := *limit
	if text, err := os.ReadFile(filepath.Join(*state, "limit")); err == nil {
		most, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	return &csi.NodeGetInfoResponse{
		NodeId:             "node-" + host,
		MaxVolumesPerNode:  most,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{*name + "/zone": "here"}},
	}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	}
	if *stages {
		types = append(types, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	if *takeGroup {
		types = append(types, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	if *health {
		types = append(types, csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH, csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	}
	var capabilities []*csi.NodeServiceCapability
	for _, kind := range types {
		capabilities = append(capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}},
		})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: capabilities}, nil
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: *name, VendorVersion: "1"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE,
		}},
	}}}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

type registrar struct {
	registration.UnimplementedRegistrationServer
	driver *driver
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              *name,
		Endpoint:          *endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.driver.note("NotifyRegistrationStatus", map[string]any{"registered": s.PluginRegistered, "error": s.Error})
	return &registration.RegistrationStatusResponse{}, nil
}

func listen(socket string) net.Listener {
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func main() {
	flag.Parse()
	if *state == "" || *endpoint == "" {
		fmt.Fprintln(os.Stderr, "-state and -endpoint are needed")
		os.Exit(2)
	}
	os.MkdirAll(filepath.Join(*state, "faults"), 0o755)
	d := &driver{}
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	if *mock {
		theirs := upstreamsMock()
		csi.RegisterNodeServer(server, theirs)
		csi.RegisterIdentityServer(server, theirs)
		csi.RegisterControllerServer(server, theirs)
	} else {
		csi.RegisterNodeServer(server, d)
		csi.RegisterIdentityServer(server, d)
		csi.RegisterControllerServer(server, &controller{})
	}
	go server.Serve(listen(*endpoint))
	var socket string
	if *registry != "" {
		socket = filepath.Join(*registry, *name+"-reg.sock")
		greeter := grpc.NewServer()
		registration.RegisterRegistrationServer(greeter, &registrar{driver: d})
		go greeter.Serve(listen(socket))
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	os.Remove(socket)
	os.Remove(*endpoint)
}
