//! The loop: makes what is wanted, and makes it again when somebody has emptied the tables.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{FilterAnswer, HostError, IpFamily, PacketFilter, Retry};
use tokio::time::{Instant, sleep};

use crate::plan::{
    CANARIES, Chain, Found, PROOF, Rule, Wanted, chain_is_there, is_made, rule_is_there, wanted,
};

/// How often the canary is looked at, and how long what could not be made waits.
const PERIOD: Duration = Duration::from_secs(60);
/// How long somebody who empties the tables is waited for, once that has begun.
const LONGEST_FLUSH: Duration = Duration::from_secs(5);
const FLUSH_STEP: Duration = Duration::from_millis(100);

/// Keeps the chains of every family that this node has, for ever.
pub async fn keep_chains(filter: Arc<dyn PacketFilter>) {
    let keeper = |family| Keeper { filter: filter.as_ref(), family };
    let (v4, v6) = (keeper(IpFamily::V4), keeper(IpFamily::V6));
    match tokio::join!(v4.is_supported(), v6.is_supported()) {
        (true, true) => {
            tokio::join!(v4.keep(), v6.keep());
        }
        (true, false) => v4.keep().await,
        (false, true) => v6.keep().await,
        // No fault: on a node that has nftables only, nobody looks for these chains either.
        (false, false) => tracing::info!(
            "iptables cannot be used on this node, so the chain KUBE-IPTABLES-HINT is not kept"
        ),
    }
    // Every task of the agent lives as long as the agent.
    std::future::pending().await
}

/// One family's part.
struct Keeper<'a> {
    filter: &'a dyn PacketFilter,
    family: IpFamily,
}

impl Keeper<'_> {
    async fn is_supported(&self) -> bool {
        let answer = self.filter.run(self.family, &PROOF.looking()).await;
        answer.is_ok_and(|it| it.code == Some(0))
    }

    /// Ends only when the first attempt fails: a node that refuses once is left alone.
    async fn keep(&self) {
        let family = self.family;
        if !self.make_wanted().await {
            tracing::info!(
                ?family,
                "The kubelet's chains could not be made; programs that rely on them may not work"
            );
            return;
        }
        tracing::info!(?family, "The kubelet's chains are in the packet filter");
        loop {
            while !self.place_canaries().await {
                sleep(PERIOD).await;
            }
            self.await_flush().await;
            tracing::debug!(?family, "The packet filter was emptied; the chains are made again");
            self.make_wanted().await;
        }
    }

    /// Makes one thing after the other; what fails is told, and what comes after it rests on it.
    async fn make_wanted(&self) -> bool {
        for wanted in wanted(self.family) {
            let made = match &wanted {
                Wanted::Chain(chain) => self.make_chain(*chain).await,
                Wanted::Rule(rule) => self.make_rule(rule).await,
            };
            if let Err(error) = made {
                tracing::error!(family = ?self.family, %error, "The packet filter refused");
                return false;
            }
        }
        true
    }

    async fn place_canaries(&self) -> bool {
        for canary in CANARIES {
            if let Err(error) = self.make_chain(canary).await {
                tracing::error!(family = ?self.family, %error, "The packet filter is not watched");
                return false;
            }
        }
        true
    }

    /// Returns when the first canary has gone, and then the others, or when these stay.
    async fn await_flush(&self) {
        loop {
            sleep(PERIOD).await;
            match self.look_for(CANARIES[0]).await {
                Found::Yes => {}
                Found::No => break,
                Found::Unclear => tracing::warn!(
                    family = ?self.family,
                    "The packet filter does not say whether it was emptied"
                ),
            }
        }
        let deadline = Instant::now() + LONGEST_FLUSH;
        while !self.other_canaries_are_gone().await {
            if Instant::now() >= deadline {
                let family = self.family;
                tracing::info!(?family, "Only a part of the packet filter was emptied");
                return;
            }
            sleep(FLUSH_STEP).await;
        }
    }

    async fn other_canaries_are_gone(&self) -> bool {
        for canary in &CANARIES[1..] {
            if self.look_for(*canary).await != Found::No {
                return false;
            }
        }
        true
    }

    async fn look_for(&self, chain: Chain) -> Found {
        match self.filter.run(self.family, &chain.looking()).await {
            Ok(answer) => chain_is_there(answer.code),
            Err(_) => Found::Unclear,
        }
    }

    async fn make_chain(&self, chain: Chain) -> Result<(), HostError> {
        let answer = self.filter.run(self.family, &chain.making()).await?;
        if is_made(answer.code) {
            return Ok(());
        }
        Err(refusal("make", chain, answer))
    }

    async fn make_rule(&self, rule: &Rule) -> Result<(), HostError> {
        let answer = self.filter.run(self.family, &rule.looking()).await?;
        match rule_is_there(answer.code) {
            Found::Yes => return Ok(()),
            Found::No => {}
            Found::Unclear => return Err(refusal("look for a rule in", rule.chain, answer)),
        }
        let answer = self.filter.run(self.family, &rule.adding()).await?;
        match answer.code {
            Some(0) => Ok(()),
            _ => Err(refusal("add a rule to", rule.chain, answer)),
        }
    }
}

fn refusal(attempt: &str, chain: Chain, answer: FilterAnswer) -> HostError {
    let (name, table) = (chain.name, chain.table.name());
    let ended = match answer.code {
        Some(code) => format!("exit status {code}"),
        None => "ended by a signal".to_owned(),
    };
    HostError {
        attempt: format!("{attempt} chain {name} of table {table}"),
        cause: format!("{ended}: {}", answer.complaint.trim()),
        retry: Retry::Later,
    }
}
