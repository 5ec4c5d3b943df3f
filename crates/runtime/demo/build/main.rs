//! Compiles the demonstration program, and makes the image of it that the library carries as bytes.
//!
//! The program is static, small and without dependencies, so that nothing but the compiler that is running and the C
//! library it links programs with is needed. The same sources and compiler give the same bytes.

#![expect(clippy::print_stdout, reason = "cargo reads what a build script prints")]

#[path = "../program/names.rs"]
mod names;

mod archive;

use std::{env, fs, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=program");
    println!("cargo::rerun-if-changed=build");
    let out =
        PathBuf::from(variable("OUT_DIR").expect("cargo names a directory for what is built"));
    let program = out.join("demo");
    let status = compiler(&program).status().expect("the compiler that cargo named can be started");
    assert!(
        status.success(),
        "the demonstration program does not compile; it is linked statically, which needs the C library's libc.a \
         (Debian: libc6-dev, Fedora: glibc-static)"
    );
    let program = fs::read(&program).expect("it was just compiled");
    let architecture = match variable("CARGO_CFG_TARGET_ARCH").as_deref() {
        Some("x86_64") => "amd64".to_owned(),
        Some("aarch64") => "arm64".to_owned(),
        other => other.unwrap_or_default().to_owned(),
    };
    let image =
        archive::image(&program, &architecture).expect("an archive in memory can be written");
    fs::write(out.join("demo.tar.gz"), image).expect("cargo's directory can be written");
}

fn compiler(program: &std::path::Path) -> Command {
    let mut command = Command::new(variable("RUSTC").expect("cargo names its compiler"));
    command
        .args(["--edition", "2024", "--crate-name", "demo", "--crate-type", "bin"])
        .args(["-C", "opt-level=z", "-C", "lto=fat", "-C", "codegen-units=1", "-C", "panic=abort"])
        .args(["-C", "strip=symbols", "-C", "target-feature=+crt-static"])
        .args(["-C", "relocation-model=static"])
        .arg("-o")
        .arg(program)
        .arg("program/main.rs");
    if let (Some(target), Some(host)) = (variable("TARGET"), variable("HOST"))
        && target != host
    {
        command.args(["--target", &target]);
        if let Some(linker) = variable("RUSTC_LINKER") {
            command.arg(format!("-Clinker={linker}"));
        }
    }
    command
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}
