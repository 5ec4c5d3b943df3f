//! The `ferrolet` executable; called through a link named `kubelet` it is the kubelet.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ferrolet::main(std::env::args_os())
}
