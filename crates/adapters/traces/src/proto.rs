//! The generated messages and client.
#![expect(unreachable_pub, reason = "generated code is not ours to word")]

tonic::include_proto!("opentelemetry.proto.collector.trace.v1");
