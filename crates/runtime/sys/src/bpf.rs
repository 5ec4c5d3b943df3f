//! Programs in the kernel: seccomp's filters, and the device filters of cgroup v2.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, Result};

use crate::result;

/// Puts a seccomp filter over this thread, for good. Eight bytes an instruction, as the kernel
/// takes them. Needs `no_new_privs` or CAP_SYS_ADMIN.
///
/// # Errors
///
/// The kernel's; `EINVAL` for what is no program.
pub fn install_seccomp(program: &[u8], flags: u32) -> Result<()> {
    let (instructions, rest) = program.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut filter: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|[code0, code1, jt, jf, k @ ..]| libc::sock_filter {
            code: u16::from_ne_bytes([*code0, *code1]),
            jt: *jt,
            jf: *jf,
            k: u32::from_ne_bytes(*k),
        })
        .collect();
    let length = libc::c_ushort::try_from(filter.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the program's length is its array's, both live through the call, and the kernel
    // checks and copies them.
    result(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    })?;
    Ok(())
}

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;

/// The beginning of `union bpf_attr` as it is for BPF_PROG_LOAD. The kernel takes what follows as
/// zeros.
#[repr(C)]
struct Load {
    kind: u32,
    n_instructions: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

/// The same for BPF_PROG_ATTACH.
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Has a program decide which devices a v2 cgroup may use. It stays as long as the cgroup.
///
/// # Errors
///
/// The kernel's; `EINVAL` for what is no program.
pub fn attach_device_filter(cgroup: impl AsFd, program: &[u8]) -> Result<()> {
    if !program.len().is_multiple_of(8) {
        return Err(Errno::INVAL);
    }
    let n_instructions = u32::try_from(program.len() / 8).map_err(|_| Errno::INVAL)?;
    let load = Load {
        kind: TYPE_CGROUP_DEVICE,
        n_instructions,
        instructions: program.as_ptr().addr() as u64,
        license: c"Apache-2.0".as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
    };
    // SAFETY: the pointers are to the program, whose length is given, and to a C string; both
    // outlive the call, and the kernel verifies what it loads.
    let loaded = result(unsafe {
        libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, size_of::<Load>())
    })?;
    let loaded = i32::try_from(loaded).map_err(|_| Errno::RANGE)?;
    // SAFETY: the kernel has just made it, and nobody else knows it.
    let loaded = unsafe { OwnedFd::from_raw_fd(loaded) };
    let attach = Attach {
        target: cgroup.as_fd().as_raw_fd().cast_unsigned(),
        program: loaded.as_raw_fd().cast_unsigned(),
        kind: ATTACH_CGROUP_DEVICE,
        flags: ALLOW_MULTI,
    };
    // SAFETY: two open descriptors and two numbers; the kernel reads nothing else.
    result(unsafe {
        libc::syscall(libc::SYS_bpf, PROG_ATTACH, &raw const attach, size_of::<Attach>())
    })?;
    Ok(())
}
