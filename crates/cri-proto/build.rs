//! Compiles our `api.proto` with a compiler written in Rust, so that a build needs no `protoc`.
//!
//! Two outputs: messages and clients, and servers, because one run writes one of the two.

use std::{env, error::Error, fs, path::PathBuf};

const PROTO: &str = "proto/runtime/v1/api.proto";

/// Messages that carry secrets: their `Debug` is written by hand in `src/lib.rs`.
const SECRET: [&str; 3] =
    [".runtime.v1.AuthConfig", ".runtime.v1.KeyValue", ".runtime.v1.ExecSyncResponse"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);

    tonic_prost_build::configure()
        .build_server(false)
        .btree_map(".")
        .skip_debug(SECRET)
        .compile_fds(files.clone())?;

    let server = out.join("server");
    fs::create_dir_all(&server)?;
    tonic_prost_build::configure()
        .build_client(false)
        .generate_default_stubs(true)
        .extern_path(".runtime.v1", "crate")
        .out_dir(server)
        .compile_fds(files)?;
    Ok(())
}
