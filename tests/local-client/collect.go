package main

import (
	"context"
	"encoding/hex"
	"log"
	"net"

	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// collect is a collector of traces: every span that arrives is a line of JSON. A message to its one method is, on the wire, TracesData.
func collect(socket string) {
	export := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		data := &traces.TracesData{}
		if err := decode(data); err != nil {
			return nil, err
		}
		for _, resource := range data.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					say(map[string]any{
						"name":   span.Name,
						"kind":   span.Kind.String(),
						"trace":  hex.EncodeToString(span.TraceId),
						"id":     hex.EncodeToString(span.SpanId),
						"parent": hex.EncodeToString(span.ParentSpanId),
						"nanos":  span.EndTimeUnixNano - span.StartTimeUnixNano,
					}, nil)
				}
			}
		}
		return &emptypb.Empty{}, nil
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Export", Handler: export}},
	}, nil)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
