//! Which protocol a client and this server speak: pure, from the request's headers.

use http::{HeaderMap, StatusCode, header};

use super::transport::Sizes;

const SPDY: &str = "SPDY/3.1";
const SPDY_PROTOCOL: &str = "x-stream-protocol-version";
const TUNNELLED: &str = "SPDY/3.1+portforward.k8s.io";
const PORT_FORWARD: &str = "portforward.k8s.io";

/// How a session's status is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusForm {
    /// As an API object, from the fourth version on.
    Object,
    /// As words, and only of failures.
    Words,
}

/// What carries a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// SPDY itself.
    Spdy,
    /// A WebSocket: channels of a process, or SPDY in messages.
    WebSocket,
}

/// What was agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) carrier: Carrier,
    /// The name to answer with; none if the client named none.
    pub(super) protocol: Option<&'static str>,
    pub(super) status: StatusForm,
    /// For a WebSocket, the key to answer.
    pub(super) key: String,
}

impl Agreement {
    pub(super) fn sizes(&self) -> Sizes {
        match self.protocol {
            None | Some("channel.k8s.io" | "v2.channel.k8s.io") => Sizes::Untold,
            Some(_) => Sizes::Told,
        }
    }
}

/// Why nothing was agreed: a status and a sentence.
pub(super) type Refusal = (StatusCode, String);

/// What can be spoken for a process, best first.
const PROCESS_SPDY: [(&str, StatusForm); 4] = [
    ("v4.channel.k8s.io", StatusForm::Object),
    ("v3.channel.k8s.io", StatusForm::Words),
    ("v2.channel.k8s.io", StatusForm::Words),
    ("channel.k8s.io", StatusForm::Words),
];
const PROCESS_WEB: [(&str, StatusForm); 3] = [
    ("v5.channel.k8s.io", StatusForm::Object),
    ("v4.channel.k8s.io", StatusForm::Object),
    ("channel.k8s.io", StatusForm::Words),
];

/// Agrees on a protocol for a process's streams.
pub(super) fn process(headers: &HeaderMap) -> Result<Agreement, Refusal> {
    match carrier(headers)? {
        Carrier::Spdy => spdy(headers, &PROCESS_SPDY),
        Carrier::WebSocket => web(headers, &PROCESS_WEB),
    }
}

/// Agrees on a protocol for forwarded ports.
pub(super) fn ports(headers: &HeaderMap) -> Result<Agreement, Refusal> {
    match carrier(headers)? {
        Carrier::Spdy => spdy(headers, &[(PORT_FORWARD, StatusForm::Words)]),
        Carrier::WebSocket => web(headers, &[(TUNNELLED, StatusForm::Words)]),
    }
}

fn bad(words: impl Into<String>) -> Refusal {
    (StatusCode::BAD_REQUEST, words.into())
}

fn carrier(headers: &HeaderMap) -> Result<Carrier, Refusal> {
    let mut connection = words(headers, header::CONNECTION.as_str()).into_iter();
    let asks = connection.any(|it| it.eq_ignore_ascii_case("upgrade"));
    let upgrade = headers.get(header::UPGRADE).filter(|_| asks);
    let upgrade = upgrade.map(|it| it.as_bytes().to_ascii_lowercase()).unwrap_or_default();
    match upgrade.as_slice() {
        b"spdy/3.1" => Ok(Carrier::Spdy),
        b"websocket" => Ok(Carrier::WebSocket),
        _ => Err(bad("unable to upgrade: missing upgrade headers in request")),
    }
}

/// The words of lists with commas, in all headers of that name.
fn words(headers: &HeaderMap, name: &str) -> Vec<String> {
    let lists = headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
    let all = lists.flat_map(|it| it.split(',')).map(|it| it.trim().to_owned());
    all.filter(|it| !it.is_empty()).collect()
}

fn spdy(headers: &HeaderMap, known: &[(&'static str, StatusForm)]) -> Result<Agreement, Refusal> {
    let offered = words(headers, SPDY_PROTOCOL);
    let (protocol, status) = if offered.is_empty() {
        (None, StatusForm::Words)
    } else {
        let chosen = known.iter().find(|it| offered.iter().any(|offer| offer == it.0));
        let chosen = chosen.ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|it| it.0).collect();
            let words = format!(
                "unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {names:?}"
            );
            (StatusCode::FORBIDDEN, words)
        })?;
        (Some(chosen.0), chosen.1)
    };
    Ok(Agreement { carrier: Carrier::Spdy, protocol, status, key: String::new() })
}

fn web(headers: &HeaderMap, known: &[(&'static str, StatusForm)]) -> Result<Agreement, Refusal> {
    let has_version = headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|it| it == "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|it| it.to_str().ok());
    let key = key.filter(|it| !it.is_empty() && it.len() <= 64 && has_version);
    let key = key.ok_or_else(|| bad("not a WebSocket handshake of version 13"))?.to_owned();
    let offered = words(headers, header::SEC_WEBSOCKET_PROTOCOL.as_str());
    let chosen = known.iter().find(|it| offered.iter().any(|offer| offer == it.0));
    let (protocol, status) = *chosen
        .ok_or_else(|| bad(format!("none of the WebSocket's protocols {offered:?} is known")))?;
    Ok(Agreement { carrier: Carrier::WebSocket, protocol: Some(protocol), status, key })
}

/// The headers that seal an agreement.
pub(super) fn answer(agreement: &Agreement) -> Vec<(&'static str, String)> {
    let mut all = vec![("connection", "Upgrade".to_owned())];
    let protocol = agreement.protocol.map(str::to_owned);
    match agreement.carrier {
        Carrier::Spdy => {
            all.push(("upgrade", SPDY.to_owned()));
            all.extend(protocol.map(|it| (SPDY_PROTOCOL, it)));
        }
        Carrier::WebSocket => {
            all.push(("upgrade", "websocket".to_owned()));
            let proof = ferrolet_streams::websocket::accept(&agreement.key);
            all.push(("sec-websocket-accept", proof));
            all.extend(protocol.map(|it| ("sec-websocket-protocol", it)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn the_best_protocol_that_both_know_is_spoken() {
        let spdy = |offered: &[&str]| {
            let mut all = vec![("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
            all.extend(offered.iter().map(|it| (SPDY_PROTOCOL, *it)));
            process(&headers(&all)).map(|it| (it.protocol, it.status))
        };
        let object = (Some("v4.channel.k8s.io"), StatusForm::Object);
        assert_eq!(spdy(&["v5.channel.k8s.io", "v4.channel.k8s.io"]), Ok(object));
        assert_eq!(spdy(&["channel.k8s.io, v4.channel.k8s.io"]), Ok(object));
        let words = (Some("v2.channel.k8s.io"), StatusForm::Words);
        assert_eq!(spdy(&["v2.channel.k8s.io", "channel.k8s.io"]), Ok(words));
        assert_eq!(spdy(&[]), Ok((None, StatusForm::Words)));
        assert_eq!(spdy(&["v9"]).unwrap_err().0, StatusCode::FORBIDDEN);
    }

    #[test]
    fn a_websocket_needs_its_handshake() {
        let shake = |protocol: &str, key: &str| {
            process(&headers(&[
                ("connection", "keep-alive, Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", key),
                ("sec-websocket-protocol", protocol),
            ]))
        };
        let agreed = shake("v4.channel.k8s.io,v5.channel.k8s.io", "a2V5").unwrap();
        assert_eq!(agreed.protocol, Some("v5.channel.k8s.io"));
        let names: Vec<&str> = answer(&agreed).iter().map(|it| it.0).collect();
        assert_eq!(
            names,
            ["connection", "upgrade", "sec-websocket-accept", "sec-websocket-protocol"]
        );
        assert!(shake("v4.channel.k8s.io", "").is_err());
        assert!(shake("chat", "a2V5").is_err());
    }

    #[test]
    fn without_an_upgrade_there_is_no_stream() {
        assert!(process(&headers(&[])).is_err());
        assert!(ports(&headers(&[("upgrade", "SPDY/3.1")])).is_err());
        assert!(ports(&headers(&[("connection", "upgrade"), ("upgrade", "h2c")])).is_err());
    }
}
