//! The built-in network: each pod a link of its own and a route to it.
//!
//! ```text
//!  pod:  eth0 10.88.0.5/32 ── default via 169.254.1.1, whose hardware is the other end's
//!  node: frl0123456789ab   ── 10.88.0.5/32 dev frl0123456789ab, whose hardware is the pod's
//!        lo                ── 10.88.0.1/32, the node's address among the pods'
//! ```
//!
//! One thread owns it (`run`) and does one thing after the other, as the kernel would anyway. What there should be is
//! computed by [`crate::plan`]; here it is sent. Nothing is stored: [`Routed::restore`] makes everything what the records
//! say, whatever happened meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::Instant;

use crate::attachment::{Attachment, Maker, Protocol};
use crate::netlink::route::{Counters, Link, Pair};
use crate::netlink::socket::{NetlinkError, Socket};
use crate::netlink::{connections, route, tables};
use crate::network::{Restored, SetupError, SetupRequest};
use crate::plan::bandwidth::bandwidth;
use crate::plan::difference;
use crate::plan::elements::{Element, Set, elements, octets};
use crate::plan::names::Names;
use crate::plan::pod::PodPlan;
use crate::plan::pool::Pool;
use crate::plan::ports::Ports;
use crate::plan::range::Range;
use crate::{inside, sysctl};

/// What links have where nothing leads out of the node.
const USUAL_MTU: u32 = 1500;
/// How long it is believed: looking it up is a walk over all routes.
const MTU_AGE: Duration = Duration::from_secs(10);
const LOOPBACK: &str = "lo";

#[derive(Debug)]
pub(crate) struct Routed {
    names: Names,
    route: Socket,
    filter: Socket,
    pool: Pool,
    ports: Ports,
    /// The index of each sandbox's host end.
    links: BTreeMap<String, u32>,
    /// Where pods go under their own addresses, beside the pods' ranges.
    unmasked: Vec<Range>,
    /// Addresses of the node among the pods' that were placed from here.
    gateways: BTreeSet<IpAddr>,
    began: Instant,
    /// What new links are made with, and when that was looked up.
    mtu: Option<(u32, Instant)>,
}

impl Routed {
    /// Opens it in this thread's network namespace, which is the node's from now on.
    pub(crate) fn open(
        names: &Names,
        ranges: &[Range],
        unmasked: &[Range],
    ) -> Result<Self, NetlinkError> {
        Ok(Self {
            names: names.clone(),
            route: Socket::route()?,
            filter: Socket::netfilter()?,
            pool: Pool::new(ranges),
            ports: Ports::default(),
            links: BTreeMap::new(),
            unmasked: unmasked.to_vec(),
            gateways: BTreeSet::new(),
            began: Instant::now(),
            mtu: None,
        })
    }

    /// Makes what there is what the records say, oldest first.
    pub(crate) fn restore(&mut self, records: &[Attachment]) -> Result<Restored, NetlinkError> {
        let links = self.own_links()?;
        let mut restored = Restored::default();
        let mut wanted = BTreeSet::new();
        let mut requests = Vec::new();
        for record in records {
            let plan = PodPlan::of(&self.names, record);
            plan.addresses.iter().for_each(|it| self.pool.note(*it));
            self.ports.note(&record.sandbox, &record.ports);
            match links.get(&plan.link) {
                Some(link) => {
                    self.links.insert(record.sandbox.clone(), link.index);
                    wanted.extend(elements(record, link.index));
                    requests.extend(host_end(&plan, record, link.index));
                }
                None => restored.lost.push(record.sandbox.clone()),
            }
        }
        let named: BTreeSet<String> =
            records.iter().map(|it| self.names.link(&it.sandbox)).collect();
        for link in links.values().filter(|it| !named.contains(&it.name)) {
            restored.removed_links.push(link.name.clone());
            self.delete(link.index)?;
        }
        self.place_gateways()?;
        let mut changes = tables::replacement(&mut self.filter, &self.names)?;
        let present = match changes.is_empty() {
            true => tables::present(&mut self.filter, &self.names)?,
            false => BTreeSet::new(),
        };
        let elements = difference(&wanted, &present);
        restored.removed_elements = elements.left_over.len();
        changes.extend(tables::set_ranges(&self.names, &self.pool.of_pods(), &self.unmasked));
        changes.extend(tables::take(&self.names, &elements.left_over));
        changes.extend(tables::add(&self.names, &elements.missing));
        self.filter.transaction(&changes)?;
        self.route.request(&requests)?;
        Ok(restored)
    }

    /// From now on pods' addresses are from these ranges.
    pub(crate) fn set_ranges(&mut self, ranges: &[Range]) -> Result<(), NetlinkError> {
        if self.pool.ranges() == ranges {
            return Ok(());
        }
        self.pool.set_ranges(ranges);
        self.place_gateways()?;
        self.filter.transaction(&tables::set_ranges(
            &self.names,
            &self.pool.of_pods(),
            &self.unmasked,
        ))
    }

    /// The node's addresses among the pods' ones are on `lo`, and forwarding is on.
    fn place_gateways(&mut self) -> Result<(), NetlinkError> {
        let ranges = self.pool.ranges();
        let wanted: BTreeSet<IpAddr> = ranges.iter().filter_map(Range::gateway).collect();
        sysctl::forward(ranges)
            .map_err(|(path, errno)| NetlinkError::new(format!("write {path}"), errno))?;
        let loopback = self.link(LOOPBACK)?.index;
        let mark = self.names.mark();
        let mut present = BTreeSet::new();
        self.route.dump(&route::get_addresses(), |heard| {
            let own = route::own_address(heard, mark).filter(|(index, _)| *index == loopback);
            present.extend(own.map(|(_, address)| address));
        })?;
        let found = difference(&wanted, &present);
        let is_usual = self.names.is_usual();
        let left_over = found.left_over.iter().filter(|it| is_usual || self.gateways.contains(it));
        let taken = left_over.map(|it| route::delete_address(loopback, *it, mark));
        let added = found.missing.iter().map(|it| route::add_address(loopback, *it, mark));
        let requests: Vec<_> = taken.chain(added).collect();
        self.route.request(&requests)?;
        self.gateways = wanted;
        Ok(())
    }

    /// Connects a sandbox, or leaves nothing behind.
    pub(crate) fn setup(
        &mut self,
        request: &SetupRequest,
        namespace: BorrowedFd<'_>,
    ) -> Result<Attachment, SetupError> {
        let bandwidth = bandwidth(&request.annotations)?;
        if self.links.contains_key(&request.sandbox) {
            return Err(SetupError::Twice(request.sandbox.clone()));
        }
        self.ports.take(&request.sandbox, &request.ports)?;
        let mut attachment = Attachment {
            sandbox: request.sandbox.clone(),
            addresses: Vec::new(),
            ports: request.ports.clone(),
            bandwidth,
            maker: Maker::BuiltIn.into(),
        };
        match self.pool.give(self.began.elapsed()) {
            Ok(addresses) => {
                attachment.addresses = addresses.iter().map(ToString::to_string).collect();
            }
            Err(error) => {
                self.ports.give_back(&attachment);
                return Err(error.into());
            }
        }
        if let Err(error) = self.connect(&attachment, namespace) {
            if let Err(also) = self.teardown(&attachment) {
                tracing::warn!(sandbox = attachment.sandbox, err = %also, "Half of a pod's network is left");
            }
            return Err(error.into());
        }
        Ok(attachment)
    }

    fn connect(
        &mut self,
        attachment: &Attachment,
        namespace: BorrowedFd<'_>,
    ) -> Result<(), NetlinkError> {
        let plan = PodPlan::of(&self.names, attachment);
        let mtu = self.mtu()?;
        let PodPlan { ref link, host_mac, pod_mac, .. } = plan;
        let pair = Pair { link, host_mac, pod_mac, mtu, namespace };
        self.route.request(&[route::new_pair(&pair)])?;
        let index = self.link(link)?.index;
        self.links.insert(attachment.sandbox.clone(), index);
        let egress = attachment.bandwidth.map_or(0, |it| it.egress);
        inside::configure(namespace, &plan, egress)?;
        self.route.request(&host_end(&plan, attachment, index))?;
        let elements: Vec<Element> = elements(attachment, index).into_iter().collect();
        self.filter.transaction(&tables::add(&self.names, &elements))?;
        self.forget_connections(attachment);
        Ok(())
    }

    /// Takes a sandbox's network away, as much as there is of it.
    pub(crate) fn teardown(&mut self, attachment: &Attachment) -> Result<(), NetlinkError> {
        let index = self.links.get(&attachment.sandbox).copied();
        let filter = self.take_elements(attachment, index);
        let link = match self.link(&self.names.link(&attachment.sandbox)) {
            Ok(link) => self.delete(link.index),
            Err(error) if error.errno == Errno::NODEV => Ok(()),
            Err(error) => Err(error),
        };
        filter.and(link)?;
        self.forget(attachment);
        Ok(())
    }

    /// Takes the links and elements of many sandboxes away together: the kernel waits as long for all of them as for
    /// one. It need not succeed, and [`Routed::teardown`] of each is still to follow.
    pub(crate) fn prepare_teardown(&mut self, attachments: &[&Attachment]) {
        let mut known: Vec<(&Attachment, u32)> = Vec::new();
        for attachment in attachments {
            let index = self.links.get(&attachment.sandbox);
            known.extend(index.map(|index| (*attachment, *index)));
        }
        let marked: Vec<_> = known.iter().map(|it| route::doom(it.1)).collect();
        let of_all = known.iter().flat_map(|it| elements(it.0, it.1));
        let of_all: Vec<Element> = of_all.collect();
        // What is not there is no trouble: each is looked at again.
        let _filter = self.filter.transaction(&tables::take(&self.names, &of_all));
        let _marked = self.route.request(&marked);
        let _deleted = self.route.request(&[route::delete_doomed()]);
    }

    /// What is known of a sandbox that has no network any more.
    fn forget(&mut self, attachment: &Attachment) {
        self.forget_connections(attachment);
        self.links.remove(&attachment.sandbox);
        self.ports.give_back(attachment);
        let addresses: Vec<IpAddr> = attachment.ips().collect();
        self.pool.take_back(&addresses, self.began.elapsed());
    }

    fn take_elements(
        &mut self,
        attachment: &Attachment,
        index: Option<u32>,
    ) -> Result<(), NetlinkError> {
        if let Some(index) = index {
            let all: Vec<Element> = elements(attachment, index).into_iter().collect();
            match self.filter.transaction(&tables::take(&self.names, &all)) {
                Err(error) if error.errno == Errno::NOENT => {}
                done => return done,
            }
        }
        // Some are missing, or the link is unknown: whatever there is of it.
        let present = match tables::present(&mut self.filter, &self.names) {
            Err(error) if error.errno == Errno::NOENT => return Ok(()),
            present => present?,
        };
        let of_pod: Vec<Element> =
            present.into_iter().filter(|it| belongs(it, attachment)).collect();
        self.filter.transaction(&tables::take(&self.names, &of_pod))
    }

    /// Those who went on sending would go on reaching whoever had the port before.
    fn forget_connections(&mut self, attachment: &Attachment) {
        let udp = attachment.ports.iter().filter(|it| it.protocol() == Protocol::Udp);
        let ports: BTreeSet<u16> = udp.filter_map(|it| u16::try_from(it.host_port).ok()).collect();
        if ports.is_empty() {
            return;
        }
        if let Err(error) = connections::forget(&mut self.filter, &ports) {
            tracing::debug!(err = %error, "Connections to UDP ports are not forgotten");
        }
    }

    /// What went through each sandbox's link, from the pod's point of view.
    pub(crate) fn usage(&mut self) -> Result<BTreeMap<String, Counters>, NetlinkError> {
        let links = self.own_links()?;
        let by_index: BTreeMap<u32, Counters> =
            links.into_values().map(|it| (it.index, it.counters)).collect();
        let of_pod = |(sandbox, index): (&String, &u32)| {
            let host = by_index.get(index)?;
            let pod = Counters {
                rx_bytes: host.tx_bytes,
                rx_packets: host.tx_packets,
                rx_errors: host.tx_errors,
                tx_bytes: host.rx_bytes,
                tx_packets: host.rx_packets,
                tx_errors: host.rx_errors,
            };
            Some((sandbox.clone(), pod))
        };
        Ok(self.links.iter().filter_map(of_pod).collect())
    }

    /// Takes away the table and the node's addresses; for a node that has no pods any more.
    pub(crate) fn remove(&mut self) -> Result<(), NetlinkError> {
        for link in self.own_links()?.values() {
            self.delete(link.index)?;
        }
        self.links.clear();
        let loopback = self.link(LOOPBACK)?.index;
        let mark = self.names.mark();
        let gateways = self.pool.ranges().iter().filter_map(Range::gateway);
        for gateway in gateways.collect::<Vec<_>>() {
            match self.route.request(&[route::delete_address(loopback, gateway, mark)]) {
                Err(error) if error.errno == Errno::ADDRNOTAVAIL => {}
                done => done?,
            }
        }
        tables::remove(&mut self.filter, &self.names)
    }

    fn own_links(&mut self) -> Result<BTreeMap<String, Link>, NetlinkError> {
        let mut links = BTreeMap::new();
        self.route.dump(&route::get_links(None), |heard| {
            let own = route::link(heard).filter(|it| self.names.has_link(&it.name));
            links.extend(own.map(|it| (it.name.clone(), it)));
        })?;
        Ok(links)
    }

    fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let mut found = None;
        let question = route::get_links(Some(name));
        self.route.ask(&question, |heard| found = route::link(heard))?;
        found.ok_or_else(|| NetlinkError::new(question.what.clone(), Errno::NODEV))
    }

    fn delete(&mut self, index: u32) -> Result<(), NetlinkError> {
        match self.route.request(&[route::delete_link(index)]) {
            // It went with its other end.
            Err(error) if error.errno == Errno::NODEV => Ok(()),
            done => done,
        }
    }

    /// As much as the link has that leads out.
    fn mtu(&mut self) -> Result<u32, NetlinkError> {
        if let Some((mtu, at)) = self.mtu
            && at.elapsed() < MTU_AGE
        {
            return Ok(mtu);
        }
        let mut out = None;
        self.route.dump(&route::get_routes(), |heard| {
            out = out.or_else(|| route::default_link(heard));
        })?;
        let mut found = None;
        if let Some(out) = out {
            self.route.ask(&route::get_link(out), |heard| found = route::link(heard))?;
        }
        let mtu = found.map(|it| it.mtu).filter(|it| (1280..=65535).contains(it));
        let mtu = mtu.unwrap_or(USUAL_MTU);
        self.mtu = Some((mtu, Instant::now()));
        Ok(mtu)
    }
}

/// Everything about the host end of a pod's link; can be said again at any time.
fn host_end(
    plan: &PodPlan,
    attachment: &Attachment,
    index: u32,
) -> Vec<crate::netlink::message::Message> {
    let mut requests = Vec::new();
    if plan.has_ipv6() {
        requests.push(route::no_own_address(index));
    }
    requests.push(route::host_settings(index, plan.from_loopback));
    requests.push(route::up(index));
    for address in &plan.addresses {
        requests.push(route::neighbour(index, *address, plan.pod_mac));
        requests.push(route::route_to(index, *address));
    }
    let ingress = attachment.bandwidth.map_or(0, |it| it.ingress);
    if ingress > 0 {
        requests.push(route::shape(index, ingress));
    }
    requests
}

/// True for an element that a sandbox has, whatever its link is.
fn belongs(element: &Element, attachment: &Attachment) -> bool {
    if matches!(element.set, Set::Sources4 | Set::Sources6) {
        let source = element.key.get(4..).unwrap_or_default();
        return attachment.ips().any(|it| octets(it) == source);
    }
    elements(attachment, 0).contains(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_known_by_its_address_when_the_link_is_forgotten() {
        let port =
            crate::attachment::HostPort { container_port: 1, host_port: 2, ..Default::default() };
        let pod = |address: &str| Attachment {
            sandbox: "a".to_owned(),
            addresses: vec![address.to_owned()],
            ports: vec![port.clone()],
            ..Attachment::default()
        };
        let (one, other) = (pod("10.88.0.2"), pod("10.88.0.3"));
        assert!(elements(&one, 7).iter().all(|it| belongs(it, &one)));
        assert!(!elements(&one, 7).iter().any(|it| belongs(it, &other)));
    }
}
