//! Compiles our `.proto` file with a compiler written in Rust, so that a build needs no `protoc`.
//! The server is for tests only.

use std::{env, error::Error, fs, path::PathBuf};

const PROTO: &str = "proto/traces.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files.clone())?;
    let tests = PathBuf::from(env::var("OUT_DIR")?).join("server");
    fs::create_dir_all(&tests)?;
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".opentelemetry.proto.collector.trace.v1", "crate::proto")
        .out_dir(tests)
        .compile_fds(files)?;
    Ok(())
}
