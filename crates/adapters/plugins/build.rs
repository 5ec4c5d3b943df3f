//! Compiles our `.proto` files with a compiler written in Rust, so that a build needs no `protoc`.
//!
//! Clients for the library; servers, which only the tests' fake driver includes.

use std::{env, error::Error, fs, path::PathBuf};

const PROTOS: [&str; 2] = ["proto/csi.proto", "proto/registration.proto"];

/// Messages that carry secrets: never printed.
const SECRET: [&str; 3] = [
    ".csi.v1.NodeStageVolumeRequest",
    ".csi.v1.NodePublishVolumeRequest",
    ".csi.v1.NodeExpandVolumeRequest",
];

fn main() -> Result<(), Box<dyn Error>> {
    for proto in PROTOS {
        println!("cargo:rerun-if-changed={proto}");
    }
    let files = protox::compile(PROTOS, ["proto"])?;
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
        .extern_path(".csi.v1", "crate::proto::csi")
        .extern_path(".pluginregistration", "crate::proto::registration")
        .out_dir(server)
        .compile_fds(files)?;
    Ok(())
}
