//! The kernel's log, read from `/dev/kmsg`: the port `KernelLog`.
//!
//! One descriptor that is waited for, no thread. Begins with what is said after it was opened: what
//! an earlier life has seen is not told again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use ferrolet_linux::{offload::refused, sys::watch_readable};
use ferrolet_ports::{Fut, HostError, KernelLog};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

const DEVICE: &str = "/dev/kmsg";
/// Longer than a record can be.
const RECORD: usize = 8 * 1024;

/// Records of the kernel's log.
pub struct KernelRecords {
    device: AsyncFd<File>,
}

impl KernelRecords {
    /// Opens the log at its end.
    pub fn open() -> Result<Self, HostError> {
        let open = || {
            let mut device = OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open(DEVICE)?;
            device.seek(SeekFrom::End(0))?;
            watch_readable(device)
        };
        let device = open().map_err(|cause| refused(format!("open {DEVICE}"), &cause))?;
        Ok(Self { device })
    }

    async fn read(&mut self) -> io::Result<String> {
        let mut record = vec![0; RECORD];
        loop {
            let mut ready = self.device.readable().await?;
            let read = ready.try_io(|device| device.get_ref().read(&mut record));
            match read {
                Ok(Ok(n)) => return Ok(String::from_utf8_lossy(&record[..n]).into_owned()),
                // Overwritten before we came to it: the next read gives the oldest that is there.
                Ok(Err(error)) if Errno::from_io_error(&error) == Some(Errno::PIPE) => {}
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                // It was not ready after all.
                Err(_) => {}
            }
        }
    }
}

impl KernelLog for KernelRecords {
    fn next(&mut self) -> Fut<'_, Result<String, HostError>> {
        Box::pin(async move {
            let read = self.read().await;
            read.map_err(|cause| refused(format!("read {DEVICE}"), &cause))
        })
    }
}
