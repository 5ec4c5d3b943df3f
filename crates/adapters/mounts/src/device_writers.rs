//! Programs that write to a disk: `mkfs`, `fsck`, `resize2fs` and their kin. One that was broken off
//! in the middle may leave less than it found, so nobody ends one: not a deadline, not a pod that is
//! gone, not the agent leaving.
//!
//! In: a device, and words. Out: how the program ended; or, while one is still at work on the device,
//! that whoever asks must come back. Until then nothing else is done with the device. Kept in memory
//! only: after a restart the kernel refuses to mount what a program from before has claimed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ferrolet_linux::{
    children::{Ended, NotRun, run_to_end},
    offload::{Job, Pool},
};
use ferrolet_ports::{HostError, Retry};
use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};

/// Whoever asks is answered within this time, as for other programs.
const PATIENCE: Duration = Duration::from_secs(120);
const LONGEST_OUTPUT: u64 = 4096;

/// The programs that are at work on disks, by the disk's own name.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceWriters {
    at_work: Arc<Mutex<BTreeMap<PathBuf, AtWork>>>,
}

#[derive(Clone, Debug)]
struct AtWork {
    program: String,
    /// Ends with the program.
    ended: watch::Receiver<()>,
}

impl DeviceWriters {
    fn at_work(&self) -> MutexGuard<'_, BTreeMap<PathBuf, AtWork>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits a while until no program writes to the device.
    pub(crate) async fn settle(&self, device: &str) -> Result<(), HostError> {
        self.settle_at(&real(device).await?).await
    }

    async fn settle_at(&self, device: &Path) -> Result<(), HostError> {
        let found = self.at_work().get(device).cloned();
        let Some(mut found) = found else {
            return Ok(());
        };
        // Nothing is ever sent: that the sender is gone is the news.
        match timeout(PATIENCE, found.ended.changed()).await {
            Ok(_gone) => Ok(()),
            Err(_elapsed) => Err(still_at_work(&found.program, device)),
        }
    }

    /// Runs a program that writes to the device, to its end, and waits a while for that.
    pub(crate) async fn run(
        &self,
        device: &str,
        program: &str,
        words: Vec<String>,
    ) -> Result<Result<Ended, NotRun>, HostError> {
        let device = real(device).await?;
        self.settle_at(&device).await?;
        let (answer, answered) = oneshot::channel();
        let (sender, ended) = watch::channel(());
        let at_work = AtWork { program: program.to_owned(), ended };
        self.at_work().insert(device.clone(), at_work);
        let (all, own, program) = (self.clone(), device.clone(), program.to_owned());
        let called = program.clone();
        // A task of its own: it goes on when nobody waits any more.
        tokio::spawn(async move {
            let ended = run_to_end(&program, &words, LONGEST_OUTPUT).await;
            all.at_work().remove(&own);
            drop(sender);
            // Nobody may be listening any more.
            answer.send(ended).ok();
        });
        match timeout(PATIENCE, answered).await {
            Ok(Ok(ended)) => Ok(ended),
            Ok(Err(_gone)) => Err(refused(&called, "it was broken off".to_owned())),
            Err(_elapsed) => Err(still_at_work(&called, &device)),
        }
    }
}

/// The device itself, whatever it was called.
async fn real(device: &str) -> Result<PathBuf, HostError> {
    let named = PathBuf::from(device);
    let job = Job::on(Pool::Mounts, "find a device");
    job.run(move || Ok(fs::canonicalize(&named).unwrap_or(named))).await
}

fn still_at_work(program: &str, device: &Path) -> HostError {
    refused(program, format!("still at work on device {}", device.display()))
}

fn refused(program: &str, cause: String) -> HostError {
    HostError { attempt: program.to_owned(), cause, retry: Retry::Later }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_program_at_work_on_a_disk_is_waited_for_and_never_ended() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        // It reads until somebody has opened the other end and gone.
        let made = std::process::Command::new("mkfifo").arg(at("held")).status();
        assert!(made.unwrap().success());
        fs::write(at("disk"), "").unwrap();
        std::os::unix::fs::symlink(at("disk"), at("link")).unwrap();
        let writers = DeviceWriters::default();
        let still = format!("still at work on device {}", at("disk"));
        let why = |it: Result<(), HostError>| it.unwrap_err().cause;

        // Whoever began it goes away at once; another waits, and is told to come back.
        let disk = at("disk");
        let began = writers.run(&disk, "cp", vec![at("held"), at("written")]);
        assert!(timeout(Duration::from_millis(1), began).await.is_err());
        assert_eq!(why(writers.settle(&at("disk")).await), still);
        let other = writers.run(&at("link"), "true", Vec::new()).await;
        assert_eq!(other.err().unwrap().cause, still);
        assert_eq!(writers.settle(&at("other")).await, Ok(()));

        let held = at("held");
        let letting = tokio::task::spawn_blocking(move || fs::write(held, "all of it"));
        letting.await.unwrap().unwrap();
        tokio::time::resume();
        writers.settle(&at("link")).await.unwrap();
        assert_eq!(fs::read_to_string(at("written")).unwrap(), "all of it");
        let ended = writers.run(&at("disk"), "true", Vec::new()).await.unwrap().unwrap();
        assert_eq!(ended.code, Some(0));
        let missing = writers.run(&at("disk"), "ferrolet-no-program", Vec::new()).await.unwrap();
        assert!(matches!(missing, Err(NotRun::Missing(_))));
    }
}
