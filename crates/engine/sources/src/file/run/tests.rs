use std::{collections::BTreeMap, path::Path, sync::Mutex};

use ferrolet_ports::{Fut, ManifestFile};
use ferrolet_types::pod::{PodSource, PodView as _};

use super::*;

const PERIOD: Duration = Duration::from_secs(20);

fn manifest(name: &str, image: &str) -> Result<Vec<u8>, String> {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: main, image: '{image}'}}]}}\n"
    );
    Ok(text.into_bytes())
}

/// A directory in memory.
#[derive(Default)]
struct FakeDirectory {
    files: Mutex<BTreeMap<PathBuf, Result<Vec<u8>, String>>>,
    fault: Mutex<Option<String>>,
    hints: Mutex<Option<mpsc::Receiver<Gone>>>,
}

impl FakeDirectory {
    fn write(&self, name: &str, content: Result<Vec<u8>, String>) {
        self.files.lock().unwrap().insert(Path::new("/m").join(name), content);
    }

    fn remove(&self, name: &str) {
        self.files.lock().unwrap().remove(&Path::new("/m").join(name));
    }

    fn listing(&self) -> Result<Vec<ManifestFile>, String> {
        match &*self.fault.lock().unwrap() {
            Some(fault) => Err(fault.clone()),
            None => Ok(self.files.lock().unwrap().clone().into_iter().collect()),
        }
    }
}

impl ManifestFiles for FakeDirectory {
    fn read<'a>(&'a self, _path: &'a Path) -> Fut<'a, Result<Vec<ManifestFile>, String>> {
        Box::pin(async { self.listing() })
    }

    fn watch(&self, _path: &Path) -> Box<dyn ChangeHints> {
        let hints = self.hints.lock().unwrap().take();
        Box::new(FakeHints(hints.expect("it is watched once")))
    }
}

struct FakeHints(mpsc::Receiver<Gone>);

impl ChangeHints for FakeHints {
    fn next(&mut self) -> Fut<'_, Option<Gone>> {
        Box::pin(self.0.recv())
    }
}

struct Running {
    directory: Arc<FakeDirectory>,
    hints: mpsc::Sender<Gone>,
    updates: mpsc::Receiver<SourceUpdate>,
}

fn start(directory: FakeDirectory) -> Running {
    let (hints, hinted) = mpsc::channel(64);
    let directory = Arc::new(FakeDirectory { hints: Mutex::new(Some(hinted)), ..directory });
    let (sender, updates) = mpsc::channel(8);
    let source = FileSource { path: "/m".into(), node: "node-a".to_owned(), period: PERIOD };
    tokio::spawn(run(source, directory.clone(), sender));
    Running { directory, hints, updates }
}

/// The next update; an hour without one is a failure, and costs nothing.
async fn next(updates: &mut mpsc::Receiver<SourceUpdate>) -> SourceUpdate {
    let update = timeout(Duration::from_secs(3600), updates.recv()).await;
    update.expect("an update within the hour").expect("the loop runs")
}

/// The names and images of an update.
fn names(update: &SourceUpdate) -> Vec<String> {
    let name = |pod: &ferrolet_types::Pod| {
        let image = pod.spec_ref().containers[0].image.clone().unwrap_or_default();
        format!("{}={image}", pod.key())
    };
    update.pods.iter().map(|sourced| name(&sourced.pod)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_reading_is_sent_even_when_it_is_empty() {
    let mut running = start(FakeDirectory::default());
    let update = next(&mut running.updates).await;
    assert_eq!((update.source, update.pods.len()), (PodSource::File, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_answered_within_milliseconds() {
    let mut running = start(FakeDirectory::default());
    next(&mut running.updates).await;
    let began = Instant::now();
    running.directory.write("a.yaml", manifest("a", "i"));
    running.hints.send(Gone::new()).await.unwrap();
    let update = next(&mut running.updates).await;
    assert_eq!(names(&update), ["default/a-node-a=i"]);
    assert!(began.elapsed() <= Duration::from_millis(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn endless_hints_delay_a_reading_only_so_long() {
    let mut running = start(FakeDirectory::default());
    next(&mut running.updates).await;
    running.directory.write("a.yaml", manifest("a", "i"));
    let hints = running.hints.clone();
    tokio::spawn(async move {
        while hints.send(Gone::new()).await.is_ok() {
            sleep(Duration::from_millis(1)).await
        }
    });
    let began = Instant::now();
    next(&mut running.updates).await;
    assert!(began.elapsed() <= LONGEST_BURST + QUIET, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_hints_the_clock_finds_the_change() {
    let mut running = start(FakeDirectory::default());
    next(&mut running.updates).await;
    let Running { directory, hints, updates } = &mut running;
    let (spare, _) = mpsc::channel(1);
    drop(std::mem::replace(hints, spare));
    let began = Instant::now();
    directory.write("a.yaml", manifest("a", "i"));
    assert_eq!(names(&next(updates).await).len(), 1);
    assert!(began.elapsed() <= PERIOD);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_nothing_changes() {
    let directory = FakeDirectory::default();
    directory.write("a.yaml", manifest("a", "i"));
    let mut running = start(directory);
    next(&mut running.updates).await;
    let silence = timeout(PERIOD * 10, running.updates.recv()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test(start_paused = true)]
async fn the_loop_ends_when_nobody_listens() {
    let Running { hints, updates, .. } = start(FakeDirectory::default());
    drop(updates);
    // The loop owns the other end of the hints.
    hints.closed().await;
}

/// A file that went is a pod that went, however soon the file is back.
#[tokio::test(start_paused = true)]
async fn a_manifest_that_was_taken_away_and_put_back_is_a_pod_that_left_and_came() {
    let directory = FakeDirectory::default();
    for name in ["a", "b"] {
        directory.write(&format!("{name}.yaml"), manifest(name, "i"));
    }
    let mut running = start(directory);
    let both = ["default/a-node-a=i", "default/b-node-a=i"];
    assert_eq!(names(&next(&mut running.updates).await), both);
    // Two hints of one burst, the second about something else.
    running.hints.send(Gone::from(["a.yaml".into()])).await.unwrap();
    running.hints.send(Gone::new()).await.unwrap();
    assert_eq!(names(&next(&mut running.updates).await), ["default/b-node-a=i"]);
    assert_eq!(names(&next(&mut running.updates).await), both);
}

#[tokio::test(start_paused = true)]
async fn what_went_and_had_no_pod_is_no_news() {
    let directory = FakeDirectory::default();
    directory.write("a.yaml", manifest("a", "i"));
    directory.write("bad.yaml", Ok(Vec::new()));
    let mut running = start(directory);
    next(&mut running.updates).await;
    let gone = Gone::from(["bad.yaml".into(), "draft.yaml".into()]);
    running.hints.send(gone).await.unwrap();
    let silence = timeout(PERIOD * 3, running.updates.recv()).await;
    assert!(silence.is_err(), "{silence:?}");
}

/// A path with one good file beside the one that the test changes.
fn set() -> (FileSet, FakeDirectory) {
    let directory = FakeDirectory::default();
    directory.write("good.yaml", manifest("good", "g"));
    directory.write("x.yaml", manifest("x", "1"));
    let mut files = FileSet::new("n");
    let first = files.scan("/m", directory.listing());
    assert_eq!(names(&first.update.unwrap()), ["default/good-n=g", "default/x-n=1"]);
    (files, directory)
}

#[test]
fn a_file_that_turns_bad_is_reported_once_and_keeps_its_pod() {
    let cases = [
        ("broken YAML", Ok(b"kind: [Pod".to_vec()), "the manifest is not valid YAML or JSON: "),
        (
            "unknown field",
            Ok(b"kind: Pod\napiVersion: v1\nspecs: {}".to_vec()),
            "specs: unknown field \"specs\" with value {}, did you mean \"spec\"?",
        ),
        (
            "wrong type",
            Ok(b"kind: Pod\napiVersion: v1\nspec: 1".to_vec()),
            "spec: invalid value 1: expected an object, found a number",
        ),
        (
            "too large",
            Ok(vec![b'#'; crate::manifest::MAX_BYTES + 1]),
            "the manifest is larger than 10 MiB",
        ),
        ("junk", Ok(vec![0, 1, 2]), "the manifest is not text: byte 0x00 at offset 0"),
        ("cut to nothing", Ok(Vec::new()), "the manifest is empty"),
        (
            "unreadable",
            Err("permission denied".to_owned()),
            "cannot read the manifest: permission denied",
        ),
        (
            "a directory",
            Err("is a directory".to_owned()),
            "cannot read the manifest: is a directory",
        ),
    ];
    for (what, content, message) in cases {
        let (mut files, directory) = set();
        directory.write("x.yaml", content);
        let scanned = files.scan("/m", directory.listing());
        assert_eq!(scanned.update, None, "{what}");
        assert_eq!(scanned.notices.len(), 1, "{what}");
        assert_eq!(&*scanned.notices[0].origin, "/m/x.yaml", "{what}");
        let told = &scanned.notices[0].message;
        assert!(told.starts_with(message), "{what}: {told}");
        assert!(told.ends_with("; its pod keeps running as last read"), "{what}: {told}");
        assert_eq!(
            files.scan("/m", directory.listing()),
            crate::file::Scanned::default(),
            "{what}"
        );
        // Good again as before: no news, because nothing changed in between.
        directory.write("x.yaml", manifest("x", "1"));
        assert_eq!(
            files.scan("/m", directory.listing()),
            crate::file::Scanned::default(),
            "{what}"
        );
        // The same fault after it was good is news.
        directory.write("x.yaml", Ok(Vec::new()));
        assert_eq!(files.scan("/m", directory.listing()).notices.len(), 1, "{what}");
    }
}

#[test]
fn a_bad_file_that_was_never_good_is_reported_and_nothing_else_happens() {
    let (mut files, directory) = set();
    directory.write("y.yaml~", Ok(b"b0VIM 9.1".to_vec()));
    let scanned = files.scan("/m", directory.listing());
    assert_eq!(scanned.update, None);
    assert_eq!(
        scanned.notices[0].message,
        "expected an object, found \"b0VIM 9.1\"; it looks like an editor's copy, which does not belong into the manifest path"
    );
}

#[test]
fn a_repaired_file_brings_its_new_pod_and_a_vanished_one_takes_it_away() {
    let (mut files, directory) = set();
    directory.write("x.yaml", Ok(Vec::new()));
    files.scan("/m", directory.listing());
    directory.write("x.yaml", manifest("x", "2"));
    let update = files.scan("/m", directory.listing()).update.unwrap();
    assert_eq!(names(&update), ["default/good-n=g", "default/x-n=2"]);
    directory.remove("x.yaml");
    let update = files.scan("/m", directory.listing()).update.unwrap();
    assert_eq!(names(&update), ["default/good-n=g"]);
}

#[test]
fn a_bad_file_that_is_removed_takes_its_last_good_pod_with_it() {
    let (mut files, directory) = set();
    directory.write("x.yaml", Ok(Vec::new()));
    files.scan("/m", directory.listing());
    directory.remove("x.yaml");
    assert_eq!(names(&files.scan("/m", directory.listing()).update.unwrap()).len(), 1);
}

#[test]
fn a_path_that_cannot_be_read_changes_nothing_and_is_reported_once() {
    let (mut files, directory) = set();
    *directory.fault.lock().unwrap() = Some("input/output error".to_owned());
    let scanned = files.scan("/m", directory.listing());
    assert_eq!(scanned.update, None);
    assert_eq!(scanned.notices[0].message, "cannot read the manifest path: input/output error");
    assert_eq!(files.scan("/m", directory.listing()), crate::file::Scanned::default());
}

#[test]
fn a_warning_is_given_once_per_content() {
    let mut files = FileSet::new("n");
    let directory = FakeDirectory::default();
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priority: 1, containers: [{name: m, image: i}]}";
    directory.write("a.yaml", Ok(text.as_bytes().to_vec()));
    assert_eq!(files.scan("/m", directory.listing()).notices.len(), 1);
    assert_eq!(files.scan("/m", directory.listing()).notices.len(), 0);
}
