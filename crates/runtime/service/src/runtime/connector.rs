//! Pods connected by `crates/runtime/network`: its words for the service's, and back.
//!
//! Refuses: anything that decides. What a sandbox is given is the network's to say, and its record is kept unread.

use std::{net::IpAddr, os::fd::OwnedFd, sync::Arc};

use ferrolet_runtime_network::{
    Attachment, HostPort as AttachedPort, PodNetwork, Protocol, Range, SetupRequest, Status,
};
use futures::future::BoxFuture;
use prost::Message as _;
use tracing::{info, warn};

use super::network::{
    Connection, HostPort, NetworkCondition, NetworkError, PortProtocol, SandboxIdentity,
    SandboxNetwork,
};

/// The network of pods behind the service's door.
#[derive(Clone, Debug)]
pub struct Connector(pub Arc<dyn PodNetwork>);

impl SandboxNetwork for Connector {
    fn set_up(
        &self,
        sandbox: SandboxIdentity,
        namespace: OwnedFd,
    ) -> BoxFuture<'_, Result<Connection, NetworkError>> {
        Box::pin(async move {
            let attempt = format!("connect pod {}/{}", sandbox.namespace, sandbox.name);
            let attached = self.0.setup(request(sandbox), namespace).await;
            attached.map(|it| connection(&it)).map_err(failed(attempt))
        })
    }

    fn tear_down(&self, connection: Connection) -> BoxFuture<'_, Result<(), NetworkError>> {
        Box::pin(async move {
            let Some(attachment) = attachment(&connection) else { return Ok(()) };
            let attempt = format!("disconnect sandbox {}", attachment.sandbox);
            self.0.teardown(attachment).await.map_err(failed(attempt))
        })
    }

    fn restore(&self, connections: Vec<Connection>) -> BoxFuture<'_, Result<(), NetworkError>> {
        Box::pin(async move {
            let records = connections.iter().filter_map(attachment).collect();
            let restored = self.0.restore(records).await;
            let restored = restored.map_err(failed("restore pods' network".to_owned()))?;
            for sandbox in &restored.lost {
                warn!(sandbox, "a pod's link is gone: it has no network any more");
            }
            let links = &restored.removed_links;
            let attachments = &restored.removed_attachments;
            if !links.is_empty() || restored.removed_elements > 0 || !attachments.is_empty() {
                let n_elements = restored.removed_elements;
                info!(?links, n_elements, ?attachments, "network that no pod has was removed");
            }
            Ok(())
        })
    }

    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> BoxFuture<'a, Result<(), NetworkError>> {
        Box::pin(async move {
            let attempt = || format!("take pod CIDR {cidr:?}");
            let ranges: Result<Vec<Range>, _> = cidr.split(',').map(str::parse).collect();
            let ranges = ranges.map_err(failed(attempt()))?;
            self.0.set_ranges(ranges).await.map_err(failed(attempt()))
        })
    }

    fn condition(&self) -> BoxFuture<'_, NetworkCondition> {
        Box::pin(async move {
            match self.0.status().await {
                Status::Ready => NetworkCondition {
                    is_ready: true,
                    reason: String::new(),
                    message: String::new(),
                },
                Status::NotReady(why) => NetworkCondition::not_ready(why),
            }
        })
    }
}

fn failed<E: std::error::Error + Send + Sync + 'static>(
    attempt: String,
) -> impl FnOnce(E) -> NetworkError {
    |error| NetworkError { attempt, source: Some(Box::new(error)) }
}

fn request(sandbox: SandboxIdentity) -> SetupRequest {
    let port = |it: &HostPort| AttachedPort {
        protocol: match it.protocol {
            PortProtocol::Tcp => Protocol::Tcp,
            PortProtocol::Udp => Protocol::Udp,
            PortProtocol::Sctp => Protocol::Sctp,
        }
        .into(),
        container_port: it.container_port.into(),
        host_port: it.host_port.into(),
        // An address that means all of them is none in particular.
        host_address: it
            .host_ip
            .filter(|it| !it.is_unspecified())
            .map(|it: IpAddr| it.to_string())
            .unwrap_or_default(),
    };
    SetupRequest {
        ports: sandbox.host_ports.iter().map(port).collect(),
        sandbox: sandbox.id,
        namespace: sandbox.namespace,
        name: sandbox.name,
        uid: sandbox.uid,
        annotations: sandbox.annotations,
    }
}

fn connection(attachment: &Attachment) -> Connection {
    Connection { addresses: attachment.ips().collect(), record: attachment.encode_to_vec() }
}

/// None for a sandbox that has no network of this kind, or whose record cannot be read: what it had is then found as
/// nobody's.
fn attachment(connection: &Connection) -> Option<Attachment> {
    Attachment::decode(connection.record.as_slice()).ok().filter(|it| !it.sandbox.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_asked_for_and_recorded_in_the_networks_words() {
        let port = |host_ip: Option<&str>| HostPort {
            protocol: PortProtocol::Udp,
            host_ip: host_ip.map(|it| it.parse().unwrap()),
            host_port: 5353,
            container_port: 53,
        };
        let sandbox = SandboxIdentity {
            id: "abc".to_owned(),
            name: "dns".to_owned(),
            namespace: "default".to_owned(),
            uid: "1".to_owned(),
            host_ports: vec![port(Some("127.0.0.1")), port(Some("0.0.0.0")), port(None)],
            annotations: Default::default(),
        };
        let asked = request(sandbox);
        let shown: Vec<String> = asked.ports.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["127.0.0.1:5353/UDP", "5353/UDP", "5353/UDP"]);
        let attached = Attachment {
            sandbox: "abc".to_owned(),
            addresses: vec!["10.88.0.2".to_owned()],
            ports: asked.ports,
            ..Attachment::default()
        };
        let kept = connection(&attached);
        assert_eq!(kept.addresses, ["10.88.0.2".parse::<IpAddr>().unwrap()]);
        assert_eq!(attachment(&kept), Some(attached));
    }

    #[test]
    fn a_record_that_says_nothing_is_nobodys() {
        for record in [Vec::new(), vec![0xff; 4]] {
            assert_eq!(attachment(&Connection { addresses: Vec::new(), record }), None);
        }
    }
}
