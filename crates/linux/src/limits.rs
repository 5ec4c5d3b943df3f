//! Bounds of this process: how many files it may have open.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many files this process may have open after it asked for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFiles {
    /// As many as were asked for.
    AsAsked,
    /// The most that this process may give itself.
    AtMost(u64),
}

/// Bounds the files that this process may have open (`maxOpenFiles`). Raising the bound beyond the
/// one it was started with wants CAP_SYS_RESOURCE; without it, it takes what it may.
pub fn set_max_open_files(n_files: u64) -> io::Result<OpenFiles> {
    let both = Rlimit { current: Some(n_files), maximum: Some(n_files) };
    let Err(refusal) = setrlimit(Resource::Nofile, both) else {
        return Ok(OpenFiles::AsAsked);
    };
    let most = getrlimit(Resource::Nofile).maximum;
    let Some(allowed) = most.filter(|most| *most < n_files) else {
        return Err(refusal.into());
    };
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    Ok(OpenFiles::AtMost(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_taken() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
        assert_eq!(set_max_open_files(most).unwrap(), OpenFiles::AsAsked);
        let after = getrlimit(Resource::Nofile);
        assert_eq!((after.current, after.maximum), (Some(most), Some(most)));
    }
}
