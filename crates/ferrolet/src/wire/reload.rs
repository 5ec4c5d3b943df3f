//! The configuration read again while the agent runs: on SIGHUP, and when its files change.
//!
//! ```text
//!  SIGHUP, inotify ─► read until it rests ─► load: the whole of it ─┬─ faults: told, nothing changes
//!                                                                   └─ compare ─► live fields: applied
//!                                                                                 others: told as waiting
//! ```
//!
//! Owner of the configuration in force. Which fields are live is `ferrolet_config`'s to say; how they
//! are applied is the caller's. Refuses: applying half of a configuration.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use ferrolet_config::{
    CgroupVersion, Change, CommandLine, Effect, Loaded, NamedText, RawConfig, compare, load,
};
use ferrolet_host::watch::DirectoryWatch;
use ferrolet_linux::offload::{Job, Pool, never};
use ferrolet_ports::{Event, EventKind, EventObject, Events};
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::sleep,
};

use crate::{config_command::record_path, files::read_configuration};

/// A file that is being written is looked at again after this long, until it rests.
const REST: Duration = Duration::from_millis(200);
/// Files that never rest are taken as they are after so many looks.
const MOST_LOOKS: u32 = 25;

/// What applies the live fields of a configuration, or says why it cannot be used.
pub(super) type Apply = Box<dyn Fn(&Loaded) -> Result<(), String> + Send + Sync>;

/// What a reload needs.
pub(super) struct Reload {
    command_line: CommandLine,
    version: CgroupVersion,
    running: RawConfig,
    /// What was read last, so that a change that is none is not told.
    texts: Result<Texts, String>,
    apply: Apply,
    events: Arc<dyn Events>,
    shown: watch::Sender<String>,
}

type Texts = (Option<NamedText>, Vec<NamedText>);

/// Why the files are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Somebody asked, and wants an answer.
    Asked,
    /// Something moved in the directory.
    Moved,
}

/// What `/configz` answers.
pub(super) fn configz(running: &RawConfig, waiting: &[String]) -> String {
    let mut answer = json!({"kubeletconfig": running.to_json()});
    if !waiting.is_empty() {
        answer["ferrolet"] = json!({"waitingForRestart": waiting});
    }
    answer.to_string()
}

impl Reload {
    pub(super) fn new(
        command_line: &CommandLine,
        (loaded, texts): (&Loaded, Texts),
        version: CgroupVersion,
        apply: Apply,
        (events, shown): (Arc<dyn Events>, watch::Sender<String>),
    ) -> Self {
        Self {
            command_line: command_line.clone(),
            version,
            running: loaded.raw.clone(),
            texts: Ok(texts),
            apply,
            events,
            shown,
        }
    }

    /// Listens for ever.
    pub(super) async fn run(mut self) {
        self.record().await;
        let mut hangups = match signal(SignalKind::hangup()) {
            Ok(hangups) => Some(hangups),
            Err(error) => {
                tracing::warn!(%error, "SIGHUP is not listened to");
                None
            }
        };
        let flags = &self.command_line.flags;
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let mut file = flags.config.as_ref().map(|path| DirectoryWatch::file(&absolute(path)));
        let mut directory =
            flags.config_dir.as_ref().map(|path| DirectoryWatch::directory(absolute(path)));
        loop {
            // All are cancel-safe: the kernel remembers a signal, and a watch what it gathered.
            let cause = tokio::select! {
                () = hung_up(&mut hangups) => Cause::Asked,
                () = moved(&mut file) => Cause::Moved,
                () = moved(&mut directory) => Cause::Moved,
            };
            self.look(cause).await;
        }
    }

    /// Reads what there is and takes it, if it is any good.
    async fn look(&mut self, cause: Cause) {
        let texts = self.read_rested().await;
        if texts == self.texts && cause == Cause::Moved {
            return;
        }
        self.texts.clone_from(&texts);
        let next = texts.and_then(|(main, dropins)| {
            let next =
                load(&self.command_line, main, &dropins).map_err(|error| error.to_string())?;
            next.config.check_host(self.version).map_err(|faults| {
                faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            })?;
            Ok(next)
        });
        match next {
            Ok(next) => self.take(&next).await,
            Err(fault) => self.reject(&fault),
        }
    }

    fn reject(&self, fault: &str) {
        tracing::error!(fault, "The new configuration cannot be used; the old one stays");
        let message = format!("the new configuration cannot be used, the old one stays: {fault}");
        self.say(EventKind::Warning, "ConfigRejected", message);
    }

    /// Applies what can change now, and tells what cannot.
    async fn take(&mut self, next: &Loaded) {
        let changes = compare(&self.running, &next.raw);
        if changes.is_empty() {
            tracing::info!("The configuration was read again; it is as before");
            self.shown.send_replace(configz(&self.running, &[]));
            return;
        }
        let named = |effect: Effect| -> Vec<String> {
            let of = changes.iter().filter(|it| it.effect == effect);
            of.map(|it: &Change| it.path.clone()).collect()
        };
        let (applied, waiting) = (named(Effect::Now), named(Effect::AfterRestart));
        if let Err(fault) = (self.apply)(next) {
            return self.reject(&fault);
        }
        self.running = self.running.with_live_fields_of(&next.raw);
        self.shown.send_replace(configz(&self.running, &waiting));
        self.record().await;
        let list = |names: &[String]| {
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        };
        let (applied, waiting) = (list(&applied), list(&waiting));
        tracing::info!(applied, waitingForRestart = waiting, "The configuration was read again");
        let message = format!(
            "configuration read again; applied: {applied}; waiting for a restart: {waiting}"
        );
        self.say(EventKind::Normal, "ConfigReloaded", message);
    }

    /// The files as they are once they rest: an editor may be in the middle of writing.
    async fn read_rested(&self) -> Result<Texts, String> {
        let mut last = self.read().await;
        for _ in 0..MOST_LOOKS {
            sleep(REST).await;
            let now = self.read().await;
            if now == last {
                return now;
            }
            last = now;
        }
        last
    }

    async fn read(&self) -> Result<Texts, String> {
        let command_line = self.command_line.clone();
        let attempt = "read the configuration";
        let job = Job::on(Pool::State, attempt).alone("configuration");
        let work = move || {
            read_configuration(&command_line).map_err(|error| never(attempt, format!("{error:#}")))
        };
        job.run(work).await.map_err(|error| error.to_string())
    }

    /// Leaves what is in force where `ferrolet config diff` finds it.
    async fn record(&self) {
        let path = record_path(&self.command_line.flags.root_dir);
        let text = self.running.to_json().to_string();
        let job = Job::on(Pool::State, "record the configuration");
        let work = move || {
            write_record(&path, &text)
                .map_err(|error| never("record the configuration", format!("{error:#}")))
        };
        if let Err(error) = job.run(work).await {
            tracing::warn!(%error, "`ferrolet config diff` will not know what this agent runs with");
        }
    }

    fn say(&self, kind: EventKind, reason: &str, message: String) {
        let reason = reason.to_owned();
        self.events.record(Event { object: EventObject::Node, kind, reason, message });
    }
}

/// Replaces the record whole, readable by root alone.
fn write_record(path: &std::path::Path, text: &str) -> anyhow::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let fresh = path.with_extension("json.new");
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&fresh).with_context(|| format!("make {}", fresh.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("write {}", fresh.display()))?;
    std::fs::rename(&fresh, path).with_context(|| format!("rename to {}", path.display()))
}

async fn hung_up(hangups: &mut Option<tokio::signal::unix::Signal>) {
    let heard = match hangups {
        Some(hangups) => hangups.recv().await,
        None => None,
    };
    if heard.is_none() {
        std::future::pending().await
    }
}

async fn moved(watch: &mut Option<DirectoryWatch>) {
    match watch {
        Some(watch) => drop(watch.next().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ferrolet_config::Invocation;

    use super::*;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    /// More than this machine can do with.
    const TOO_MANY: u32 = 1000;

    #[derive(Default)]
    struct Heard(Mutex<Vec<(String, String)>>);

    impl Events for Heard {
        fn record(&self, event: Event) {
            self.0.lock().unwrap().push((event.reason, event.message));
        }
    }

    struct Rig {
        path: PathBuf,
        _directory: tempfile::TempDir,
        reload: Reload,
        heard: Arc<Heard>,
        shown: watch::Receiver<String>,
        applied: Arc<Mutex<Vec<u32>>>,
    }

    fn rig() -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.yaml");
        std::fs::write(&path, format!("{HEAD}maxPods: 5\n")).unwrap();
        let flags = [
            format!("--config={}", path.display()),
            format!("--root-dir={}", directory.path().display()),
        ];
        let Ok(Invocation::Run(command_line)) = CommandLine::parse(flags) else {
            panic!("these are flags");
        };
        let texts = read_configuration(&command_line).unwrap();
        let loaded = load(&command_line, texts.0.clone(), &texts.1).unwrap();
        let heard = Arc::new(Heard::default());
        let applied = Arc::new(Mutex::new(Vec::new()));
        let noted = applied.clone();
        let apply: Apply = Box::new(move |next| match next.config.node.max_pods {
            TOO_MANY => Err("too many".to_owned()),
            n => {
                noted.lock().unwrap().push(n);
                Ok(())
            }
        });
        let (shown_sender, shown) = watch::channel(configz(&loaded.raw, &[]));
        let reload = Reload::new(
            &command_line,
            (&loaded, texts),
            CgroupVersion::V2,
            apply,
            (heard.clone(), shown_sender),
        );
        Rig { path, _directory: directory, reload, heard, shown, applied }
    }

    impl Rig {
        async fn put(&mut self, fields: &str) {
            std::fs::write(&self.path, format!("{HEAD}{fields}\n")).unwrap();
            self.reload.look(Cause::Moved).await;
        }

        fn shown(&self) -> serde_json::Value {
            serde_json::from_str(&self.shown.borrow()).unwrap()
        }

        fn reasons(&self) -> Vec<String> {
            self.heard.0.lock().unwrap().iter().map(|(reason, _)| reason.clone()).collect()
        }
    }

    #[tokio::test]
    async fn live_fields_are_applied_and_the_rest_is_named_as_waiting() {
        let mut rig = rig();
        rig.put("maxPods: 7\nport: 1234").await;
        assert_eq!(*rig.applied.lock().unwrap(), [7]);
        assert_eq!(rig.shown()["kubeletconfig"]["maxPods"], 7);
        assert_eq!(rig.shown()["kubeletconfig"]["port"], 10250, "as it listens");
        assert_eq!(rig.shown()["ferrolet"]["waitingForRestart"], json!(["port"]));
        let said = rig.heard.0.lock().unwrap()[0].clone();
        let message = "configuration read again; applied: maxPods; waiting for a restart: port";
        assert_eq!(said, ("ConfigReloaded".to_owned(), message.to_owned()));
        rig.put("maxPods: 7").await;
        assert_eq!(rig.shown().get("ferrolet"), None, "nothing waits any more");
    }

    #[tokio::test]
    async fn a_bad_file_changes_nothing_and_is_told_once() {
        let mut rig = rig();
        for _ in 0..2 {
            rig.put("maxPods: 9\nmaxPod: 9").await;
        }
        assert_eq!(rig.reasons(), ["ConfigRejected"]);
        assert!(rig.applied.lock().unwrap().is_empty());
        assert_eq!(rig.shown()["kubeletconfig"]["maxPods"], 5);
        std::fs::remove_file(&rig.path).unwrap();
        rig.reload.look(Cause::Moved).await;
        assert_eq!(rig.reasons(), ["ConfigRejected", "ConfigRejected"]);
        rig.put("maxPods: 9").await;
        assert_eq!(*rig.applied.lock().unwrap(), [9]);
    }

    #[tokio::test]
    async fn what_does_not_fit_the_machine_changes_nothing_either() {
        let mut rig = rig();
        rig.put("maxPods: 1000\nport: 1234").await;
        assert_eq!(rig.reasons(), ["ConfigRejected"]);
        assert_eq!(rig.shown()["kubeletconfig"]["maxPods"], 5);
        assert_eq!(rig.shown().get("ferrolet"), None);
    }

    #[tokio::test]
    async fn what_is_in_force_is_left_for_others_to_compare() {
        let mut rig = rig();
        rig.put("maxPods: 8").await;
        let record = record_path(rig.path.parent().unwrap());
        let text = std::fs::read_to_string(&record).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["maxPods"], 8);
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
