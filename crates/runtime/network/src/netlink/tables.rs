//! The one nf_tables table: its fixed rules, and the elements that come and go.
//!
//! ```text
//!  prerouting, raw   from a pod: to 127.0.0.0/8? drop; link and source not in sources? drop
//!  prerouting, nat ┐ to an address of the node: address-ports, then ports, lead to a pod
//!  output, nat     ┘ one step after kube-proxy, whose services come first
//!  postrouting       from a pod to elsewhere; to itself by its host port; from 127.0.0.1 to a pod: masquerade
//! ```
//!
//! Rules never change while the table stands. What it was made from is written on it; a table that was made from
//! something else (another release) is replaced as a whole, in the transaction that makes the new one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rustix::io::Errno;

use super::message::{F_APPEND, F_CREATE, Heard, Message, attributes, find};
use super::socket::{NetlinkError, Socket};
use crate::plan::elements::{Element, Set, octets};
use crate::plan::names::Names;
use crate::plan::pod::fnv;
use crate::plan::range::{Range, merged};

const INET: u8 = 1;

const fn kind(number: u16) -> u16 {
    (10 << 8) | number
}
const NEW_TABLE: u16 = kind(0);
const GET_TABLE: u16 = kind(1);
const DELETE_TABLE: u16 = kind(2);
const NEW_CHAIN: u16 = kind(3);
const NEW_RULE: u16 = kind(6);
const NEW_SET: u16 = kind(9);
const NEW_ELEMENT: u16 = kind(12);
const GET_ELEMENT: u16 = kind(13);
const DELETE_ELEMENT: u16 = kind(14);

/// So many elements in a message: an attribute has at most 64 KB.
const ELEMENTS: usize = 400;

/// Registers of four bytes each; a key lies in as many as it needs, one after the other.
const A: u32 = 8;

/// What an expression looks at or does. Numbers are the kernel's.
#[derive(Clone, Debug)]
enum Expression {
    Meta {
        key: u32,
        to: u32,
    },
    Equal {
        register: u32,
        value: Vec<u8>,
    },
    /// Bytes of the network's (1) or the transport's (2) header.
    Payload {
        base: u32,
        offset: u32,
        length: u32,
        to: u32,
    },
    FirstByte {
        register: u32,
    },
    In {
        set: &'static str,
        register: u32,
    },
    NotIn {
        set: &'static str,
        register: u32,
    },
    Map {
        map: &'static str,
        register: u32,
    },
    RouteKind,
    Destination {
        family: u32,
        address: u32,
        port: u32,
    },
    Masquerade,
    Drop,
    Jump(&'static str),
}
use Expression::{
    Destination, Drop, Equal, FirstByte, In, Jump, Map, Masquerade, Meta, NotIn, Payload, RouteKind,
};

const META_IIF: u32 = 4;
const META_IIF_NAME: u32 = 6;
const META_OIF_NAME: u32 = 7;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
const IPV4: u8 = 2;
const IPV6: u8 = 10;

fn part(what: impl Into<String>, kind: u16, flags: u16) -> Message {
    Message::new(what, kind, flags, &[INET, 0, 0, 0])
}

/// What makes the table this release's: nothing if it is.
pub(crate) fn replacement(
    socket: &mut Socket,
    names: &Names,
) -> Result<Vec<Message>, NetlinkError> {
    let fixed = fixed(names);
    let mark = mark(&fixed);
    let mut found = None;
    let mut question = part("look up packet filter table", GET_TABLE, 0);
    question.text(1, &names.table);
    let looked = socket.ask(&question, |heard| {
        found = heard.body.get(4..).and_then(|it| find(it, 6)).map(<[u8]>::to_vec);
    });
    match looked {
        Ok(()) if found.as_ref() == Some(&mark) => return Ok(Vec::new()),
        Ok(()) | Err(NetlinkError { errno: Errno::NOENT, .. }) => {}
        Err(error) => return Err(error),
    }
    let table = |kind, flags| {
        let mut message = part("create packet filter table", kind, flags);
        message.text(1, &names.table);
        message
    };
    let mut marked = table(NEW_TABLE, F_CREATE);
    marked.attribute(6, &mark);
    // Made if missing, so that it can be deleted in any case.
    let mut changes = vec![table(NEW_TABLE, F_CREATE), table(DELETE_TABLE, 0), marked];
    changes.extend(fixed);
    Ok(changes)
}

/// Takes the table away.
pub(crate) fn remove(socket: &mut Socket, Names { table, .. }: &Names) -> Result<(), NetlinkError> {
    let mut message = part("delete packet filter table", DELETE_TABLE, 0);
    message.text(1, table);
    match socket.transaction(&[message]) {
        Err(error) if error.errno == Errno::NOENT => Ok(()),
        done => done,
    }
}

/// In the form in which `nft` shows it as the table's comment.
fn mark(fixed: &[Message]) -> Vec<u8> {
    let all: Vec<u8> = fixed.iter().flat_map(|it| it.finished(0, 0)).collect();
    let hash = fnv(&all);
    let text = format!("pods of Ferrolet, rules {hash:016x}\0");
    let mut mark = vec![0, u8::try_from(text.len()).unwrap_or_default()];
    mark.extend_from_slice(text.as_bytes());
    mark
}

/// Sets, chains and rules, in the order in which they refer to one another.
fn fixed(names: &Names) -> Vec<Message> {
    let table = &names.table;
    let mut all = sets(table);
    let chain = |name: &str, hook: Option<(&str, u32, i32)>| {
        let mut message = part(format!("create chain {name}"), NEW_CHAIN, F_CREATE);
        message.text(1, table);
        message.text(3, name);
        if let Some((kind, number, priority)) = hook {
            message.nest(4, |hook| {
                hook.big(1, number);
                hook.big(2, priority.cast_unsigned());
            });
            message.text(7, kind);
        }
        message
    };
    const PREROUTING: u32 = 0;
    const OUTPUT: u32 = 3;
    const POSTROUTING: u32 = 4;
    all.push(chain("from-pods", None));
    all.push(chain("host-ports", None));
    all.push(chain("raw-prerouting", Some(("filter", PREROUTING, -300))));
    all.push(chain("prerouting", Some(("nat", PREROUTING, -99))));
    all.push(chain("output", Some(("nat", OUTPUT, -99))));
    all.push(chain("postrouting", Some(("nat", POSTROUTING, 100))));
    for (chain, expressions) in rules(&names.prefix) {
        all.push(rule(table, chain, &expressions));
    }
    all
}

/// A set's name, flags, types of its key, and types of what a map leads to.
type Shape<'a> = (&'a str, u32, &'a [u32], &'a [u32]);

fn sets(table: &str) -> Vec<Message> {
    const IP4: u32 = 7;
    const IP6: u32 = 8;
    const PROTOCOL: u32 = 12;
    const SERVICE: u32 = 13;
    const INTERFACE: u32 = 20;
    const INTERVAL: u32 = 4;
    const IS_MAP: u32 = 8;
    let joined = |types: &[u32]| types.iter().fold(0, |all, it| (all << 6) | it);
    let length = |types: &[u32]| types.iter().map(|it| if *it == IP6 { 16 } else { 4 }).sum();
    let set = |(n, (name, flags, key, value)): (u32, Shape<'_>)| {
        let mut message = part(format!("create set {name}"), NEW_SET, F_CREATE);
        message.text(1, table);
        message.text(2, name);
        message.big(3, flags);
        message.big(4, joined(key));
        message.big(5, length(key));
        if !value.is_empty() {
            message.big(6, joined(value));
            message.big(7, length(value));
        }
        message.big(10, n);
        message
    };
    let all: [Shape<'_>; 12] = [
        ("ranges4", INTERVAL, &[IP4], &[]),
        ("ranges6", INTERVAL, &[IP6], &[]),
        ("unmasked4", INTERVAL, &[IP4], &[]),
        ("unmasked6", INTERVAL, &[IP6], &[]),
        (Set::Sources4.name(), 0, &[INTERFACE, IP4], &[]),
        (Set::Sources6.name(), 0, &[INTERFACE, IP6], &[]),
        (Set::Ports4.name(), IS_MAP, &[PROTOCOL, SERVICE], &[IP4, SERVICE]),
        (Set::Ports6.name(), IS_MAP, &[PROTOCOL, SERVICE], &[IP6, SERVICE]),
        (Set::AddressPorts4.name(), IS_MAP, &[IP4, PROTOCOL, SERVICE], &[IP4, SERVICE]),
        (Set::AddressPorts6.name(), IS_MAP, &[IP6, PROTOCOL, SERVICE], &[IP6, SERVICE]),
        (Set::Selves4.name(), 0, &[IP4, IP4], &[]),
        (Set::Selves6.name(), 0, &[IP6, IP6], &[]),
    ];
    (1..).zip(all).map(set).collect()
}

fn rules(prefix: &str) -> Vec<(&'static str, Vec<Expression>)> {
    let family = |is| [Meta { key: META_FAMILY, to: A }, Equal { register: A, value: vec![is] }];
    let source = |is: u8, to| match is {
        IPV4 => Payload { base: 1, offset: 12, length: 4, to },
        _ => Payload { base: 1, offset: 8, length: 16, to },
    };
    let destination = |is: u8, to| match is {
        IPV4 => Payload { base: 1, offset: 16, length: 4, to },
        _ => Payload { base: 1, offset: 24, length: 16, to },
    };
    let ours =
        |key| [Meta { key, to: A }, Equal { register: A, value: prefix.as_bytes().to_vec() }];
    let port = |to| {
        [Meta { key: META_PROTOCOL, to }, Payload { base: 2, offset: 2, length: 2, to: to + 1 }]
    };
    let loopback = || [FirstByte { register: A }, Equal { register: A, value: vec![127, 0, 0, 0] }];
    // The kernel answers with the kind of route that leads there; 2 is "local".
    let to_node = || [RouteKind, Equal { register: A, value: 2u32.to_ne_bytes().to_vec() }];
    let all = |parts: &[&[Expression]]| parts.concat();
    let mut rules = vec![
        ("raw-prerouting", all(&[&ours(META_IIF_NAME), &[Jump("from-pods")]])),
        ("from-pods", all(&[&family(IPV4), &[destination(IPV4, A)], &loopback(), &[Drop]])),
        ("prerouting", all(&[&to_node(), &[Jump("host-ports")]])),
        ("output", all(&[&to_node(), &[Jump("host-ports")]])),
        (
            "postrouting",
            all(&[
                &family(IPV4),
                &ours(META_OIF_NAME),
                &[source(IPV4, A)],
                &loopback(),
                &[Masquerade],
            ]),
        ),
    ];
    for (is, width, names) in [
        (IPV4, 1, ["sources4", "address-ports4", "ports4", "selves4", "ranges4", "unmasked4"]),
        (IPV6, 4, ["sources6", "address-ports6", "ports6", "selves6", "ranges6", "unmasked6"]),
    ] {
        let [sources, address_ports, ports, selves, ranges, unmasked] = names;
        let iif = Meta { key: META_IIF, to: A };
        let check = [iif, source(is, A + 1), NotIn { set: sources, register: A }, Drop];
        rules.push(("from-pods", all(&[&family(is), &check])));
        let lead = |map| {
            let family = u32::from(is);
            [Map { map, register: A }, Destination { family, address: A, port: A + width }]
        };
        let exact = [destination(is, A)];
        rules.push((
            "host-ports",
            all(&[&family(is), &exact, &port(A + width), &lead(address_ports)]),
        ));
        rules.push(("host-ports", all(&[&family(is), &port(A), &lead(ports)])));
        let own = [source(is, A), destination(is, A + width), In { set: selves, register: A }];
        rules.push(("postrouting", all(&[&family(is), &own, &[Masquerade]])));
        let out = [
            source(is, A),
            In { set: ranges, register: A },
            destination(is, A),
            NotIn { set: unmasked, register: A },
            Masquerade,
        ];
        rules.push(("postrouting", all(&[&family(is), &out])));
    }
    rules
}

fn rule(table: &str, chain: &str, expressions: &[Expression]) -> Message {
    let mut message = part(format!("create rule in {chain}"), NEW_RULE, F_CREATE | F_APPEND);
    message.text(1, table);
    message.text(2, chain);
    message.nest(4, |list| {
        for expression in expressions {
            list.nest(1, |element| write(element, expression));
        }
    });
    message
}

fn write(message: &mut Message, expression: &Expression) {
    let name = match expression {
        Meta { .. } => "meta",
        Equal { .. } => "cmp",
        Payload { .. } => "payload",
        FirstByte { .. } => "bitwise",
        In { .. } | NotIn { .. } | Map { .. } => "lookup",
        RouteKind => "fib",
        Destination { .. } => "nat",
        Masquerade => "masq",
        Drop | Jump(_) => "immediate",
    };
    message.text(1, name);
    message.nest(2, |data| match expression {
        Meta { key, to } => {
            data.big(1, *to);
            data.big(2, *key);
        }
        Equal { register, value } => {
            data.big(1, *register);
            data.big(2, 0);
            data.nest(3, |it| it.attribute(1, value));
        }
        Payload { base, offset, length, to } => {
            for (kind, value) in [(1, to), (2, base), (3, offset), (4, length)] {
                data.big(kind, *value);
            }
        }
        FirstByte { register } => {
            data.big(1, *register);
            data.big(2, *register);
            data.big(3, 4);
            data.nest(4, |it| it.attribute(1, &[255, 0, 0, 0]));
            data.nest(5, |it| it.attribute(1, &[0; 4]));
        }
        In { set, register } | NotIn { set, register } | Map { map: set, register } => {
            data.text(1, set);
            data.big(2, *register);
            match expression {
                Map { .. } => data.big(3, A),
                NotIn { .. } => data.big(5, 1),
                _ => {}
            }
        }
        Destination { family, address, port } => {
            for (kind, value) in [(1, 1), (2, *family), (3, *address), (5, *port)] {
                data.big(kind, value);
            }
        }
        // Of the destination's address, the kind.
        RouteKind => {
            for (kind, value) in [(1, A), (2, 3), (3, 2)] {
                data.big(kind, value);
            }
        }
        Drop => verdict(data, 0, None),
        Jump(chain) => verdict(data, -3, Some(chain)),
        Masquerade => {}
    });
}

fn verdict(data: &mut Message, code: i32, chain: Option<&str>) {
    data.big(1, 0);
    data.nest(2, |it| {
        it.nest(2, |verdict| {
            verdict.big(1, code.cast_unsigned());
            if let Some(chain) = chain {
                verdict.text(2, chain);
            }
        });
    });
}

/// Pods' ranges, and destinations to which they go under their own addresses, instead of those before.
pub(crate) fn set_ranges(names: &Names, pods: &[Range], unmasked: &[Range]) -> Vec<Message> {
    let table = &names.table;
    let unmasked = [pods, unmasked].concat();
    let mut all = Vec::new();
    for (set, ranges, is_ipv6) in [
        ("ranges4", pods, false),
        ("ranges6", pods, true),
        ("unmasked4", unmasked.as_slice(), false),
        ("unmasked6", unmasked.as_slice(), true),
    ] {
        all.push(element_message(table, DELETE_ELEMENT, 0, set));
        let merged = merged(ranges, is_ipv6);
        if merged.is_empty() {
            continue;
        }
        let mut message = element_message(table, NEW_ELEMENT, F_CREATE, set);
        message.nest(3, |list| {
            for (first, last) in merged {
                interval(list, first, last);
            }
        });
        all.push(message);
    }
    all
}

/// A first key, and the first one after, which ends it; the very last address needs no end.
fn interval(list: &mut Message, first: IpAddr, last: IpAddr) {
    const END: u32 = 1;
    list.nest(1, |element| element.nest(1, |key| key.attribute(1, &octets(first))));
    let after = match last {
        IpAddr::V4(it) => u32::from(it).checked_add(1).map(|it| IpAddr::V4(it.into())),
        IpAddr::V6(it) => u128::from(it).checked_add(1).map(|it| IpAddr::V6(it.into())),
    };
    if let Some(after) = after {
        list.nest(1, |element| {
            element.nest(1, |key| key.attribute(1, &octets(after)));
            element.big(3, END);
        });
    }
}

fn element_message(table: &str, kind: u16, flags: u16, set: &str) -> Message {
    let words = if kind == NEW_ELEMENT { "add to" } else { "take from" };
    let mut message = part(format!("{words} set {set}"), kind, flags);
    message.text(1, table);
    message.text(2, set);
    message
}

pub(crate) fn add(names: &Names, elements: &[Element]) -> Vec<Message> {
    change(&names.table, NEW_ELEMENT, F_CREATE, elements)
}

pub(crate) fn take(names: &Names, elements: &[Element]) -> Vec<Message> {
    change(&names.table, DELETE_ELEMENT, 0, elements)
}

fn change(table: &str, kind: u16, flags: u16, elements: &[Element]) -> Vec<Message> {
    let mut all = Vec::new();
    for set in Set::ALL {
        let of_set: Vec<&Element> = elements.iter().filter(|it| it.set == set).collect();
        for piece in of_set.chunks(ELEMENTS) {
            let mut message = element_message(table, kind, flags, set.name());
            message.nest(3, |list| {
                for element in piece {
                    list.nest(1, |it| {
                        it.nest(1, |key| key.attribute(1, &element.key));
                        if !element.value.is_empty() && kind == NEW_ELEMENT {
                            it.nest(2, |value| value.attribute(1, &element.value));
                        }
                    });
                }
            });
            all.push(message);
        }
    }
    all
}

/// Every element that there is.
pub(crate) fn present(
    socket: &mut Socket,
    names: &Names,
) -> Result<BTreeSet<Element>, NetlinkError> {
    let mut all = BTreeSet::new();
    for set in Set::ALL {
        let question = element_message(&names.table, GET_ELEMENT, 0, set.name());
        socket.dump(&question, |heard| all.extend(read(set, heard)))?;
    }
    Ok(all)
}

fn read(set: Set, heard: Heard<'_>) -> Vec<Element> {
    let list = heard.body.get(4..).and_then(|it| find(it, 3)).unwrap_or_default();
    let value = |of: &[u8], kind| find(of, kind).and_then(|it| find(it, 1)).map(<[u8]>::to_vec);
    let element = |(_, it): (u16, &[u8])| {
        Some(Element { set, key: value(it, 1)?, value: value(it, 2).unwrap_or_default() })
    };
    attributes(list).filter_map(element).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> Names {
        Names::of("ferrolet")
    }
    use crate::netlink::message::messages;

    fn any_element() -> impl Strategy<Value = Element> {
        let set = prop::sample::select(Set::ALL.to_vec());
        let key = prop::collection::vec(any::<u8>(), 1..40);
        (set, key, prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(set, key, value)| Element { set, key, value })
    }

    proptest! {
        #[test]
        fn elements_are_read_as_they_were_written(elements in prop::collection::btree_set(any_element(), 0..900)) {
            let list: Vec<Element> = elements.iter().cloned().collect();
            let mut again = BTreeSet::new();
            for message in add(&names(), &list) {
                let bytes = message.finished(1, 0);
                let heard = messages(&bytes).next().unwrap();
                let name = crate::netlink::message::text(find(&heard.body[4..], 2).unwrap());
                let set = Set::ALL.into_iter().find(|it| it.name() == name).unwrap();
                again.extend(read(set, heard));
            }
            prop_assert_eq!(again, elements);
        }

        #[test]
        fn whatever_comes_is_read_without_harm(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let heard = Heard { kind: NEW_ELEMENT, flags: 0, sequence: 0, body: &body };
            let _ = read(Set::Ports4, heard);
        }
    }

    #[test]
    fn the_mark_changes_with_the_rules() {
        let (all, mut fewer) = (fixed(&names()), fixed(&names()));
        fewer.pop();
        assert_eq!(mark(&all), mark(&fixed(&names())));
        assert_ne!(mark(&all), mark(&fewer));
    }

    #[test]
    fn every_set_that_a_rule_names_is_made() {
        let made: Vec<String> = sets("ferrolet").into_iter().map(|it| it.what).collect();
        for (_, expressions) in rules("frl") {
            for expression in expressions {
                if let In { set, .. } | NotIn { set, .. } | Map { map: set, .. } = expression {
                    assert!(made.contains(&format!("create set {set}")), "{set}");
                }
            }
        }
    }
}
