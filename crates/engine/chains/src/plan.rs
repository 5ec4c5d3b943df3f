//! What there has to be in the packet filter, as words for `iptables`. Pure.
//!
//! Names, order and every word are upstream's: `iptables` finds a rule again by comparing it word
//! by word, and kube-proxy keeps a copy of the rule against martians that has to be the same one.

use ferrolet_ports::IpFamily;

/// Tells other programs, by being there, which of the two kinds of `iptables` this node uses.
const HINT: &str = "KUBE-IPTABLES-HINT";
const FIREWALL: &str = "KUBE-FIREWALL";
/// Chains without a rule, whose end says that the tables were emptied.
const CANARY: &str = "KUBE-KUBELET-CANARY";
/// Where the canaries are. The first one is looked at: its table is nearly empty on most nodes.
pub(crate) const CANARIES: [Chain; 3] = [
    Chain::new(Table::Mangle, CANARY),
    Chain::new(Table::Nat, CANARY),
    Chain::new(Table::Filter, CANARY),
];
/// A chain that every kernel with this family has.
pub(crate) const PROOF: Chain = Chain::new(Table::Nat, "POSTROUTING");
/// Packets for addresses of the loopback that come from elsewhere and belong to no connection that
/// was let in.
const MARTIANS: [&str; 16] = [
    "-m",
    "comment",
    "--comment",
    "block incoming localnet connections",
    "--dst",
    "127.0.0.0/8",
    "!",
    "--src",
    "127.0.0.0/8",
    "-m",
    "conntrack",
    "!",
    "--ctstate",
    "RELATED,ESTABLISHED,DNAT",
    "-j",
    "DROP",
];
/// The program could not get what it needed, mostly its lock.
const NO_RESOURCES: i32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Mangle,
    Nat,
    Filter,
}

impl Table {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Filter => "filter",
        }
    }
}

/// A chain by its table and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) table: Table,
    pub(crate) name: &'static str,
}

impl Chain {
    const fn new(table: Table, name: &'static str) -> Self {
        Self { table, name }
    }

    /// Asks for the chain to be made.
    pub(crate) fn making(self) -> Vec<&'static str> {
        self.words("-N", &[])
    }

    /// Asks for what is in the chain.
    pub(crate) fn looking(self) -> Vec<&'static str> {
        self.words("-S", &[])
    }

    fn words(self, operation: &'static str, rest: &[&'static str]) -> Vec<&'static str> {
        // Five seconds of patience with others who hold the lock.
        let mut words = vec!["-w", "5", operation, self.name, "-t", self.table.name()];
        words.extend(rest);
        words
    }
}

/// Where in its chain a rule belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Last,
}

/// A rule that has to be in a chain once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) chain: Chain,
    place: Place,
    words: Vec<&'static str>,
}

impl Rule {
    /// Asks whether the rule is there.
    pub(crate) fn looking(&self) -> Vec<&'static str> {
        self.chain.words("-C", &self.words)
    }

    /// Asks for the rule to be added.
    pub(crate) fn adding(&self) -> Vec<&'static str> {
        let operation = match self.place {
            Place::First => "-I",
            Place::Last => "-A",
        };
        self.chain.words(operation, &self.words)
    }
}

/// Something that has to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Chain(Chain),
    Rule(Rule),
}

/// What a family's packet filter has to have, in the order in which it is made.
pub(crate) fn wanted(family: IpFamily) -> Vec<Wanted> {
    let hint = Wanted::Chain(Chain::new(Table::Mangle, HINT));
    match family {
        // Its loopback is one address, which no setting of the kernel lets in from elsewhere.
        IpFamily::V6 => vec![hint],
        IpFamily::V4 => {
            let firewall = Chain::new(Table::Filter, FIREWALL);
            let jump = |from: &'static str| {
                Wanted::Rule(Rule {
                    chain: Chain::new(Table::Filter, from),
                    place: Place::First,
                    words: vec!["-j", FIREWALL],
                })
            };
            let martians = Wanted::Rule(Rule {
                chain: firewall,
                place: Place::Last,
                words: MARTIANS.to_vec(),
            });
            let chain = Wanted::Chain(firewall);
            vec![hint, chain, jump("OUTPUT"), jump("INPUT"), martians]
        }
    }
}

/// What an exit code says of something that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Yes,
    No,
    /// Nobody knows.
    Unclear,
}

/// A chain's being made: one that is there already is as good.
pub(crate) fn is_made(code: Option<i32>) -> bool {
    matches!(code, Some(0 | 1))
}

/// A rule's being there; a wrong answer would add it twice.
pub(crate) fn rule_is_there(code: Option<i32>) -> Found {
    match code {
        Some(0) => Found::Yes,
        Some(1) => Found::No,
        _ => Found::Unclear,
    }
}

/// A chain's being there. What the program cannot tell for want of its lock is no reason to make
/// everything anew; any other complaint is, because making is harmless.
pub(crate) fn chain_is_there(code: Option<i32>) -> Found {
    match code {
        Some(0) => Found::Yes,
        Some(NO_RESOURCES) | None => Found::Unclear,
        Some(_) => Found::No,
    }
}
