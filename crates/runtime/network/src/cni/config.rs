//! Configurations of CNI networks, and what a plugin is given of them.
//!
//! Files of the directory are looked at in the order of their names, and the first that is one counts: `.conflist`, or
//! `.conf` and `.json` with a single plugin.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::attachment::{Bandwidth, HostPort, Protocol};

/// A network: plugins in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetworkConfig {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) plugins: Vec<Map<String, Value>>,
    pub(crate) has_check: bool,
}

/// True for a name that is looked at.
pub(crate) fn is_config(file: &str) -> bool {
    [".conf", ".conflist", ".json"].iter().any(|it| file.ends_with(it))
}

/// Reads a configuration; the reason why it is none is a sentence's end.
pub(crate) fn parse(bytes: &[u8]) -> Result<NetworkConfig, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let Value::Object(mut list) = value else { return Err("it is not an object".to_owned()) };
    let text = |list: &Map<String, Value>, field: &str| match list.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{field} is not a text")),
    };
    let name = text(&list, "name")?.ok_or("it has no name")?;
    let is_fine = |it: char| it.is_ascii_alphanumeric() || "_.-".contains(it);
    if !name.starts_with(|it: char| it.is_ascii_alphanumeric()) || !name.chars().all(is_fine) {
        return Err(format!("its name {name:?} is not one"));
    }
    let version = text(&list, "cniVersion")?.unwrap_or_else(|| "0.2.0".to_owned());
    if numbers(&version).is_none() {
        return Err(format!("cniVersion {version:?} is not one"));
    }
    let is_off = |it: &Value| *it == Value::Bool(true) || *it == json!("true");
    let has_check = !list.get("disableCheck").is_some_and(is_off);
    let plugins = match list.remove("plugins") {
        None => vec![Value::Object(list)],
        Some(Value::Array(plugins)) => plugins,
        Some(_) => return Err("plugins is not a list".to_owned()),
    };
    let object = |(n, it): (usize, Value)| match it {
        Value::Object(plugin) => match text(&plugin, "type")? {
            Some(name) if is_program(&name) => Ok(plugin),
            Some(name) => Err(format!("plugins[{n}].type {name:?} is not a program's name")),
            None => Err(format!("plugins[{n}] has no type")),
        },
        _ => Err(format!("plugins[{n}] is not an object")),
    };
    let plugins: Vec<_> = plugins.into_iter().enumerate().map(object).collect::<Result<_, _>>()?;
    if plugins.is_empty() {
        return Err("it has no plugins".to_owned());
    }
    Ok(NetworkConfig { name, version, plugins, has_check })
}

/// A name, not a path.
fn is_program(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != ".."
}

/// The type of a plugin that [`parse`] has seen.
pub(crate) fn program(plugin: &Map<String, Value>) -> &str {
    plugin.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// From that version on plugins know `CHECK` and want the result with `DEL`.
pub(crate) fn knows_results(version: &str) -> bool {
    numbers(version).is_some_and(|it| it >= (0, 4, 0))
}

fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split('.').map(|it| it.parse().ok());
    let read = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    parts.next().is_none().then_some(read)
}

/// What the runtime has to say to plugins that declare a capability.
pub(crate) fn capabilities(
    ports: &[HostPort],
    bandwidth: Option<Bandwidth>,
    annotations: &BTreeMap<String, String>,
) -> Map<String, Value> {
    /// As others do: the rate is what limits.
    const BURST: u32 = u32::MAX;
    let mut all = Map::new();
    if !ports.is_empty() {
        let mapping = |port: &HostPort| {
            let protocol = match port.protocol() {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
                Protocol::Sctp => "sctp",
            };
            json!({
                "hostPort": port.host_port,
                "containerPort": port.container_port,
                "protocol": protocol,
                "hostIP": port.host_address,
            })
        };
        all.insert("portMappings".to_owned(), ports.iter().map(mapping).collect());
    }
    if let Some(bandwidth) = bandwidth {
        let mut limits = Map::new();
        for (rate, value) in [("ingress", bandwidth.ingress), ("egress", bandwidth.egress)] {
            if value > 0 {
                limits.insert(format!("{rate}Rate"), value.into());
                limits.insert(format!("{rate}Burst"), BURST.into());
            }
        }
        all.insert("bandwidth".to_owned(), limits.into());
    }
    all.insert("io.kubernetes.cri.pod-annotations".to_owned(), json!(annotations));
    all
}

/// What a plugin reads: its own part, the network's name, the result so far, and what it declared that it can use.
pub(crate) fn input(
    network: &NetworkConfig,
    plugin: &Map<String, Value>,
    capabilities: &Map<String, Value>,
    result: Option<&Value>,
) -> Vec<u8> {
    let mut input = plugin.clone();
    let declared = input.remove("capabilities");
    let is_declared =
        |name: &str| declared.as_ref().and_then(|it| it.get(name)) == Some(&true.into());
    let used: Map<String, Value> = capabilities
        .iter()
        .filter(|(name, _)| is_declared(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !used.is_empty() {
        input.insert("runtimeConfig".to_owned(), used.into());
    }
    input.insert("name".to_owned(), network.name.clone().into());
    input.insert("cniVersion".to_owned(), network.version.clone().into());
    if let Some(result) = result {
        input.insert("prevResult".to_owned(), result.clone());
    }
    Value::Object(input).to_string().into_bytes()
}

/// The addresses in a result, of any version, without their prefixes.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let own = result.get("ips").and_then(Value::as_array).into_iter().flatten();
    let own = own.filter_map(|it| it.get("address"));
    let old = ["ip4", "ip6"].into_iter().filter_map(|it| result.get(it)?.get("ip"));
    let texts = own.chain(old).filter_map(Value::as_str);
    let address = |it: &str| it.split('/').next()?.parse::<std::net::IpAddr>().ok();
    texts.filter_map(address).map(|it| it.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_or_a_single_plugin_is_a_network() {
        let list = r#"{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge"},{"type":"portmap"}]}"#;
        let read = parse(list.as_bytes()).unwrap();
        assert_eq!((read.name.as_str(), read.plugins.len(), read.has_check), ("pods", 2, true));
        let single = parse(br#"{"name":"one","type":"bridge","disableCheck":true}"#).unwrap();
        assert_eq!((program(&single.plugins[0]), single.version.as_str()), ("bridge", "0.2.0"));
        assert!(!single.has_check);
    }

    #[test]
    fn what_is_no_network_says_why() {
        for (text, expected) in [
            ("[]", "it is not an object"),
            ("{}", "it has no name"),
            (r#"{"name":"a/b","type":"x"}"#, "its name \"a/b\" is not one"),
            (r#"{"name":"a","plugins":[]}"#, "it has no plugins"),
            (r#"{"name":"a","plugins":[3]}"#, "plugins[0] is not an object"),
            (r#"{"name":"a","plugins":[{}]}"#, "plugins[0] has no type"),
            (
                r#"{"name":"a","type":"../../bin/sh"}"#,
                "plugins[0].type \"../../bin/sh\" is not a program's name",
            ),
            (r#"{"name":"a","cniVersion":"new","type":"x"}"#, "cniVersion \"new\" is not one"),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(expected.to_owned()), "{text}");
        }
        assert!(parse(b"\xff").is_err());
    }

    #[test]
    fn a_plugin_gets_what_it_declares_and_no_more() {
        let plugin = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        let network = NetworkConfig {
            name: "pods".to_owned(),
            version: "1.0.0".to_owned(),
            plugins: vec![plugin.as_object().unwrap().clone()],
            has_check: true,
        };
        let port = HostPort {
            protocol: 1,
            container_port: 53,
            host_port: 5353,
            host_address: String::new(),
        };
        let bandwidth = Some(Bandwidth { ingress: 1000, egress: 0 });
        let capabilities = capabilities(&[port], bandwidth, &BTreeMap::new());
        let bytes = input(&network, &network.plugins[0], &capabilities, Some(&json!({"ips": []})));
        let expected = json!({
            "type": "portmap", "name": "pods", "cniVersion": "1.0.0", "prevResult": {"ips": []},
            "runtimeConfig": {"portMappings": [
                {"hostPort": 5353, "containerPort": 53, "protocol": "udp", "hostIP": ""}
            ]},
        });
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), expected);
        assert_eq!(
            capabilities["bandwidth"],
            json!({"ingressRate": 1000, "ingressBurst": u32::MAX})
        );
    }

    #[test]
    fn results_of_every_version_have_addresses() {
        let new = json!({"ips": [{"address": "10.1.0.5/16"}, {"address": "fd00::5/64"}, {"x": 1}]});
        assert_eq!(addresses(&new), ["10.1.0.5", "fd00::5"]);
        assert_eq!(addresses(&json!({"ip4": {"ip": "10.1.0.6/16"}})), ["10.1.0.6"]);
        assert!(addresses(&json!({"ips": "none"})).is_empty());
        assert!(knows_results("0.4.0") && knows_results("1.1.0") && !knows_results("0.3.1"));
    }
}
