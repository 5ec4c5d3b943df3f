//! Filters of system calls: profiles read from the node, compiled once, and kept.
//!
//! What is kept is found by the profile's digest and the container's capabilities, so a file that
//! changes means another filter for containers made after that, and none for those there are.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_images::Digest;
use ferrolet_runtime_plan::{
    Refusal, SeccompProfile, capabilities, defaults::capability, seccomp_profile,
};
use ferrolet_runtime_seccomp::{Arch, Document, Filter, MAX_DOCUMENT, Node, default_profile};
use tokio::time::timeout;

use super::{
    Runtime,
    error::RuntimeError,
    files::{disk, off_thread},
};

/// How many filters are kept. A node has a handful; when there are more, all are made anew.
const MOST: usize = 64;
/// How long a profile may take to be read: its directory may be another machine's.
const READING: Duration = Duration::from_secs(10);

/// Filters by the digest of their profile, empty for the default one, and by capabilities.
#[derive(Default)]
pub(super) struct Filters(Mutex<BTreeMap<(String, u64), Arc<Filter>>>);

impl Filters {
    fn find(&self, key: &(String, u64)) -> Option<Arc<Filter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn keep(&self, key: (String, u64), filter: Filter) -> Arc<Filter> {
        let filter = Arc::new(filter);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(key, Arc::clone(&filter));
        filter
    }
}

impl Runtime {
    /// The filter that a container asks for; none: it asks for none.
    pub(super) async fn seccomp_filter(
        &self,
        config: &cri::ContainerConfig,
    ) -> Result<Option<Arc<Filter>>, RuntimeError> {
        let asked = seccomp_profile(config)?;
        if asked == SeccompProfile::Unconfined {
            return Ok(None);
        }
        let unsupported = Refusal::Unsupported("a seccomp profile on this architecture");
        let arch = Arch::native().ok_or(unsupported)?;
        let capabilities = capabilities(config)?;
        let filters = &self.0.filters;
        let SeccompProfile::Localhost(path) = asked else {
            let key = (String::new(), capabilities);
            if let Some(filter) = filters.find(&key) {
                return Ok(Some(filter));
            }
            let compiled = default_profile(arch, capabilities).compile();
            let filter = compiled.map_err(|it| broken(Path::new("RuntimeDefault"), &it))?;
            return Ok(Some(filters.keep(key, filter)));
        };
        let path = PathBuf::from(path);
        let overdue = |_| RuntimeError::Overdue {
            attempt: "read seccomp profile",
            seconds: READING.as_secs(),
        };
        let reading = {
            let path = path.clone();
            off_thread(move || Ok::<_, RuntimeError>((read(&path)?, kernel_version())))
        };
        let (bytes, kernel) = timeout(READING, reading).await.map_err(overdue)??;
        let key = (Digest::of(&bytes).to_string(), capabilities);
        if let Some(filter) = filters.find(&key) {
            return Ok(Some(filter));
        }
        let node = Node { arch, kernel, capabilities };
        let filter = compile(&path, &bytes, node)?;
        Ok(Some(filters.keep(key, filter)))
    }
}

fn compile(path: &Path, bytes: &[u8], node: Node) -> Result<Filter, RuntimeError> {
    let document = Document::parse(bytes).map_err(|it| broken(path, &it))?;
    let profile = document.resolve(node, capability).map_err(|it| broken(path, &it))?;
    profile.compile().map_err(|it| broken(path, &it))
}

fn broken(path: &Path, problem: &dyn std::error::Error) -> RuntimeError {
    RuntimeError::Seccomp { path: path.to_owned(), problem: problem.to_string() }
}

/// A plain file, and no more of it than a profile can be: one byte more shows that it is too large.
fn read(path: &Path) -> Result<Vec<u8>, RuntimeError> {
    let failed = || disk("read seccomp profile", path);
    if !fs::metadata(path).map_err(failed())?.is_file() {
        return Err(RuntimeError::Seccomp {
            path: path.to_owned(),
            problem: "not a plain file".to_owned(),
        });
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed())?;
    file.take(MAX_DOCUMENT as u64 + 1).read_to_end(&mut bytes).map_err(failed())?;
    Ok(bytes)
}

/// Major and minor; what cannot be read is older than everything.
fn kernel_version() -> (u32, u32) {
    let mut text = Vec::new();
    let file = fs::File::open("/proc/sys/kernel/osrelease");
    let _unread = file.and_then(|it| it.take(64).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let mut numbers = text.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_from_its_file_and_a_broken_one_named() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("p.json");
        let node = Node { arch: Arch::X8664, kernel: (6, 1), capabilities: 0 };
        let check = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            let read = read(&path).and_then(|bytes| compile(&path, &bytes, node));
            read.map_err(|it| it.to_string().replace(path.to_str().unwrap(), "FILE"))
        };
        assert!(check(br#"{"defaultAction": "SCMP_ACT_ALLOW"}"#).is_ok());
        assert_eq!(
            check(br#"{"defaultAction": "ALLOW"}"#).unwrap_err(),
            "seccomp profile FILE: defaultAction: unknown action \"ALLOW\""
        );
        assert_eq!(
            check(&vec![b' '; MAX_DOCUMENT + 9]).unwrap_err(),
            "seccomp profile FILE: larger than 1048576 bytes"
        );
        assert!(
            read(Path::new("/dev/zero")).unwrap_err().to_string().ends_with("not a plain file")
        );
        assert!(kernel_version() >= (5, 0));
    }

    #[test]
    fn filters_are_kept_up_to_a_bound() {
        let filters = Filters::default();
        let filter = Filter { program: vec![0; 8], flags: 0 };
        let first = filters.keep((String::new(), 0), filter.clone());
        assert!(Arc::ptr_eq(&first, &filters.find(&(String::new(), 0)).unwrap()));
        for at in 1..=MOST as u64 {
            filters.keep((String::new(), at), filter.clone());
        }
        assert_eq!(filters.find(&(String::new(), 0)), None);
        assert!(filters.find(&(String::new(), MOST as u64)).is_some());
    }
}
