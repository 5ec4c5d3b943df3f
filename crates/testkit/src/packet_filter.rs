//! A packet filter in memory that understands the few words the agent says to `iptables`, and fails
//! when it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrolet_ports::{FilterAnswer, Fut, HostError, IpFamily, PacketFilter, Retry};

const BUILT_IN: [(&str, &str); 5] = [
    ("mangle", "OUTPUT"),
    ("nat", "POSTROUTING"),
    ("filter", "FORWARD"),
    ("filter", "INPUT"),
    ("filter", "OUTPUT"),
];

/// The filters of both families. Clones are handles to the same one.
#[derive(Clone, Default)]
pub struct FakePacketFilter {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Rules by family, table and chain.
    chains: BTreeMap<(IpFamily, String, String), Vec<String>>,
    missing: BTreeSet<IpFamily>,
    /// Exit codes by the words that a call begins with, behind those about waiting.
    refused: BTreeMap<String, i32>,
    asked: Vec<(IpFamily, String)>,
}

impl FakePacketFilter {
    /// A filter with nothing but the kernel's own chains.
    pub fn new() -> Self {
        let made = Self::default();
        made.flush();
        made
    }

    /// Takes away every rule and every chain that is not the kernel's own.
    pub fn flush(&self) {
        let families = [IpFamily::V4, IpFamily::V6].into_iter();
        let empty = families.flat_map(|family| {
            BUILT_IN.map(|(table, chain)| ((family, table.to_owned(), chain.to_owned()), vec![]))
        });
        self.lock().chains = empty.collect();
    }

    /// Takes one chain away.
    pub fn remove(&self, family: IpFamily, table: &str, chain: &str) {
        let key = (family, table.to_owned(), chain.to_owned());
        self.lock().chains.remove(&key);
    }

    /// Adds a rule that somebody else made.
    pub fn add(&self, family: IpFamily, table: &str, chain: &str, rule: &str) {
        let key = (family, table.to_owned(), chain.to_owned());
        let mut state = self.lock();
        state.chains.entry(key).or_default().push(rule.to_owned());
    }

    /// Takes a family's program away.
    pub fn lose_program(&self, family: IpFamily) {
        self.lock().missing.insert(family);
    }

    /// Has calls that begin with these words end with this code.
    pub fn refuse(&self, words: &str, code: i32) {
        self.lock().refused.insert(words.to_owned(), code);
    }

    /// Nothing is refused any longer.
    pub fn relent(&self) {
        self.lock().refused.clear();
    }

    /// Everything that is not the kernel's own: `TABLE CHAIN` for a chain, `TABLE CHAIN: RULE` for
    /// a rule.
    pub fn shown(&self, family: IpFamily) -> Vec<String> {
        let state = self.lock();
        let mut shown = Vec::new();
        for ((of, table, chain), rules) in &state.chains {
            if *of != family {
                continue;
            }
            if !BUILT_IN.contains(&(table.as_str(), chain.as_str())) {
                shown.push(format!("{table} {chain}"));
            }
            let rules = rules.iter().map(|rule| format!("{table} {chain}: {rule}"));
            shown.extend(rules);
        }
        shown
    }

    /// Every call since this was last asked, its words joined by blanks.
    pub fn take_asked(&self, family: IpFamily) -> Vec<String> {
        let mut state = self.lock();
        let all = std::mem::take(&mut state.asked).into_iter();
        let (taken, kept) = all.partition(|(of, _)| *of == family);
        state.asked = kept;
        let taken: Vec<(IpFamily, String)> = taken;
        taken.into_iter().map(|(_, words)| words).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn answer(&mut self, family: IpFamily, words: &[&str]) -> (i32, &'static str) {
        let ["-w", _, operation, chain, "-t", table, rule @ ..] = words else {
            return (2, "Bad argument");
        };
        let said = words[2..].join(" ");
        let refused = self.refused.iter();
        let mut refused =
            refused.filter(|(begin, _)| said.starts_with(*begin)).map(|(_, code)| *code);
        if let Some(code) = refused.next() {
            return (code, "refused");
        }
        let rule = rule.join(" ");
        let key = (family, (*table).to_owned(), (*chain).to_owned());
        let absent = (1, "No chain/target/match by that name.");
        match (*operation, self.chains.get_mut(&key)) {
            ("-N", Some(_)) => (1, "Chain already exists."),
            ("-N", None) => {
                self.chains.insert(key, Vec::new());
                (0, "")
            }
            ("-S", Some(_)) => (0, ""),
            ("-C", Some(rules)) if rules.contains(&rule) => (0, ""),
            ("-C", Some(_)) => (1, "Bad rule (does a matching rule exist in that chain?)."),
            ("-I", Some(rules)) => {
                rules.insert(0, rule);
                (0, "")
            }
            ("-A", Some(rules)) => {
                rules.push(rule);
                (0, "")
            }
            ("-S" | "-C" | "-I" | "-A", None) => absent,
            _ => (2, "unknown option"),
        }
    }
}

impl PacketFilter for FakePacketFilter {
    fn run<'a>(
        &'a self,
        family: IpFamily,
        words: &'a [&'a str],
    ) -> Fut<'a, Result<FilterAnswer, HostError>> {
        let mut state = self.lock();
        state.asked.push((family, words.join(" ")));
        let answer = if state.missing.contains(&family) {
            Err(HostError {
                attempt: "run iptables".to_owned(),
                cause: "executable file not found in $PATH".to_owned(),
                retry: Retry::Later,
            })
        } else {
            let (code, complaint) = state.answer(family, words);
            Ok(FilterAnswer { code: Some(code), complaint: complaint.to_owned() })
        };
        Box::pin(std::future::ready(answer))
    }
}
