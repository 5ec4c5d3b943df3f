//! What the program can do, by name.

use std::{
    env, fs,
    io::{self, Read as _, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{names::NAMES, shell, web};

/// Runs a command; its exit code.
pub(crate) fn run(words: &[String], output: &mut dyn Write) -> i32 {
    let Some((name, rest)) = words.split_first() else { return 0 };
    // The name may come with its directory.
    let name = name.strip_prefix("/bin/").unwrap_or(name);
    let done = match name {
        "sh" => return shell::call(rest),
        "httpd" => return web::serve(rest),
        "true" => return 0,
        "false" => return 1,
        "burn" => loop {
            std::hint::spin_loop();
        },
        "sleep" => sleep(rest),
        "echo" => echo(rest, output),
        "cat" => rest.iter().try_for_each(|path| copy(path, output)),
        "ls" => list(rest, output),
        "touch" => each(rest, |path| {
            fs::OpenOptions::new().create(true).append(true).open(path).map(drop)
        }),
        "rm" => each(rest, |path| fs::remove_file(path)),
        "mkdir" => each(rest, |path| fs::create_dir_all(path)),
        "env" => env::vars().try_for_each(|(name, value)| say(output, &format!("{name}={value}"))),
        "hostname" => copy("/proc/sys/kernel/hostname", output),
        "id" => identity(output),
        "date" => say(output, &date(seconds())),
        "addresses" => addresses().iter().try_for_each(|address| say(output, address)),
        "fetch" => fetch(rest, output),
        other => {
            eprintln!("{other}: not found; there is {}", NAMES.join(", "));
            return 127;
        }
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("{name}: {why}");
            1
        }
    }
}

type Done = Result<(), String>;

fn say(output: &mut dyn Write, line: &str) -> Done {
    writeln!(output, "{line}").map_err(|error| error.to_string())
}

fn echo(words: &[String], output: &mut dyn Write) -> Done {
    match words.split_first() {
        Some((flag, rest)) if flag == "-n" => {
            write!(output, "{}", rest.join(" ")).map_err(|error| error.to_string())
        }
        _ => say(output, &words.join(" ")),
    }
}

fn sleep(words: &[String]) -> Done {
    let word = words.first().map(String::as_str).unwrap_or_default();
    let (number, unit) = match word.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &word[number.len()..]),
        None if word == "infinity" => ("100000", "d"),
        None => (word, "s"),
    };
    let factor = match unit {
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => 1.0,
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * factor);
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    thread::sleep(span.ok_or_else(|| format!("{word:?} is no time such as 5 or 0.5 or 2m"))?);
    Ok(())
}

fn copy(path: &str, output: &mut dyn Write) -> Done {
    let at = |error: io::Error| format!("{path}: {error}");
    let mut file = fs::File::open(path).map_err(at)?;
    io::copy(&mut file, output).map(drop).map_err(at)
}

fn list(words: &[String], output: &mut dyn Write) -> Done {
    let here = ".".to_owned();
    let path = words.iter().find(|word| !word.starts_with('-')).unwrap_or(&here);
    let entries = fs::read_dir(path).map_err(|error| format!("{path}: {error}"))?;
    let mut names: Vec<String> =
        entries.flatten().map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.iter().try_for_each(|name| say(output, name))
}

fn each(words: &[String], act: impl Fn(&str) -> io::Result<()>) -> Done {
    let paths = words.iter().filter(|word| !word.starts_with('-'));
    paths.map(|path| act(path).map_err(|error| format!("{path}: {error}"))).collect()
}

/// Who this runs as, as the kernel says it.
fn identity(output: &mut dyn Write) -> Done {
    let status = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or("?").to_owned()
    };
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    let groups: Vec<&str> = groups.split_whitespace().collect();
    say(output, &format!("uid={} gid={} groups={}", of("Uid:"), of("Gid:"), groups.join(",")))
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}

/// `2026-11-18T20:00:00Z`, by the civil calendar.
pub(crate) fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the day that some have is the last one.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    let (hour, minute, second) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The addresses of this network namespace, but loopback's.
fn addresses() -> Vec<String> {
    let table = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let mut found = own_v4(&table);
    let table = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let of_line = |line: &str| {
        let digits = line.split_whitespace().next()?;
        let address = Ipv6Addr::from(u128::from_str_radix(digits, 16).ok()?);
        (!address.is_loopback()).then(|| address.to_string())
    };
    found.extend(table.lines().filter_map(of_line));
    found
}

/// The local addresses in the kernel's table of routes: each stands on the line before `/32 host LOCAL`.
pub(crate) fn own_v4(table: &str) -> Vec<String> {
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let local = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
    let mut found: Vec<String> = local
        .filter_map(|pair| pair[0].rsplit(' ').next()?.parse::<Ipv4Addr>().ok())
        .filter(|address| !address.is_loopback())
        .map(|address| address.to_string())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// `fetch ADDRESS[:PORT][/PATH]`: a page by HTTP; names are not looked up.
fn fetch(words: &[String], output: &mut dyn Write) -> Done {
    let url = words.first().map(String::as_str).unwrap_or_default();
    let url = url.strip_prefix("http://").unwrap_or(url);
    let (place, path) = url.split_once('/').unwrap_or((url, ""));
    let at = |error: io::Error| format!("{place}: {error}");
    let address = if place.contains(':') { place.to_owned() } else { format!("{place}:80") };
    let address: SocketAddr =
        address.parse().map_err(|_| format!("{place:?} is no address such as 10.88.0.2:8080"))?;
    let mut connection = TcpStream::connect(address).map_err(at)?;
    connection.set_read_timeout(Some(Duration::from_secs(10))).map_err(at)?;
    write!(connection, "GET /{path} HTTP/1.0\r\nHost: {place}\r\n\r\n").map_err(at)?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).map_err(at)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    output.write_all(body.as_bytes()).map_err(at)?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "200" { Ok(()) } else { Err(format!("{place} says {status}")) }
}
