// A client of the node's local services, written as such clients are: it dials the socket's path with a dialer of its own, so that the
// path, with percent signs or (-raw) without, becomes HTTP/2's authority. Every answer is a line of JSON. With collect it is a collector
// of traces instead.
//
//	local-client [-raw] SOCKET resources | old-resources | allocatable | resources-of NAMESPACE NAME | pods | pod UID | watch | flood | collect
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"
	old "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

func say(answer any, err error) {
	if err != nil {
		if said, ok := status.FromError(err); ok {
			answer = map[string]string{"code": said.Code().String(), "message": said.Message()}
		} else {
			log.Fatal(err)
		}
	}
	line, err := json.Marshal(answer)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

func read(bytes []byte) *core.Pod {
	if len(bytes) == 0 {
		return nil
	}
	pod := &core.Pod{}
	if err := pod.Unmarshal(bytes); err != nil {
		log.Fatal(err)
	}
	return pod
}

func main() {
	raw := flag.Bool("raw", false, "send the path as it is")
	flag.Parse()
	socket, verb, rest := flag.Arg(0), flag.Arg(1), flag.Args()[2:]
	if verb == "collect" {
		collect(socket)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
	}
	if *raw {
		options = append(options, grpc.WithAuthority(socket))
	}
	connection, err := grpc.NewClient("passthrough:///"+socket, options...)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	lister := resources.NewPodResourcesListerClient(connection)
	podsClient := pods.NewPodsClient(connection)
	switch verb {
	case "resources":
		say(lister.List(ctx, &resources.ListPodResourcesRequest{}))
	case "old-resources":
		say(old.NewPodResourcesListerClient(connection).List(ctx, &old.ListPodResourcesRequest{}))
	case "allocatable":
		say(lister.GetAllocatableResources(ctx, &resources.AllocatableResourcesRequest{}))
	case "resources-of":
		say(lister.Get(ctx, &resources.GetPodResourcesRequest{PodNamespace: rest[0], PodName: rest[1]}))
	case "flood":
		// Many at once and all the time, so that a slow machine is too fast for the limit as well.
		refused := make(chan error, 200)
		for range cap(refused) {
			go func() {
				for {
					if _, err := lister.List(ctx, &resources.ListPodResourcesRequest{}); err != nil {
						refused <- err
						return
					}
				}
			}()
		}
		say(nil, <-refused)
	case "pods":
		answer, err := podsClient.ListPods(ctx, &pods.ListPodsRequest{})
		var found []*core.Pod
		for _, bytes := range answer.GetPods() {
			found = append(found, read(bytes))
		}
		say(found, err)
	case "pod":
		answer, err := podsClient.GetPod(ctx, &pods.GetPodRequest{PodUID: rest[0]})
		say(read(answer.GetPod()), err)
	case "watch":
		stream, err := podsClient.WatchPods(ctx, &pods.WatchPodsRequest{})
		if err != nil {
			log.Fatal(err)
		}
		for {
			event, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				say(nil, err)
				return
			}
			say(map[string]any{"type": event.Type.String(), "pod": read(event.Pod)}, nil)
		}
	default:
		log.Printf("%q is not something to ask for", verb)
		os.Exit(2)
	}
}
