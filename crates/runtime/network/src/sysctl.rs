//! Settings of a network that have no message: files below `/proc/sys/net`, which shows each thread its own namespace's.

use std::fs;

use rustix::io::Errno;

use crate::plan::range::Range;

const SETTINGS: &str = "/proc/sys/net";

/// A file that was not written, and why.
type Refused = (String, Errno);

/// Has the node forward packets of the families that pods have.
pub(crate) fn forward(ranges: &[Range]) -> Result<(), Refused> {
    if ranges.iter().any(|it| !it.is_ipv6()) {
        write("ipv4/ip_forward", "1")?;
    }
    if ranges.iter().any(Range::is_ipv6) {
        keep_advertisements();
        write("ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

/// A node that forwards ignores routers' advertisements, by which many have their default route; 2 means to hear them
/// nevertheless.
fn keep_advertisements() {
    if read("ipv6/conf/all/forwarding").as_deref() == Some("1") {
        return;
    }
    let Ok(links) = fs::read_dir(format!("{SETTINGS}/ipv6/conf")) else { return };
    for link in links.flatten() {
        let Ok(name) = link.file_name().into_string() else { continue };
        let setting = format!("ipv6/conf/{name}/accept_ra");
        if name != "all" && read(&setting).as_deref() == Some("1") {
            // A link that went meanwhile needs none.
            let _gone = write(&setting, "2");
        }
    }
}

/// Has a link ignore routers: a pod's addresses and routes are the node's to give.
pub(crate) fn no_advertisements(link: &str) -> Result<(), Refused> {
    write(&format!("ipv6/conf/{link}/accept_ra"), "0")
}

/// As the kernel shows it: a number and the end of a line.
fn read(name: &str) -> Option<String> {
    // The kernel's own file, of a few bytes.
    let bytes = fs::read(format!("{SETTINGS}/{name}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Writes what is not so already: where settings are read-only, that they are right is enough.
fn write(name: &str, value: &str) -> Result<(), Refused> {
    if read(name).as_deref() == Some(value) {
        return Ok(());
    }
    let path = format!("{SETTINGS}/{name}");
    fs::write(&path, value)
        .map_err(|error| (path, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}
