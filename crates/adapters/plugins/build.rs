//! Compiles our `.proto` files with a compiler written in Rust, so that a build needs no `protoc`.
//!
//! Of the plugins' services the library gets clients and of the node's own it gets servers. The
//! other half of each is for tests only, but where both sides share their messages it gets both.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

/// Services of plugins, which we call.
const CALLED: [&str; 2] = ["proto/csi.proto", "proto/registration.proto"];
/// Services of this node, which others call.
const OFFERED: [&str; 2] = ["proto/local_alpha.proto", "proto/pod_resources.proto"];

/// Services of both sides that share their messages.
const SHARED: [&str; 2] = ["proto/device_plugin.proto", "proto/dra.proto"];
/// A service of plugins whose package another proto has, too.
const HEALTH: &str = "proto/dra_health.proto";
/// Older names of services, with the messages of the newer ones.
const OLDER: [&str; 2] = ["proto/dra_beta.proto", "proto/dra_health_alpha.proto"];
/// Where [`HEALTH`] goes.
const APART: &str = "dra";
/// Where [`OLDER`] goes, below that: files that are imported are written beside each.
const APART_OLDER: &str = "older";

/// Messages that carry secrets: never printed.
const SECRET: [&str; 3] = [
    ".csi.v1.NodeStageVolumeRequest",
    ".csi.v1.NodePublishVolumeRequest",
    ".csi.v1.NodeExpandVolumeRequest",
];

fn main() -> Result<(), Box<dyn Error>> {
    for proto in CALLED.iter().chain(&OFFERED).chain(&SHARED).chain(&OLDER).chain([&HEALTH]) {
        println!("cargo:rerun-if-changed={proto}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let tests = out.join("server");
    fs::create_dir_all(&tests)?;
    let called = protox::compile(CALLED, ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .btree_map(".")
        .skip_debug(SECRET)
        .compile_fds(called.clone())?;
    tonic_prost_build::configure()
        .build_client(false)
        .generate_default_stubs(true)
        .extern_path(".csi.v1", "crate::proto::csi")
        .extern_path(".pluginregistration", "crate::proto::registration")
        .out_dir(&tests)
        .compile_fds(called)?;
    let offered = protox::compile(OFFERED, ["proto"])?;
    tonic_prost_build::configure().build_client(false).compile_fds(offered.clone())?;
    tonic_prost_build::configure()
        .build_server(false)
        .extern_path(".v1", "crate::proto::pod_resources")
        .extern_path(".v1alpha1", "crate::proto::local_alpha")
        .out_dir(tests)
        .compile_fds(offered)?;
    let shared = protox::compile(SHARED, ["proto"])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(shared)?;
    compile_dra(&out.join(APART))
}

/// Health of dynamic resources, and the older names of what drivers of these offer.
fn compile_dra(out: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out)?;
    tonic_prost_build::configure()
        .out_dir(out)
        .compile_fds(protox::compile([HEALTH], ["proto"])?)?;
    let out = &out.join(APART_OLDER);
    fs::create_dir_all(out)?;
    for older in OLDER {
        tonic_prost_build::configure()
            .extern_path(".k8s.io.kubelet.pkg.apis.dra.v1", "crate::proto::dra")
            .extern_path(".v1", "crate::proto::dra_health")
            .out_dir(out)
            .compile_fds(protox::compile([older], ["proto"])?)?;
    }
    Ok(())
}
