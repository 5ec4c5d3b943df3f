// A device plugin for the tests: devices that are names, and what a container gets with them.
//
//	device-plugin -dir ROOT/device-plugins -state DIR [-resource example.com/device] [-devices 2]
//
// It registers with the node agent, again whenever the agent's socket is another one, and writes
// every call it gets into DIR/calls. DIR/unhealthy names devices that are not well, one on a line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var (
	directory = flag.String("dir", "", "where plugins register")
	state     = flag.String("state", "", "where calls are written and health is read")
	resource  = flag.String("resource", "example.com/device", "what is offered")
	count     = flag.Int("devices", 2, "how many")
)

const look = 100 * time.Millisecond

type plugin struct {
	api.UnimplementedDevicePluginServer
	writing sync.Mutex
}

func (p *plugin) note(method string, request any) {
	p.writing.Lock()
	defer p.writing.Unlock()
	line, err := json.Marshal(map[string]any{"method": method, "request": request})
	if err != nil {
		log.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(*state, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	fmt.Fprintln(file, string(line))
}

// devices lists what there is, with what DIR/unhealthy says of it.
func devices() []*api.Device {
	text, _ := os.ReadFile(filepath.Join(*state, "unhealthy"))
	unhealthy := map[string]bool{}
	for _, name := range strings.Fields(string(text)) {
		unhealthy[name] = true
	}
	var all []*api.Device
	for n := range *count {
		device := &api.Device{ID: fmt.Sprintf("device-%d", n), Health: api.Healthy}
		if unhealthy[device.ID] {
			device.Health = api.Unhealthy
		}
		all = append(all, device)
	}
	return all
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	p.note("ListAndWatch", nil)
	told := ""
	for {
		all := devices()
		if now := fmt.Sprint(all); now != told {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: all}); err != nil {
				return err
			}
			told = now
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(look):
		}
	}
}

// The last ones are preferred, which nobody would give without being told.
func (p *plugin) GetPreferredAllocation(_ context.Context, request *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	answer := &api.PreferredAllocationResponse{}
	for _, asked := range request.ContainerRequests {
		available := asked.AvailableDeviceIDs
		first := max(0, len(available)-int(asked.AllocationSize))
		answer.ContainerResponses = append(answer.ContainerResponses,
			&api.ContainerPreferredAllocationResponse{DeviceIDs: available[first:]})
	}
	return answer, nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, asked := range request.ContainerRequests {
		p.note("Allocate", asked.DevicesIds)
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs:        map[string]string{"TEST_DEVICES": strings.Join(asked.DevicesIds, ",")},
			Mounts:      []*api.Mount{{ContainerPath: "/from-plugin", HostPath: filepath.Join(*state, "shared"), ReadOnly: true}},
			Devices:     []*api.DeviceSpec{{ContainerPath: "/dev/from-plugin", HostPath: "/dev/null", Permissions: "rw"}},
			Annotations: map[string]string{"example.com/devices": strings.Join(asked.DevicesIds, ",")},
		})
	}
	return answer, nil
}

func (p *plugin) PreStartContainer(_ context.Context, request *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	p.note("PreStartContainer", request.DevicesIds)
	return &api.PreStartContainerResponse{}, nil
}

// A socket's number alone does not tell it from the next: file systems give the number of a file
// that went to the next one that is made.
type identity struct {
	inode   uint64
	changed syscall.Timespec
}

// identify tells one socket from the next; nothing for none.
func identify(path string) identity {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}
	}
	status := info.Sys().(*syscall.Stat_t)
	return identity{status.Ino, status.Ctim}
}

// serve listens on a socket of its own until stop is called.
func (p *plugin) serve(path string) (stop func(), err error) {
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	return server.Stop, nil
}

func register(kubelet, socket string) error {
	client, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(client).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(socket), ResourceName: *resource,
	})
	return err
}

func main() {
	flag.Parse()
	if err := os.MkdirAll(filepath.Join(*state, "shared"), 0o755); err != nil {
		log.Fatal(err)
	}
	p := &plugin{}
	kubelet, socket := filepath.Join(*directory, "kubelet.sock"), filepath.Join(*directory, "test.sock")
	known, stop := identity{}, func() {}
	for ; ; time.Sleep(look) {
		now := identify(kubelet)
		if now == known || now == (identity{}) {
			continue
		}
		stop()
		next, err := p.serve(socket)
		if err != nil {
			log.Print(err)
			continue
		}
		stop = next
		if err := register(kubelet, socket); err != nil {
			p.note("refused", err.Error())
			continue
		}
		known = now
	}
}
