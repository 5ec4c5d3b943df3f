//! When a volume's files have to be looked at again without anybody saying so. Pure.

use std::time::Duration;

use ferrolet_ports::{Token, TokenAsk};
use ferrolet_types::Timestamp;

/// A token is renewed when a fifth of its life is left.
const LEFT_AT_RENEWAL: u32 = 5;
/// However long it lives, a token is not kept longer than this.
const LONGEST_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The one who holds the tokens must agree that it is time; then another look this much later.
const SOONEST: Duration = Duration::from_secs(10);
const DEFAULT_LIFE: Duration = Duration::from_secs(3600);
const FIRST_BACK_OFF: Duration = Duration::from_millis(500);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(122);

/// When a token should be asked for again.
pub(crate) fn renewal(ask: &TokenAsk, token: &Token, now: Timestamp) -> Timestamp {
    let life = ask.lifetime.unwrap_or(DEFAULT_LIFE);
    let left = token.expires.since(now);
    let wait = left.saturating_sub(life / LEFT_AT_RENEWAL);
    // A second more, so that the holder's own rule is past its edge.
    let wait = wait.min(LONGEST_KEPT) + Duration::from_secs(1);
    now.after(wait.max(SOONEST))
}

/// How long to wait after that many failures in a row, as upstream's operations do.
pub(crate) fn back_off(n_failures: u32) -> Duration {
    back_off_to(LONGEST_BACK_OFF, n_failures)
}

/// How long to wait after that many failures in a row, at most so long.
pub(crate) fn back_off_to(longest: Duration, n_failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(n_failures.saturating_sub(1).min(16));
    (FIRST_BACK_OFF * doubled).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_at_four_fifths_of_their_life_and_daily() {
        let check = |life: u64, left: i64, wait: u64| {
            let now = Timestamp::from_second(1_000_000);
            let ask = TokenAsk {
                namespace: "n".to_owned(),
                service_account: "s".to_owned(),
                audiences: Vec::new(),
                lifetime: Some(Duration::from_secs(life)),
                bound_pod: None,
            };
            let token =
                Token { text: String::new(), expires: Timestamp::from_second(1_000_000 + left) };
            let due = renewal(&ask, &token, now);
            assert_eq!(due.since(now), Duration::from_secs(wait), "{life} {left}");
        };
        check(3600, 3600, 2881);
        check(3600, 1000, 281);
        check(600, 600, 481);
        check(3600, 700, 10);
        check(3600, -5, 10);
        check(10_000_000, 10_000_000, 86_401);
    }

    #[test]
    fn failures_back_off_as_upstreams_operations_do() {
        let waits: Vec<u128> = (1..=10).map(|n| back_off(n).as_millis()).collect();
        assert_eq!(waits[..4], [500, 1000, 2000, 4000]);
        assert_eq!(waits[8..], [122_000, 122_000]);
    }
}
