//! Exact lines at an exact time.

use std::io::Write;
use std::sync::{Arc, Mutex};

use jiff::tz::Offset;

use super::*;

/// What was written, readable from outside.
#[derive(Clone, Default)]
pub(super) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// 2025-11-15T21:19:18.123456Z, seen from an hour further east.
fn now() -> Zoned {
    let time = Timestamp::from_microsecond(1_763_241_558_123_456).unwrap();
    time.to_zoned(Offset::constant(1).to_time_zone())
}

/// Everything that `act` logs; the place that logged is written as `here`, since its line moves
/// with this file.
fn logged_with(control: &LogControl, act: impl FnOnce()) -> String {
    let sink = Sink::default();
    let streams =
        LogStreams::new(Box::new(sink.clone()), Box::new(std::io::sink()), Parting::Together);
    let mut log = Log::new(control.clone(), now, streams);
    log.pid = 12345;
    let subscriber = tracing_subscriber::registry().with(log);
    tracing::subscriber::with_default(subscriber, act);
    let text = sink.text();
    let mut pieces = text.split("tests.rs:");
    let mut cleaned = pieces.next().unwrap().to_owned();
    for piece in pieces {
        cleaned += "here";
        cleaned += piece.trim_start_matches(|letter: char| letter.is_ascii_digit());
    }
    cleaned
}

fn logged(format: Format, threshold: u32, act: impl FnOnce()) -> String {
    logged_with(&LogControl::new(format, threshold), act)
}

#[derive(Debug, thiserror::Error)]
#[error("start container web")]
struct Outer(#[source] std::io::Error);

fn failure() -> Outer {
    Outer(std::io::Error::other("no such file"))
}

#[test]
fn text_lines_are_klogs() {
    let check = |act: fn(), line: &str| {
        assert_eq!(logged(Format::Text, 0, act), format!("{line}\n"));
    };
    check(
        || tracing::info!(pod = %"ns/web", count = 3, ok = true, "Pod started"),
        r#"I1115 22:19:18.123456   12345 here] "Pod started" pod="ns/web" count=3 ok=true"#,
    );
    check(|| tracing::warn!("Careful"), r#"W1115 22:19:18.123456   12345 here] "Careful""#);
    check(
        || {
            let error = failure();
            let err = &error as &(dyn Error + 'static);
            tracing::error!(pod = "ns/web", err, "Failed");
        },
        r#"E1115 22:19:18.123456   12345 here] "Failed" err="start container web: no such file" pod="ns/web""#,
    );
    check(
        || tracing::info!(ratio = 0.5, text = "a \"b\"\t\\\x1b[31m", "Two\nlines"),
        r#"I1115 22:19:18.123456   12345 here] "Two\nlines" ratio=0.5 text="a \"b\"\t\\\x1b[31m""#,
    );
    check(
        || tracing::info!(output = "one\ntwo\n", after = 1, "Block"),
        "I1115 22:19:18.123456   12345 here] \"Block\" output=<\n\tone\n\ttwo\n > after=1",
    );
}

#[test]
fn json_lines_are_upstreams() {
    let check = |act: fn(), line: &str| {
        let logged = logged(Format::Json, 4, act);
        assert_eq!(logged, format!("{line}\n"));
        serde_json::from_str::<serde_json::Value>(&logged).unwrap();
    };
    check(
        || tracing::info!(pod = %"ns/web", count = 3, "Pod started"),
        r#"{"ts":1763241558123.456,"caller":"here","msg":"Pod started","v":0,"pod":"ns/web","count":3}"#,
    );
    check(
        || tracing::debug!(v = 3, text = "a\n\"b\"", ratio = f64::NAN, "Detail"),
        r#"{"ts":1763241558123.456,"caller":"here","msg":"Detail","v":3,"text":"a\n\"b\"","ratio":"NaN"}"#,
    );
    check(
        || {
            let error = failure();
            let err = &error as &(dyn Error + 'static);
            tracing::error!(err, pod = "ns/web", "Failed");
        },
        r#"{"ts":1763241558123.456,"caller":"here","msg":"Failed","pod":"ns/web","err":"start container web: no such file"}"#,
    );
}

#[test]
fn milliseconds_have_no_idle_zeros() {
    let check = |micros: i64, text: &str| {
        let time = Timestamp::from_microsecond(micros).unwrap();
        assert_eq!(milliseconds(time), text);
    };
    check(1_700_000_000_000_000, "1700000000000");
    check(1_700_000_000_120_000, "1700000000120");
    check(1_700_000_000_120_030, "1700000000120.03");
}

#[test]
fn the_threshold_decides_by_v_then_level_then_origin() {
    let heard = |threshold: u32| {
        let all = logged(Format::Text, threshold, || {
            tracing::error!("error");
            tracing::warn!(v = 9, "warning");
            tracing::info!("info");
            tracing::info!(v = 2, "info2");
            tracing::debug!("debug");
            tracing::debug!(v = 5_u64, "debug5");
            tracing::trace!("trace");
            tracing::error!(target: "hyper::proto", "foreign-error");
            tracing::info!(target: "hyper::proto", "foreign-info");
            tracing::trace!(target: "hyper::proto", "foreign-trace");
        });
        assert!(!all.contains("v="), "the verbosity is not printed");
        let names = all.lines().filter_map(|line| line.split('"').nth(1));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(heard(0), "error warning info foreign-error");
    assert_eq!(heard(2), "error warning info info2 foreign-error");
    assert_eq!(heard(4), "error warning info info2 debug foreign-error foreign-info");
    assert_eq!(heard(6), "error warning info info2 debug debug5 trace foreign-error foreign-info");
    assert!(heard(10).ends_with("foreign-trace"));
}

#[test]
fn the_threshold_can_move_while_the_agent_runs() {
    let control = LogControl::new(Format::Text, 0);
    let text = logged_with(&control, || {
        for threshold in [0, 4, 0, 5] {
            control.set_threshold(threshold);
            tracing::debug!("at {threshold}");
        }
    });
    let heard: Vec<&str> = text.lines().filter_map(|it| it.split('"').nth(1)).collect();
    assert_eq!(heard, ["at 4", "at 5"]);
    assert_eq!(control.threshold(), 5);
}

#[test]
fn some_files_can_be_louder_than_others() {
    let control = LogControl::new(Format::Text, 0);
    let rule = |pattern: &str| vec![Rule { pattern: pattern.to_owned(), threshold: 4 }];
    let text = logged_with(&control, || {
        for pattern in ["other", "logging/tests", "nothing", "t?sts"] {
            control.set_rules(rule(pattern));
            tracing::debug!("{pattern}");
        }
    });
    let heard: Vec<&str> = text.lines().filter_map(|it| it.split('"').nth(1)).collect();
    assert_eq!(heard, ["logging/tests", "t?sts"]);
}

#[test]
fn the_format_can_change_while_the_agent_runs() {
    let control = LogControl::new(Format::Text, 0);
    let text = logged_with(&control, || {
        tracing::info!("one");
        control.set_format(Format::Json);
        tracing::info!("two");
    });
    let starts: Vec<&str> = text.lines().map(|line| &line[..2]).collect();
    assert_eq!(starts, ["I1", "{\""]);
}

#[test]
fn spans_speak_first_and_events_have_the_last_word() {
    let text = logged(Format::Text, 0, || {
        let outer =
            tracing::info_span!("pod", pod = "ns/web", step = 1, late = tracing::field::Empty);
        let _outer = outer.enter();
        let inner = tracing::info_span!("container", container = "main");
        let _inner = inner.enter();
        outer.record("late", "yes");
        tracing::info!(step = 2, code = 7, "Done");
    });
    let expected = r#"I1115 22:19:18.123456   12345 here] "Done" pod="ns/web" step=2 late="yes" container="main" code=7"#;
    assert_eq!(text, format!("{expected}\n"));
}
