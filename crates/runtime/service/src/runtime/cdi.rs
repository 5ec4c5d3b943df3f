//! The files of devices' vendors, read when a container names a device of theirs.
//!
//! They are read anew each time: vendors' programs write them while the node runs, often just before the container that
//! needs them is made.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_plan::cdi::{Catalogue, Edits, MAX_DOCUMENT};
use tokio::time::timeout;

use super::{
    error::RuntimeError,
    files::{names, off_thread, read},
};

/// Where they are; what is in a later directory counts before what is in an earlier one.
const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// How many files of a directory are read.
const MOST_FILES: usize = 1024;
/// How long reading may take.
const READING: Duration = Duration::from_secs(10);

/// What a container gets by the devices that it names.
pub(super) async fn resolve(devices: &[cri::CdiDevice]) -> Result<Edits, RuntimeError> {
    if devices.is_empty() {
        return Ok(Edits::default());
    }
    let wanted: Vec<String> = devices.iter().map(|it| it.name.clone()).collect();
    let overdue = |_| RuntimeError::Overdue {
        attempt: "read files of CDI devices",
        seconds: READING.as_secs(),
    };
    let look = off_thread(move || Ok(catalogue(&DIRECTORIES.map(PathBuf::from))?.edits(&wanted)?));
    timeout(READING, look).await.map_err(overdue)?
}

/// Blocking.
fn catalogue(directories: &[PathBuf]) -> Result<Catalogue, RuntimeError> {
    let mut catalogue = Catalogue::default();
    for directory in directories {
        let is_ours = |name: &String| {
            let extension = Path::new(name).extension().and_then(|it| it.to_str());
            matches!(extension, Some("json" | "yaml" | "yml"))
        };
        let mut found: Vec<String> = names(directory)?.into_iter().filter(is_ours).collect();
        found.sort();
        let read_one = |name: String| {
            let path = directory.join(&name);
            // One that cannot be read is told as a document that is none.
            let content = read(&path, MAX_DOCUMENT as u64).unwrap_or_default();
            (path.display().to_string(), content)
        };
        let files: Vec<_> = found.into_iter().take(MOST_FILES).map(read_one).collect();
        catalogue.add_directory(&files);
    }
    Ok(catalogue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_of_both_kinds_are_read_and_others_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let yaml = "cdiVersion: 0.5.0\nkind: v/c\ndevices: [{name: a}]\n";
        let json =
            "{\"cdiVersion\": \"0.5.0\", \"kind\": \"v/d\", \"devices\": [{\"name\": \"b\"}]}";
        fs::write(place.path().join("one.yaml"), yaml).unwrap();
        fs::write(place.path().join("two.json"), json).unwrap();
        fs::write(place.path().join("notes.txt"), "nothing").unwrap();
        let directories = [place.path().to_owned(), place.path().join("missing")];
        let catalogue = catalogue(&directories).unwrap();
        let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert!(catalogue.edits(&names(&["v/c=a", "v/d=b"])).is_ok());
        let missing = catalogue.edits(&names(&["v/c=b"])).unwrap_err();
        assert_eq!(missing.to_string(), "unresolvable CDI devices v/c=b");
    }
}
