//! Real files in a directory of their own, read through the port.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrolet_ports::{HostError, LogAsk, LogFiles as _, LogOutput, LogPieces, StillWritten};

use super::NodeLogs;

const SOON: Duration = Duration::from_secs(20);

struct Writer(AtomicBool);

impl StillWritten for Writer {
    fn is_written(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn plain() -> LogAsk {
    LogAsk {
        tail_lines: None,
        since: None,
        limit_bytes: None,
        with_timestamps: false,
        output: LogOutput::All,
        follow: None,
    }
}

/// A line written `second` seconds after the hour.
fn line(second: u32, stream: &str, tag: &str, text: &str) -> String {
    format!("2026-01-01T00:00:{second:02}.5Z {stream} {tag} {text}\n")
}

struct Home {
    held: tempfile::TempDir,
    logs: NodeLogs,
}

impl Home {
    fn new() -> Self {
        let held = tempfile::tempdir().unwrap();
        fs::create_dir_all(held.path().join("pod/main")).unwrap();
        let logs = NodeLogs::new(held.path());
        Self { held, logs }
    }

    fn path(&self) -> PathBuf {
        self.held.path().join("pod/main/0.log")
    }

    fn append(&self, text: &str) {
        append(&self.path(), text);
    }

    async fn open(&self, ask: LogAsk) -> Result<Box<dyn LogPieces>, HostError> {
        self.logs.open(self.path().to_str().unwrap(), ask).await
    }

    async fn read(&self, ask: LogAsk) -> Result<String, HostError> {
        let mut pieces = self.open(ask).await?;
        let mut text = Vec::new();
        while let Some(piece) = pieces.next().await? {
            text.extend(piece);
        }
        Ok(String::from_utf8(text).unwrap())
    }
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[tokio::test]
async fn every_option_gives_what_upstream_gives() {
    let home = Home::new();
    home.append(&line(1, "stdout", "F", "one"));
    home.append(&line(2, "stderr", "F", "two"));
    home.append(&line(3, "stdout", "P", "thr"));
    home.append(&line(4, "stdout", "F", "ee"));
    home.append("nonsense\n");
    home.append(&line(5, "stdout", "F", ""));
    home.append(&line(6, "stdout", "F", "six"));
    let check = async |ask: LogAsk, expected: &str| {
        assert_eq!(home.read(ask).await.unwrap(), expected);
    };
    let since = |second: i64| LogAsk {
        since: Some(ferrolet_types::Timestamp::from_second(1_767_225_600 + second)),
        ..plain()
    };
    let tail = |lines| LogAsk { tail_lines: Some(lines), ..plain() };
    check(plain(), "one\ntwo\nthree\n\nsix\n").await;
    check(tail(0), "").await;
    check(tail(1), "six\n").await;
    check(tail(2), "\nsix\n").await;
    // Lines of the file are counted, so a part is one, and so is nonsense.
    check(tail(4), "ee\n\nsix\n").await;
    check(tail(100), "one\ntwo\nthree\n\nsix\n").await;
    check(since(3), "three\n\nsix\n").await;
    check(LogAsk { since: since(6).since, ..tail(2) }, "six\n").await;
    check(since(60), "").await;
    check(LogAsk { limit_bytes: Some(5), ..plain() }, "one\nt").await;
    check(LogAsk { limit_bytes: Some(4), ..plain() }, "one\n").await;
    check(LogAsk { output: LogOutput::Stderr, ..plain() }, "two\n").await;
    check(LogAsk { output: LogOutput::Stdout, limit_bytes: Some(5), ..plain() }, "one\nt").await;
    let timed = LogAsk { with_timestamps: true, ..since(2) };
    check(
        timed,
        "2026-01-01T00:00:02.500000000Z two\n2026-01-01T00:00:03.500000000Z three\n\
         2026-01-01T00:00:05.500000000Z \n2026-01-01T00:00:06.500000000Z six\n",
    )
    .await;
    check(
        LogAsk { with_timestamps: true, limit_bytes: Some(32), ..plain() },
        "2026-01-01T00:00:01.500000000Z o",
    )
    .await;
}

#[tokio::test]
async fn the_end_of_a_file_may_be_missing() {
    let home = Home::new();
    home.append(&line(1, "stdout", "F", "one"));
    home.append("2026-01-01T00:00:02Z stdout F cut o");
    assert_eq!(home.read(plain()).await.unwrap(), "one\ncut o");
    // A line without an end is not counted as one, and the count holds.
    let one = LogAsk { tail_lines: Some(1), ..plain() };
    assert_eq!(home.read(one).await.unwrap(), "one\n");
}

#[tokio::test]
async fn large_logs_and_long_lines_come_whole_and_in_pieces() {
    let home = Home::new();
    let mut expected = String::new();
    let mut raw = String::new();
    for i in 0..5000 {
        let text = format!("{i} {}", "x".repeat(i % 100));
        raw += &line(1, "stdout", "F", &text);
        expected += &format!("{text}\n");
    }
    let long = "y".repeat(700_000);
    raw += &line(2, "stdout", "F", &long);
    expected += &format!("{long}\n");
    home.append(&raw);
    let mut pieces = home.open(plain()).await.unwrap();
    let mut got = Vec::new();
    while let Some(piece) = pieces.next().await.unwrap() {
        assert!(piece.len() <= 300 * 1024, "{}", piece.len());
        got.extend(piece);
    }
    assert!(got == expected.as_bytes());
    let tail = LogAsk { tail_lines: Some(3000), ..plain() };
    let got = home.read(tail).await.unwrap();
    assert!(got.starts_with("2001 "), "{}", &got[..20]);
    assert!(expected.ends_with(&got));
}

#[tokio::test]
async fn what_is_no_log_is_refused() {
    let home = Home::new();
    home.append("{\"log\":\"docker\"}\n");
    let error = home.read(plain()).await.unwrap_err();
    assert!(error.to_string().contains("unsupported log format"), "{error}");
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), line(1, "stdout", "F", "secret")).unwrap();
    let base = home.held.path();
    std::os::unix::fs::symlink(outside.path().join("secret"), base.join("pod/main/1.log")).unwrap();
    std::os::unix::fs::symlink(outside.path(), base.join("pod/link")).unwrap();
    for path in [
        base.join("pod/main/1.log"),
        base.join("pod/link/secret"),
        base.join("pod/main/../../pod/main/0.log"),
        base.join("pod/main/missing.log"),
        base.join("pod/main"),
        outside.path().join("secret"),
        PathBuf::from("/etc/passwd"),
        PathBuf::new(),
    ] {
        let opened = home.logs.open(path.to_str().unwrap(), plain()).await;
        assert!(opened.is_err(), "{path:?}");
    }
}

/// A follower whose text is collected as it comes.
struct Follower {
    pieces: Box<dyn LogPieces>,
    heard: String,
}

impl Follower {
    async fn until(&mut self, expected: &str) {
        while self.heard != expected {
            let piece = tokio::time::timeout(SOON, self.pieces.next()).await;
            let piece = piece.unwrap_or_else(|_| panic!("{:?} came, then nothing", self.heard));
            let piece = piece.unwrap().expect("it goes on");
            self.heard += std::str::from_utf8(&piece).unwrap();
            assert!(expected.starts_with(&self.heard), "{:?}", self.heard);
        }
    }

    async fn end(&mut self) {
        let end = tokio::time::timeout(SOON, self.pieces.next()).await;
        assert_eq!(end.expect("it ends in time").unwrap(), None);
    }
}

async fn follow(home: &Home, ask: LogAsk) -> (Follower, Arc<Writer>) {
    let writer = Arc::new(Writer(AtomicBool::new(true)));
    let ask = LogAsk { follow: Some(writer.clone()), ..ask };
    let pieces = home.open(ask).await.unwrap();
    (Follower { pieces, heard: String::new() }, writer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_log_survives_rotation_and_ends_with_its_writer() {
    for is_watched in [true, false] {
        let home = Home::new();
        let watch = is_watched.then(|| tokio::spawn(home.logs.watch_changes()));
        home.append(&line(1, "stdout", "F", "zero"));
        home.append(&line(1, "stdout", "F", "one"));
        let tail = LogAsk { tail_lines: Some(1), ..plain() };
        let (mut follower, writer) = follow(&home, tail).await;
        follower.until("one\n").await;
        home.append("2026-01-01T00:00:02Z stdout F tw");
        home.append("o\n");
        follower.until("one\ntwo\n").await;
        // Renamed first; the runtime still writes to the old file until it is told to open anew.
        let rotated = home.path().with_file_name("0.log.20260101-000000");
        fs::rename(home.path(), &rotated).unwrap();
        append(&rotated, &line(3, "stdout", "F", "three"));
        follower.until("one\ntwo\nthree\n").await;
        home.append(&line(4, "stdout", "F", "four"));
        append(&rotated, &line(4, "stdout", "F", "late"));
        follower.until("one\ntwo\nthree\nlate\nfour\n").await;
        home.append(&line(5, "stdout", "F", "last"));
        writer.0.store(false, Ordering::Relaxed);
        follower.until("one\ntwo\nthree\nlate\nfour\nlast\n").await;
        follower.end().await;
        if let Some(watch) = watch {
            watch.abort();
        }
    }
}

/// A fast writer and a slow reader: the log is rotated several times while the reader is at its
/// first file, and what was rotated is compressed or removed before it gets there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_some_rotations_behind_misses_none_of_them() {
    for is_writer_gone in [false, true] {
        let home = Home::new();
        let watch = tokio::spawn(home.logs.watch_changes());
        home.append(&line(0, "stdout", "F", "0"));
        let (mut follower, writer) = follow(&home, plain()).await;
        follower.until("0\n").await;
        let mut expected = "0\n".to_owned();
        for n in 1..=5 {
            let rotated = format!("0.log.20260101-00000{n}");
            let rotated = home.path().with_file_name(rotated);
            fs::rename(home.path(), &rotated).unwrap();
            home.append(&line(n, "stdout", "F", &n.to_string()));
            expected += &format!("{n}\n");
        }
        let behind = async {
            while home.logs.changes.n_behind() < 5 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, behind).await.unwrap();
        for n in 1..=5 {
            let rotated = format!("0.log.20260101-00000{n}");
            fs::remove_file(home.path().with_file_name(rotated)).unwrap();
        }
        if is_writer_gone {
            writer.0.store(false, Ordering::Relaxed);
        }
        follower.until(&expected).await;
        assert_eq!(home.logs.changes.n_behind(), 0);
        writer.0.store(false, Ordering::Relaxed);
        follower.end().await;
        watch.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_cut_short_is_read_from_its_start() {
    let home = Home::new();
    home.append(&line(1, "stdout", "F", "a long first line"));
    let (mut follower, writer) = follow(&home, plain()).await;
    follower.until("a long first line\n").await;
    fs::write(home.path(), line(2, "stdout", "F", "b")).unwrap();
    follower.until("a long first line\nb\n").await;
    writer.0.store(false, Ordering::Relaxed);
    follower.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_followers_share_one_watch_and_give_it_back() {
    let home = Home::new();
    let watch = tokio::spawn(home.logs.watch_changes());
    home.append(&line(1, "stdout", "F", "x"));
    let mut followers = Vec::new();
    for _ in 0..200 {
        followers.push(follow(&home, plain()).await.0);
    }
    for follower in &mut followers {
        follower.until("x\n").await;
    }
    home.append(&line(2, "stdout", "F", "y"));
    for follower in &mut followers {
        follower.until("x\ny\n").await;
    }
    assert_eq!(home.logs.changes.n_watched(), 1);
    drop(followers);
    assert_eq!(home.logs.changes.n_watched(), 0);
    watch.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_log_is_told_at_once() {
    let home = Home::new();
    let watch = tokio::spawn(home.logs.watch_changes());
    home.append(&line(1, "stdout", "F", "begin"));
    let (mut follower, _writer) = follow(&home, plain()).await;
    let (tell, mut told) = tokio::sync::mpsc::channel(10);
    let reading = tokio::spawn(async move {
        while let Ok(Some(piece)) = follower.pieces.next().await {
            tell.send(piece).await.unwrap();
        }
    });
    assert_eq!(told.recv().await.unwrap(), b"begin\n");
    let began = tokio::time::Instant::now();
    for round in 0..8 {
        home.append(&line(2, "stdout", "F", &round.to_string()));
        let piece = tokio::time::timeout(SOON, told.recv()).await;
        assert_eq!(piece.unwrap().unwrap(), format!("{round}\n").as_bytes());
    }
    // Without the watch each round but the first would take a second.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    reading.abort();
    watch.abort();
}
