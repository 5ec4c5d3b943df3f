//! What a query for the machine's logs asks for, in upstream's grammar (`kubectl get --raw
//! …/logs/?query=kubelet`). Pure.
//!
//! Words with a slash are files, of which one may be named and without options; all others are
//! services. What cannot be read is a 400, what can be read and makes no sense a 406, as upstream
//! has it.

use axum::http::StatusCode;
use ferrolet_ports::JournalAsk;
use ferrolet_types::Timestamp;

use crate::query::values;
use crate::refusal::Refusal;

/// Services a query may name.
const MOST_SERVICES: usize = 4;
const MOST_LINES: i64 = 100_000;
const LONGEST_NAME: usize = 256;
/// Longer expressions are not looked for.
const LONGEST_PATTERN: usize = 1024;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogQuery {
    /// One file below the log directory.
    File(String),
    /// Services, and which part of what they wrote.
    Services(JournalAsk),
}

/// The query of these pairs; `None` when they ask for nothing.
pub(crate) fn parse(pairs: &[(String, String)]) -> Result<Option<LogQuery>, Refusal> {
    let words: Vec<&str> = values(pairs, "query").collect();
    let (files, services): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.contains(['/', '\\']));
    let services: Vec<&str> = services.into_iter().filter(|word| !word.trim().is_empty()).collect();
    if !words.is_empty() && files.is_empty() && services.is_empty() {
        return Err(unreadable("query", &listed(&words), "may not be empty"));
    }
    let options = options(pairs)?;
    let has_options = options != JournalAsk::default();
    match (files[..].len(), services.len()) {
        (0, 0) if has_options => {
            let words = "query: Required value: cannot be empty with options\n";
            Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, words))
        }
        (0, 0) => Ok(None),
        (0, _) => {
            let names = services.iter().map(|it| (*it).to_owned()).collect();
            let ask = JournalAsk { services: names, ..options };
            check(&ask)?;
            Ok(Some(LogQuery::Services(ask)))
        }
        (1, 0) if has_options => {
            Err(senseless("query", &listed(&files), "cannot specify file with options"))
        }
        (1, 0) => {
            let file = files[0].replace('\\', "/");
            if file.split('/').any(|part| part == "..") {
                let words = format!("statat {}: path escapes from parent", files[0]);
                return Err(senseless("query", &listed(&files), &words));
            }
            Ok(Some(LogQuery::File(file.trim_matches('/').to_owned())))
        }
        (_, 0) => Err(senseless("query", &listed(&files), "cannot specify more than one file")),
        _ => Err(senseless(
            "query",
            &format!("{:?}", format!("[{}], [{}]", files.join(" "), services.join(" "))),
            "cannot specify a file and service",
        )),
    }
}

fn options(pairs: &[(String, String)]) -> Result<JournalAsk, Refusal> {
    let text = |name| values(pairs, name).next().filter(|it| !it.is_empty());
    let moment = |name: &'static str| -> Result<Option<Timestamp>, Refusal> {
        let Some(text) = text(name) else {
            return Ok(None);
        };
        let parsed = text.parse().map(Timestamp);
        let parsed =
            parsed.map_err(|_| unreadable(name, &format!("{text:?}"), "invalid time format"))?;
        Ok(Some(parsed))
    };
    let number = |name: &'static str| -> Result<Option<i64>, Refusal> {
        let parsed = text(name).map(|text| {
            let parsed = text.parse::<i64>();
            parsed.map_err(|error| {
                use std::num::IntErrorKind::{NegOverflow, PosOverflow};
                let why = match error.kind() {
                    NegOverflow | PosOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                let words = format!("strconv.Atoi: parsing {text:?}: {why}");
                unreadable(name, &format!("{text:?}"), &words)
            })
        });
        parsed.transpose()
    };
    let boot = number("boot")?;
    let boot = boot.map(|n| match i32::try_from(n) {
        Ok(n) if n < 1 => Ok(n),
        _ => Err(senseless("boot", &n.to_string(), "must be less than 1")),
    });
    let lines = number("tailLines")?.map(|n| match u32::try_from(n) {
        Ok(lines) if n <= MOST_LINES => Ok(lines),
        _ => {
            let words = format!("must be between 0 and {MOST_LINES}, inclusive");
            Err(senseless("tailLines", &n.to_string(), &words))
        }
    });
    Ok(JournalAsk {
        services: Vec::new(),
        since: moment("sinceTime")?,
        until: moment("untilTime")?,
        tail_lines: lines.transpose()?,
        pattern: text("pattern").map(str::to_owned),
        boot: boot.transpose()?,
    })
}

fn check(ask: &JournalAsk) -> Result<(), Refusal> {
    if ask.services.len() > MOST_SERVICES {
        let n = ask.services.len();
        let words = format!("query: Too many: {n}: must have at most {MOST_SERVICES} items\n");
        return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, words));
    }
    for service in &ask.services {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
        if service.len() > LONGEST_NAME {
            let words = "length must be less than 256";
            return Err(senseless("query", &format!("{service:?}"), words));
        }
        if !service.bytes().all(is_plain) {
            let words = "input contains unsupported characters";
            return Err(senseless("query", &format!("{service:?}"), words));
        }
    }
    if let (Some(since), Some(until)) = (ask.since, ask.until)
        && since > until
    {
        let words = "must be after `sinceTime`";
        let until = format!("{:?}", until.to_string());
        return Err(senseless("untilTime", &until, words));
    }
    if let Some(pattern) = &ask.pattern
        && (pattern.len() > LONGEST_PATTERN || pattern.contains(char::is_control))
    {
        let words = "is too long or not plain text";
        return Err(senseless("pattern", "\"\"", words));
    }
    Ok(())
}

/// Several values, as upstream writes them.
fn listed(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|it| format!("{it:?}")).collect();
    format!("[{}]", quoted.join(","))
}

/// `value` as it is written: a text in quotes, a number, a list.
fn unreadable(field: &str, value: &str, why: &str) -> Refusal {
    Refusal::bad(format!("{field}: Invalid value: {value}: {why}\n"))
}

fn senseless(field: &str, value: &str, why: &str) -> Refusal {
    let words = format!("{field}: Invalid value: {value}: {why}\n");
    Refusal::new(StatusCode::NOT_ACCEPTABLE, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::pairs_of;

    #[test]
    fn queries_are_files_or_services_or_refused() {
        let check = |query: &str, expected: Result<Option<&str>, u16>| {
            let got = parse(&pairs_of(query)).map(|query| {
                query.map(|query| match query {
                    LogQuery::File(path) => format!("file {path}"),
                    LogQuery::Services(ask) => format!("services {}", ask.services.join(",")),
                })
            });
            let got = got.map_err(|refusal| refusal.status.as_u16());
            let expected = expected.map(|it| it.map(str::to_owned));
            assert_eq!(got, expected, "{query}");
        };
        check("", Ok(None));
        check("other=1", Ok(None));
        check("query=kubelet", Ok(Some("services kubelet")));
        check("query=a&query=b", Ok(Some("services a,b")));
        check("query=/app/out.log", Ok(Some("file app/out.log")));
        check("query=app%5Cout.log", Ok(Some("file app/out.log")));
        check("query=kubelet&tailLines=5&boot=-1", Ok(Some("services kubelet")));
        check("query=", Err(400));
        check("query=%20", Err(400));
        check("query=kubelet&tailLines=many", Err(400));
        check("query=kubelet&sinceTime=yesterday", Err(400));
        check("query=kubelet&boot=x", Err(400));
        check("tailLines=5", Err(406));
        check("query=kubelet&boot=1", Err(406));
        check("query=kubelet&tailLines=-1", Err(406));
        check("query=kubelet&tailLines=100001", Err(406));
        check("query=a/b&query=c", Err(406));
        check("query=a/b&query=c/d", Err(406));
        check("query=a/b&tailLines=5", Err(406));
        check("query=../../etc/shadow", Err(406));
        check("query=a&query=b&query=c&query=d&query=e", Err(406));
        check("query=a;id", Err(406));
        check(&format!("query={}", "a".repeat(257)), Err(406));
        check("query=a&pattern=x%0Ay", Err(406));
        let times = "sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z";
        check(&format!("query=a&{times}"), Err(406));
    }

    #[test]
    fn refusals_are_in_upstreams_words() {
        for (query, expected) in [
            ("query=", "query: Invalid value: [\"\"]: may not be empty\n"),
            ("tailLines=1", "query: Required value: cannot be empty with options\n"),
            (
                "query=a&tailLines=-1",
                "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive\n",
            ),
            (
                "query=a&boot=x",
                "boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax\n",
            ),
            ("query=a&boot=1", "boot: Invalid value: 1: must be less than 1\n"),
            (
                "query=a&query=b&query=c&query=d&query=e",
                "query: Too many: 5: must have at most 4 items\n",
            ),
            (
                "query=/a&tailLines=1",
                "query: Invalid value: [\"/a\"]: cannot specify file with options\n",
            ),
            (
                "query=/a&query=b",
                "query: Invalid value: \"[/a], [b]\": cannot specify a file and service\n",
            ),
            (
                "query=/../passwd",
                "query: Invalid value: [\"/../passwd\"]: statat /../passwd: path escapes from parent\n",
            ),
        ] {
            let refusal = parse(&pairs_of(query)).unwrap_err();
            assert_eq!(refusal.words, expected, "{query}");
        }
    }

    #[test]
    fn options_say_which_part() {
        let query = "query=a&sinceTime=2026-01-01T00:00:00Z&pattern=x+y&tailLines=0&boot=0";
        let Ok(Some(LogQuery::Services(ask))) = parse(&pairs_of(query)) else {
            panic!("{query}");
        };
        assert_eq!(ask.since, Some(Timestamp::from_second(1_767_225_600)));
        assert_eq!(ask.pattern.as_deref(), Some("x y"));
        assert_eq!((ask.tail_lines, ask.boot, ask.until), (Some(0), Some(0), None));
    }
}
