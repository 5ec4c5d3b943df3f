//! flexVolume drivers on a real node: the port `FlexDrivers`.
//!
//! ```text
//! <volumePluginDir>/<vendor>~<driver>/<driver>     the program; it answers each call with one object of JSON
//! ```
//!
//! A program that is new or has changed is asked first what it can do (`init`); what it does not
//! support is remembered as long as it stays the same, as upstream does. Instead of watching the
//! directory it is looked at before each call, which costs nothing while no pod wants a driver.
//! [`answer`] reads what a program says, [`places`] knows where volumes stand.
//!
//! Programs run without a shell, in a process group of their own, with a deadline and bounded
//! output, and end with whoever waits for them. Their words hold secrets and are never logged.
//! Refuses: names that lead out of the directory, and policy.

mod answer;
mod places;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ferrolet_linux::{
    children::{Bounds, NotRun, run_within},
    offload::{Job, Pool},
    rooted::is_plain_name,
};
use ferrolet_ports::{
    FlexAbilities, FlexAnswer, FlexCall, FlexCommand, FlexDrivers, FlexError, FlexPlace, FlexStand,
    Fut, HostError,
};
use ferrolet_types::PodUid;

use self::answer::Status;
use super::NodeVolumes;

/// An answer is a few words; one that is longer is not read.
const LONGEST_ANSWER: u64 = 64 * 1024;
/// What only asks or takes away.
const SHORT: Duration = Duration::from_secs(120);
/// What may have to wait for a disk, or make a file system: as long as upstream waits for one to be
/// attached.
const LONG: Duration = Duration::from_secs(600);

/// The drivers below one directory.
pub struct NodeFlexDrivers {
    directory: PathBuf,
    volumes: NodeVolumes,
    known: Mutex<BTreeMap<String, Known>>,
    patience: fn(FlexCommand) -> Duration,
}

/// What is remembered of a driver while its program stays the same.
#[derive(Clone, Debug)]
struct Known {
    mark: Mark,
    abilities: FlexAbilities,
    unsupported: BTreeSet<FlexCommand>,
}

/// By what a program is seen to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl NodeFlexDrivers {
    /// Takes the directory of drivers, and whose volumes they serve; touches nothing.
    pub fn new(directory: &Path, volumes: NodeVolumes) -> Self {
        Self { directory: directory.to_owned(), volumes, known: Mutex::default(), patience }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver's program and its mark.
    async fn find(&self, driver: &str) -> Result<(PathBuf, Mark), FlexError> {
        let directory = directory_name(driver).ok_or(FlexError::Missing)?;
        if !self.directory.is_absolute() {
            // Drivers are switched off; whatever stands where we happen to have been started is
            // none.
            return Err(FlexError::Missing);
        }
        let word = driver.rsplit('/').next().unwrap_or(driver).to_owned();
        let directory = self.directory.join(directory);
        let looked = Job::on(Pool::Mounts, format!("look for driver {driver}")).run(move || {
            // A link to a directory is not taken for a driver, as upstream has it; the program
            // itself may be one.
            let is_there = fs::symlink_metadata(&directory).is_ok_and(|it| it.is_dir());
            let program = directory.join(word);
            let found = fs::metadata(&program).ok().filter(fs::Metadata::is_file);
            Ok(found.filter(|_| is_there).map(|it| (program, mark_of(&it))))
        });
        match looked.await {
            Ok(found) => found.ok_or(FlexError::Missing),
            Err(error) => Err(FlexError::Failed(error.to_string())),
        }
    }

    async fn run(&self, program: &Path, call: &FlexCall) -> Result<Status, FlexError> {
        let bounds = Bounds { time: (self.patience)(call.command), output: LONGEST_ANSWER };
        let mut words = vec![call.command.word().to_owned()];
        words.extend(call.words.iter().cloned());
        let program = program.display().to_string();
        let ended = run_within(&program, &words, bounds).await;
        let ended = ended.map_err(|refusal| {
            FlexError::Failed(match refusal {
                NotRun::Overdue(_) => "timeout".to_owned(),
                NotRun::Missing(_) => format!("fork/exec {program}: no such file or directory"),
                NotRun::Refused(cause) => format!("fork/exec {program}: {cause}"),
            })
        })?;
        answer::read(call.command, &ended)
    }

    /// What is known of a driver whose program has that mark; asks it when nothing is.
    async fn introduced(
        &self,
        driver: &str,
        program: &Path,
        mark: Mark,
    ) -> Result<Known, FlexError> {
        let known = self.known().get(driver).cloned();
        if let Some(known) = known.filter(|it| it.mark == mark) {
            return Ok(known);
        }
        let init = FlexCall { command: FlexCommand::Init, words: Vec::new() };
        let status = self.run(program, &init).await.map_err(|error| {
            let directory = driver.replace('/', "~");
            FlexError::Broken(format!(
                "error creating Flexvolume plugin from directory {directory}, skipping. Error: {error}"
            ))
        })?;
        let known = Known { mark, abilities: status.abilities, unsupported: BTreeSet::new() };
        self.known().insert(driver.to_owned(), known.clone());
        tracing::info!(driver, abilities = ?known.abilities, "Volume driver introduced itself");
        Ok(known)
    }

    fn note_unsupported(&self, driver: &str, command: FlexCommand) {
        if let Some(known) = self.known().get_mut(driver) {
            known.unsupported.insert(command);
        }
    }

    fn at<'a, T: Send + 'static>(
        &self,
        attempt: &str,
        place: &FlexPlace,
        work: fn(&ferrolet_linux::rooted::Rooted, &FlexPlace) -> io::Result<T>,
    ) -> Fut<'a, Result<T, HostError>> {
        let (place, attempt) = (place.clone(), format!("{attempt} {}", shown(place)));
        self.volumes.at_root(attempt, move |root| work(root, &place))
    }

    fn path_of(&self, place: &FlexPlace) -> PathBuf {
        // A name that is not plain was refused before anybody asks where it is.
        let (directory, name) = places::parts(place).unwrap_or_default();
        self.volumes.root.join(directory).join(name)
    }
}

impl FlexDrivers for NodeFlexDrivers {
    fn abilities<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<FlexAbilities, FlexError>> {
        Box::pin(async move {
            let (program, mark) = self.find(driver).await?;
            let known = self.introduced(driver, &program, mark).await?;
            Ok(known.abilities)
        })
    }

    fn call<'a>(
        &'a self,
        driver: &'a str,
        call: &'a FlexCall,
    ) -> Fut<'a, Result<FlexAnswer, FlexError>> {
        Box::pin(async move {
            let (program, mark) = self.find(driver).await?;
            let known = self.introduced(driver, &program, mark).await?;
            if known.unsupported.contains(&call.command) {
                return Err(FlexError::NotSupported);
            }
            let answer = self.run(&program, call).await;
            if answer == Err(FlexError::NotSupported) {
                self.note_unsupported(driver, call.command);
            }
            answer.map(|status| FlexAnswer { device: status.device })
        })
    }

    fn make_place<'a>(&'a self, place: &'a FlexPlace) -> Fut<'a, Result<FlexStand, HostError>> {
        Box::pin(async move {
            let is_mounted = self.at("make place for", place, places::make).await?;
            Ok(FlexStand { path: self.path_of(place), is_mounted })
        })
    }

    fn look_at<'a>(
        &'a self,
        place: &'a FlexPlace,
    ) -> Fut<'a, Result<Option<FlexStand>, HostError>> {
        Box::pin(async move {
            let found = self.at("look at", place, places::look).await?;
            Ok(found.map(|is_mounted| FlexStand { path: self.path_of(place), is_mounted }))
        })
    }

    fn clear_place<'a>(&'a self, place: &'a FlexPlace) -> Fut<'a, Result<(), HostError>> {
        self.at("clear", place, places::clear)
    }

    fn users<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
    ) -> Fut<'a, Result<Vec<PodUid>, HostError>> {
        let (driver, volume) = (driver.to_owned(), volume.to_owned());
        let attempt = format!("find users of volume {volume}");
        self.volumes.at_root(attempt, move |root| places::users(root, &driver, &volume))
    }

    fn stored(&self) -> Fut<'_, Result<Vec<(String, String)>, HostError>> {
        let attempt = "list volumes of drivers".to_owned();
        self.volumes.at_root(attempt, places::stored)
    }
}

fn patience(command: FlexCommand) -> Duration {
    match command {
        FlexCommand::WaitForAttach
        | FlexCommand::MountDevice
        | FlexCommand::Mount
        | FlexCommand::ExpandFs => LONG,
        FlexCommand::Init
        | FlexCommand::GetVolumeName
        | FlexCommand::Attach
        | FlexCommand::Unmount
        | FlexCommand::UnmountDevice
        | FlexCommand::Detach => SHORT,
    }
}

/// The directory of a driver; `None` for what cannot be the name of one.
fn directory_name(driver: &str) -> Option<String> {
    let is_one = !driver.contains('~') && driver.split('/').all(is_plain_name);
    (is_one && !driver.starts_with('.')).then(|| driver.replace('/', "~"))
}

fn mark_of(program: &fs::Metadata) -> Mark {
    Mark {
        device: program.dev(),
        inode: program.ino(),
        size: program.size(),
        changed: (program.ctime(), program.ctime_nsec()),
    }
}

fn shown(place: &FlexPlace) -> &str {
    match place {
        FlexPlace::Pod(place) => &place.name,
        FlexPlace::Node { volume, .. } => volume,
    }
}
