//! What a stream request's query asks for, in upstream's grammar.

use ferrolet_ports::WantedStreams;

use crate::query::values;

/// The streams of a process.
pub(super) fn wanted(pairs: &[(String, String)]) -> Result<WantedStreams, String> {
    let is_on = |name| values(pairs, name).next() == Some("1");
    let wanted = WantedStreams {
        tty: is_on("tty"),
        stdin: is_on("input"),
        stdout: is_on("output"),
        // A terminal has one output.
        stderr: is_on("error") && !is_on("tty"),
    };
    if wanted.stdin || wanted.stdout || wanted.stderr {
        Ok(wanted)
    } else {
        Err("you must specify at least 1 of stdin, stdout, stderr".to_owned())
    }
}

/// The ports a WebSocket client names up front.
pub(super) fn ports(pairs: &[(String, String)]) -> Result<Vec<i32>, String> {
    let mut ports = Vec::new();
    for list in values(pairs, "port") {
        if list.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for port in list.split(',') {
            match port.parse::<u16>() {
                Ok(0) => return Err(format!("port {list:?} must be > 0")),
                Ok(port) => ports.push(i32::from(port)),
                Err(error) => return Err(format!("unable to parse {list:?} as a port: {error}")),
            }
        }
    }
    if ports.is_empty() {
        return Err("query parameter \"port\" is required".to_owned());
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::pairs_of;

    #[test]
    fn streams_are_asked_for_with_a_one() {
        let check = |query: &str, expected: Option<[bool; 4]>| {
            let got = wanted(&pairs_of(query)).ok();
            let got = got.map(|it| [it.tty, it.stdin, it.stdout, it.stderr]);
            assert_eq!(got, expected, "{query}");
        };
        check("input=1&output=1&error=1", Some([false, true, true, true]));
        check("output=1&error=1&tty=1", Some([true, false, true, false]));
        check("output=true", None);
        check("error=1&tty=1", None);
        check("", None);
    }

    #[test]
    fn ports_are_named_once_or_in_lists() {
        let check = |query: &str, expected: Result<Vec<i32>, &str>| {
            let got = ports(&pairs_of(query));
            assert_eq!(got, expected.map_err(str::to_owned), "{query}");
        };
        check("port=80", Ok(vec![80]));
        check("port=80,81&port=82", Ok(vec![80, 81, 82]));
        check("", Err("query parameter \"port\" is required"));
        check("port=", Err("query parameter \"port\" cannot be empty"));
        check("port=0", Err("port \"0\" must be > 0"));
        assert!(ports(&pairs_of("port=70000")).is_err());
        assert!(ports(&pairs_of("port=x")).is_err());
    }
}
