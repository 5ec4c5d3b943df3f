//! What people do with kubectl in containers that run: attach, copy, debug, terminals, long
//! streams, logs that go on, ports.
//!
//! Everything goes through a real API server and the node's main server, in the protocol that
//! kubectl and the API server choose.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::image::BUSYBOX;
use ferrolet_lab::process::output;
use serde_json::json;

use super::{LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;
use crate::session::Session;

cases![
    a_container_is_attached_to_and_hears_the_end_of_input,
    a_debugging_container_is_talked_to,
    files_are_copied_both_ways,
    a_terminal_has_the_size_of_the_callers_and_follows_it,
    input_arrives_whole_and_commands_tell_their_codes,
    a_stream_that_is_silent_for_too_long_ends,
    a_followed_log_loses_nothing_when_it_is_rotated,
    a_fast_writer_is_followed_to_its_last_line,
    one_broken_connection_does_not_end_the_others,
];

/// Repeats what it hears, and tells when there is nothing more to hear.
const PARROT: &str = "while read line; do echo \"heard $line\"; done; echo no more; exit 5";

fn a_container_is_attached_to_and_hears_the_end_of_input(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let main = with(script("main", PARROT), json!({"stdin": true, "stdinOnce": true}));
    let pod = with(world.pod("parrot", &[main]), json!({"spec": {"restartPolicy": "Never"}}));
    world.run(&pod)?;
    let mut session = world.talk_to_kubectl(&["attach", "--stdin", "parrot"])?;
    session.say_until_heard("one\n", "heard one\n", SOON)?;
    session.say("two\n")?;
    session.wait_for("heard two\n", SOON)?;
    session.close_input();
    session.wait_end(SOON)?;
    ensure!(session.output().ends_with("heard two\nno more\n"), "it said {:?}", session.output());
    let seen = world.wait_pod("parrot", "ended", SOON, |pod| pod.phase() == "Failed")?;
    let code = &seen.0["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
    ensure!(*code == 5, "it ended with {code}");
    Ok(Outcome::Passed)
}

fn a_debugging_container_is_talked_to(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("worker", &[script("main", "exec sleep 54321")]);
    world.run(&pod)?;
    // It says nothing before it was spoken to, so what is heard came through the attached stream
    // and not from its log. Its last words before its end may be lost: containerd lets go of
    // standard output when standard error ends first.
    let text = "while read line; do echo \"heard $line\"; \
                [ $line = count ] && ps | grep -c '[s]leep 54321'; [ $line = last ] && exit 3; done";
    let mut session = world.talk_to_kubectl(&[
        "debug",
        "worker",
        "--stdin",
        "--image",
        BUSYBOX,
        "--image-pull-policy=IfNotPresent",
        "--container=helper",
        "--target=main",
        "--profile=general",
        "--",
        "sh",
        "-c",
        text,
    ])?;
    session.say_until_heard("hello\n", "heard hello\n", LATER)?;
    session.say("count\n")?;
    session.wait_for("heard count\n1\n", LATER)?;
    session.say("last\n")?;
    session.wait_end(LATER)?;
    let seen = world.wait_pod("worker", "with a helper that ended", SOON, |pod| {
        pod.0["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    })?;
    ensure!(seen.container("main")?.restarts() == 0, "main restarted");
    Ok(Outcome::Passed)
}

fn files_are_copied_both_ways(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("worker", &[sleeper("main")]);
    world.run(&pod)?;
    let here = world.node.node.directory().join("copied");
    fs::create_dir_all(here.join("there/deep"))?;
    // Larger than any buffer on the way, and without a period that a lost piece would keep.
    let mut state = 1u32;
    let large: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    })
    .take(3 << 20)
    .collect();
    fs::write(here.join("there/large"), &large)?;
    fs::write(here.join("there/deep/small"), "small\n")?;
    let at = |name: &str| here.join(name).display().to_string();
    world.kubectl(&["cp", &at("there"), "worker:/tmp/there"])?;
    let inside = world.kubectl(&["exec", "worker", "--", "sha256sum", "/tmp/there/large"])?;
    let outside = output(Command::new("sha256sum").arg(here.join("there/large")))?;
    let sum = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    ensure!(sum(&inside) == sum(&outside), "it is {inside} there and {outside} here");
    world.kubectl(&["cp", "worker:/tmp/there", &at("back")])?;
    ensure!(fs::read(here.join("back/large"))? == large, "another file came back");
    ensure!(fs::read(here.join("back/deep/small"))? == b"small\n", "another small file came back");
    Ok(Outcome::Passed)
}

fn a_terminal_has_the_size_of_the_callers_and_follows_it(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("worker", &[sleeper("main")]);
    world.run(&pod)?;
    let note = world.node.node.directory().join("terminal");
    let kubectl = world.kubectl_command(&["exec", "--stdin", "--tty", "worker", "--", "sh"]);
    let mut session = in_terminal(&kubectl, &note)?;
    ask_size(&mut session, "30 100")?;
    let terminal = fs::read_to_string(&note)?;
    let resize = ["rows", "41", "cols", "123"];
    output(Command::new("stty").args(["-F", terminal.trim()]).args(resize))?;
    ask_size(&mut session, "41 123")?;
    session.say("exit 7\n")?;
    let status = session.wait_end(SOON)?;
    ensure!(status.code() == Some(7), "it ended with {status}");
    Ok(Outcome::Passed)
}

/// A command in a terminal of 30 lines and 100 columns, whose path is written to a file.
fn in_terminal(command: &Command, note: &std::path::Path) -> Result<Session> {
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy());
    let words: Vec<String> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(quoted).collect();
    let text = format!(
        "stty rows 30 cols 100; tty > {}; exec {}",
        quoted(note.as_os_str()),
        words.join(" ")
    );
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--flush", "--command", &text])
        .arg("/dev/null")
        .env("SHELL", "/bin/sh")
        .env("TERM", "dumb");
    Session::start(script)
}

/// Asks the shell for its terminal's size until it is this one.
fn ask_size(session: &mut Session, size: &str) -> Result<()> {
    ferrolet_lab::wait_until(&format!("a terminal of {size}"), SOON, || {
        session.say("stty size\n")?;
        session.wait_for(size, Duration::from_secs(1))?;
        Ok(Some(()))
    })
}

fn input_arrives_whole_and_commands_tell_their_codes(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("worker", &[sleeper("main")]);
    world.run(&pod)?;
    // Only the end of input makes it answer.
    let mut count = world.talk_to_kubectl(&["exec", "--stdin", "worker", "--", "wc", "-c"])?;
    let piece = "0123456789abcde\n".repeat(4096);
    for _ in 0..20 {
        count.say(&piece)?;
    }
    count.expect_running()?;
    count.close_input();
    ensure!(count.wait_end(SOON)?.success(), "it said {}", count.errors());
    let n_sent = 20 * piece.len();
    ensure!(
        count.output().trim() == n_sent.to_string(),
        "of {n_sent} bytes arrived {}",
        count.output()
    );
    for (text, code) in [("exit 0", Some(0)), ("exit 42", Some(42)), ("kill -9 $$", Some(137))] {
        let mut session = world.talk_to_kubectl(&["exec", "worker", "--", "sh", "-c", text])?;
        let status = session.wait_end(SOON)?;
        ensure!(status.code() == code, "{text:?} ended with {status}");
    }
    let mut nothing = world.talk_to_kubectl(&["exec", "worker", "--", "no-such-program"])?;
    let status = nothing.wait_end(SOON)?;
    ensure!(
        !status.success() && nothing.errors().contains("no-such-program"),
        "it ended with {status}: {}",
        nothing.errors()
    );
    // Both outputs come on their own ways.
    let mut both = world.talk_to_kubectl(&[
        "exec",
        "worker",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 1",
    ])?;
    both.wait_end(SOON)?;
    ensure!(
        both.output() == "out\n" && both.errors().starts_with("err\n"),
        "it said {:?} and {:?}",
        both.output(),
        both.errors()
    );
    Ok(Outcome::Passed)
}

fn a_stream_that_is_silent_for_too_long_ends(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"streamingConnectionIdleTimeout": "8s"});
    let mut world = World::start_with(context, options)?;
    let pod = world.pod("worker", &[sleeper("main")]);
    world.run(&pod)?;
    let mut silent = world.talk_to_kubectl(&["exec", "worker", "--", "sleep", "100000"])?;
    // Longer than the idle time as a whole, never silent for that long.
    let talk = "for i in $(seq 30); do echo $i; sleep 0.3; done; echo done";
    let mut talker = world.talk_to_kubectl(&["exec", "worker", "--", "sh", "-c", talk])?;
    let status = talker.wait_end(SOON)?;
    ensure!(
        status.success() && talker.output().ends_with("30\ndone\n"),
        "it ended with {status}, said {:?} and {:?}",
        talker.output(),
        talker.errors()
    );
    // kubectl does not mind; without the idle time it would stay for a day.
    silent.wait_end(SOON)?;
    Ok(Outcome::Passed)
}

fn a_followed_log_loses_nothing_when_it_is_rotated(context: &mut Context<'_>) -> Result<Outcome> {
    const N_LINES: usize = 2000;
    let mut options = context.node_options();
    options.configuration = json!({
        "containerLogMaxSize": "20Ki",
        "containerLogMaxFiles": 5,
        "containerLogMonitorInterval": "3s",
    });
    let mut world = World::start_with(context, options)?;
    // Waits for the reader, then writes about 20 KiB in a second; each line has its number.
    let text = format!(
        "echo ready; while [ ! -e /go ]; do sleep 0.1; done; n=0; while [ $n -lt {N_LINES} ]; do i=0; \
         while [ $i -lt 40 ]; do echo \"line $n ........................................\"; \
         n=$((n+1)); i=$((i+1)); done; sleep 0.2; done; echo end; exec sleep 100000"
    );
    let pod = world.pod("talker", &[script("main", &text)]);
    let seen = world.run(&pod)?;
    let mut follower = world.talk_to_kubectl(&["logs", "--follow", "talker"])?;
    follower.wait_for("ready\n", SOON)?;
    world.kubectl(&["exec", "talker", "--", "touch", "/go"])?;
    follower.wait_for("\nend\n", 2 * LATER)?;
    let text = follower.output();
    let numbers: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("line ")?.split(' ').next()).collect();
    let first_wrong = numbers.iter().enumerate().find(|(n, number)| **number != n.to_string());
    ensure!(
        first_wrong.is_none() && numbers.len() == N_LINES,
        "{} lines, the first wrong one is {first_wrong:?}",
        numbers.len()
    );
    let directory = crate::look::log_directory(&world.node.node, &seen).join("main");
    let n_rotated = fs::read_dir(&directory)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("0.log."))
        .count();
    ensure!(n_rotated >= 2, "it was rotated {n_rotated} times");
    Ok(Outcome::Passed)
}

/// Kills what it holds.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It is ours and must not outlive us; one that has ended already is no error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_fast_writer_is_followed_to_its_last_line(context: &mut Context<'_>) -> Result<Outcome> {
    const N_LINES: usize = 200_000;
    const MAX_FILES: usize = 3;
    let mut options = context.node_options();
    options.configuration = json!({
        "containerLogMaxSize": "1Mi",
        "containerLogMaxFiles": MAX_FILES,
        "containerLogMonitorInterval": "3s",
    });
    let mut world = World::start_with(context, options)?;
    // As fast as it can, so that the log is rotated again before its reader is through with what
    // was rotated before.
    let text = format!(
        "echo ready; while [ ! -e /go ]; do sleep 0.1; done; \
         seq 1 {N_LINES} | sed 's/$/ ................................/'; echo end; exec sleep 100000"
    );
    let seen = world.run(&world.pod("talker", &[script("main", &text)]))?;
    let heard = world.node.node.directory().join("heard");
    let mut command = world.kubectl_command(&["logs", "--follow", "talker"]);
    let follower = command.stdout(fs::File::create(&heard)?).spawn()?;
    let mut follower = Ended(follower);
    let tail = |n: u64| -> Result<String> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = fs::File::open(&heard)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(n)))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    };
    world.node.node.wait("the follower", SOON, |_| Ok((tail(6)? == "ready\n").then_some(())))?;
    world.kubectl(&["exec", "talker", "--", "touch", "/go"])?;
    world.node.node.wait("its last line", 2 * LATER, |_| {
        ensure!(follower.0.try_wait()?.is_none(), "the follower has ended");
        let last = tail(4)?;
        ensure!(last == "end\n", "{} bytes so far", fs::metadata(&heard)?.len());
        Ok(Some(()))
    })?;
    let text = fs::read_to_string(&heard)?;
    let lines = text.lines().filter_map(|it| it.strip_suffix(" ................................"));
    let mut expected = 1..=N_LINES;
    for line in lines {
        let number = expected.next().map(|it| it.to_string());
        ensure!(Some(line) == number.as_deref(), "{line} where {number:?} should be");
    }
    ensure!(expected.next().is_none(), "only up to {expected:?}");
    let directory = crate::look::log_directory(&world.node.node, &seen).join("main");
    let names = || -> Result<Vec<String>> {
        let entries = fs::read_dir(&directory)?.flatten();
        Ok(entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect())
    };
    world.node.node.wait("the log to be within its number", SOON, |_| {
        let names = names()?;
        let n_rotated = names.iter().filter(|it| it.starts_with("0.log.")).count();
        let is_settled = !names.iter().any(|it| it.ends_with(".tmp"));
        ensure!(n_rotated >= 1 && names.len() <= MAX_FILES && is_settled, "there are {names:?}");
        Ok(Some(()))
    })?;
    Ok(Outcome::Passed)
}

fn one_broken_connection_does_not_end_the_others(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    // A shell for everybody who connects.
    let main = with(
        script("main", "exec nc -ll -p 8080 -e sh"),
        json!({"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}),
    );
    let pod = world.pod("server", &[main]);
    world.run(&pod)?;
    let port = ferrolet_lab::http::free_port()?;
    let ports = format!("{port}:8080");
    let mut forward = world.talk_to_kubectl(&["port-forward", "pod/server", &ports])?;
    forward.wait_for("Forwarding from", SOON)?;
    let mut steady = Line::connect(port)?;
    ensure!(steady.ask("echo one")? == "one", "no echo");
    // The server's end dies in the middle.
    let mut dying = Line::connect(port)?;
    ensure!(dying.ask("echo alive")? == "alive", "no echo");
    ensure!(dying.ask("kill -9 $$").is_err(), "a dead shell has answered");
    // The client's end goes away with megabytes unread, which resets the connection.
    let mut leaving = Line::connect(port)?;
    ensure!(leaving.ask("yes | head -c 8000000")? == "y", "nothing to leave unread");
    drop(leaving);
    for n in 0..3 {
        let word = format!("steady-{n}");
        ensure!(steady.ask(&format!("echo {word}"))? == word, "no echo");
        ensure!(Line::connect(port)?.ask("echo new")? == "new", "a new connection has no echo");
    }
    forward.expect_running()?;
    Ok(Outcome::Passed)
}

/// A shell at the other end of a connection, asked line by line.
struct Line(BufReader<TcpStream>);

impl Line {
    fn connect(port: u16) -> Result<Line> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connect")?;
        stream.set_read_timeout(Some(SOON))?;
        Ok(Line(BufReader::new(stream)))
    }

    /// The first line of the answer.
    fn ask(&mut self, command: &str) -> Result<String> {
        self.0.get_mut().write_all(format!("{command}\n").as_bytes())?;
        let mut answer = String::new();
        ensure!(self.0.read_line(&mut answer)? > 0, "the connection ended");
        Ok(answer.trim_end().to_owned())
    }
}
