//! What a real kernel must do for volumes that it keeps account of, as a callable check: the end-to-end
//! tests run it in a machine that has project quotas.

use std::{fs, io, path::Path};

use ferrolet_linux::{
    project_quota::{meter, metered},
    rooted::Rooted,
};

/// Where the contract was broken.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The kernel refused.
    #[error("{attempt}")]
    Call {
        /// What was tried.
        attempt: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel shows something else than was asked for.
    #[error("{0}")]
    Differs(String),
}

/// Checks that volumes below a directory are kept account of; it must be on a file system with
/// project quotas.
pub fn accounts(root: &Path) -> Result<(), Broken> {
    let process = |attempt| move |source| Broken::Call { attempt, source };
    let top = Rooted::open(root).map_err(process("open the root"))?;
    let make = |name: &str| {
        let made = top.ensure_directory(name, 0o777);
        made.map_err(process("make a volume"))
    };
    let (one, other) = (make("one")?, make("other")?);
    for (volume, name) in [(&one, "uid/one"), (&other, "uid/other")] {
        let is_metered = meter(volume, name).map_err(process("meter a volume"))?;
        if !is_metered {
            return Err(Broken::Differs("nobody keeps account".to_owned()));
        }
    }
    let write = || -> io::Result<()> {
        fs::create_dir(root.join("one/below"))?;
        fs::write(root.join("one/below/file"), vec![1; 3 << 20])?;
        fs::hard_link(root.join("one/below/file"), root.join("one/again"))?;
        rustix::fs::sync();
        Ok(())
    };
    write().map_err(process("write into a volume"))?;
    let (used, idle) = (metered(&one), metered(&other));
    // The volume, a directory and a file with two names.
    let is_right = used.is_some_and(|it| it.inodes == 3 && it.bytes > 3 << 20)
        && idle.is_some_and(|it| it.inodes == 1 && it.bytes < 1 << 20);
    if !is_right {
        return Err(Broken::Differs(format!("one volume has {used:?}, the other {idle:?}")));
    }
    // Found again by itself, and not counted twice.
    let again = meter(&make("third")?, "uid/one").map_err(process("meter a volume"))?;
    let third = metered(&make("third")?);
    if !again || third.is_none_or(|it| it.inodes != 1) {
        return Err(Broken::Differs(format!("an id that is taken was given again: {third:?}")));
    }
    Ok(())
}
