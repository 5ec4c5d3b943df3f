//! Who may hold a connection to the main listener: strangers a few and for a short time, guests many.
//!
//! A connection begins as a stranger's and becomes a guest's with its first request that is let in
//! ([`Seat::let_in`]). Strangers have seats of their own, and when all are taken, the oldest one of
//! the neighbourhood that holds most of them goes for whoever comes: however many connections somebody
//! without credentials holds open, whoever has some gets in.
//!
//! ```text
//!   accepted ──► stranger ──── let in, and a guest's seat is free ────► guest ──► closed
//!                  ├── others come and there are too many: it goes
//!                  └── not let in within the time for introductions: it goes
//! ```
//!
//! Owned by the listener's loop, one [`Seat`] per connection and all that comes of it. Refuses: judging
//! who anybody is.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Requests of one stranger's connection that may wait to hear whether they are let in; what their
/// heads take is bounded by it.
const QUESTIONS: usize = 8;

/// All seats of a listener.
pub(crate) struct Seats {
    strangers: Mutex<Strangers>,
    n_strangers: usize,
    guests: Arc<Semaphore>,
    /// How long somebody who was let in waits for a guest to leave.
    patience: Duration,
}

#[derive(Default)]
struct Strangers {
    /// By age, the oldest first.
    seated: BTreeMap<u64, Stranger>,
    n_seated_ever: u64,
}

struct Stranger {
    from: IpAddr,
    leave: Arc<Notify>,
}

impl Seats {
    pub(crate) fn new(n_strangers: usize, n_guests: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            strangers: Mutex::default(),
            n_strangers: n_strangers.max(1),
            guests: Arc::new(Semaphore::new(n_guests)),
            patience,
        })
    }

    /// A seat for a connection from there; somebody else's may be taken away for it.
    pub(crate) fn take(self: &Arc<Self>, from: IpAddr) -> Arc<Seat> {
        let (from, leave) = (neighbourhood(from), Arc::new(Notify::new()));
        let mut strangers = self.lock();
        if strangers.seated.len() >= self.n_strangers {
            strangers.make_room();
        }
        strangers.n_seated_ever += 1;
        let number = strangers.n_seated_ever;
        strangers.seated.insert(number, Stranger { from, leave: Arc::clone(&leave) });
        drop(strangers);
        Arc::new(Seat {
            seats: Arc::clone(self),
            number,
            from,
            leave,
            n_asking: AtomicUsize::new(0),
            guest: Mutex::new(None),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().expect("no panic under this lock")
    }
}

impl Strangers {
    /// Sends away the oldest of those who are most.
    fn make_room(&mut self) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for stranger in self.seated.values() {
            *counts.entry(stranger.from).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let is_of_most = |it: &Stranger| counts.get(&it.from) == Some(&most);
        let oldest = self.seated.iter().find(|(_, it)| is_of_most(it));
        if let Some((&number, _)) = oldest
            && let Some(gone) = self.seated.remove(&number)
        {
            gone.leave.notify_one();
        }
    }
}

/// One connection's seat. Given back when the connection and all that came of it are gone.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    from: IpAddr,
    leave: Arc<Notify>,
    /// Requests that wait to hear whether they are let in.
    n_asking: AtomicUsize,
    guest: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Seat {
    /// The neighbourhood that the connection came from.
    pub(crate) fn from(&self) -> IpAddr {
        self.from
    }

    /// One request more asks to be let in; `None` when a stranger asks too many things at once.
    pub(crate) fn ask(self: &Arc<Self>) -> Option<Asking> {
        let n_before = self.n_asking.fetch_add(1, Ordering::Relaxed);
        let asking = Asking(Arc::clone(self));
        (n_before < QUESTIONS || self.is_guest()).then_some(asking)
    }

    /// Makes the connection a guest's. False when there are too many guests and none leaves.
    pub(crate) async fn let_in(&self) -> bool {
        if self.is_guest() {
            return true;
        }
        let free = Arc::clone(&self.seats.guests).acquire_owned();
        let Ok(permit) = tokio::time::timeout(self.seats.patience, free).await else {
            return false;
        };
        let permit = permit.expect("the seats are never closed");
        // Another request of the connection may have been faster; then this seat is given back.
        self.guest.lock().expect("no panic under this lock").get_or_insert(permit);
        self.seats.lock().seated.remove(&self.number);
        true
    }

    /// Completes when a stranger's time is over, or its seat is needed. Never for a guest.
    pub(crate) async fn must_go(&self, introductions: Duration) {
        let too_late = async {
            loop {
                tokio::time::sleep(introductions).await;
                if self.is_guest() {
                    std::future::pending::<()>().await;
                }
                // Whoever waits for the API server's word is not to blame.
                if self.n_asking.load(Ordering::Relaxed) == 0 {
                    return;
                }
            }
        };
        tokio::select! {
            // Cancel-safe: there is one waiter, and the other branch ends the connection too.
            () = self.leave.notified() => {}
            // Cancel-safe: it only watches.
            () = too_late => {}
        }
    }

    fn is_guest(&self) -> bool {
        self.guest.lock().expect("no panic under this lock").is_some()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().seated.remove(&self.number);
    }
}

/// A request that asks to be let in.
pub(crate) struct Asking(Arc<Seat>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.n_asking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Addresses that one machine can have for nothing are one: IPv6 gives each network 2^64 of them.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    async fn is_gone(seat: &Seat) -> bool {
        tokio::time::timeout(Duration::from_millis(1), seat.must_go(PATIENCE)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_seats_are_taken_the_oldest_of_those_who_are_most_goes() {
        let seats = Seats::new(4, 4, PATIENCE);
        let honest = seats.take(address("10.0.0.1"));
        let crowd: Vec<_> = (0..3).map(|_| seats.take(address("10.0.0.2"))).collect();
        let next = seats.take(address("10.0.0.3"));
        assert!(is_gone(&crowd[0]).await);
        for seat in [&honest, &crowd[1], &crowd[2], &next] {
            assert!(!is_gone(seat).await);
        }
        // Alone against many addresses, age alone decides.
        let crowd: Vec<_> = (0..4).map(|n| seats.take(address(&format!("10.1.0.{n}")))).collect();
        assert!(is_gone(&honest).await);
        assert!(!is_gone(&crowd[3]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_of_ipv6_is_one_neighbour() {
        let seats = Seats::new(3, 4, PATIENCE);
        let honest = seats.take(address("2001:db8::1"));
        let crowd: Vec<_> =
            (0..2).map(|n| seats.take(address(&format!("2001:db8:0:1::{n}")))).collect();
        let _next = seats.take(address("::ffff:10.0.0.1"));
        assert!(is_gone(&crowd[0]).await && !is_gone(&honest).await);
    }

    #[tokio::test(start_paused = true)]
    async fn guests_stay_and_strangers_have_little_time() {
        let seats = Seats::new(2, 1, PATIENCE);
        let guest = seats.take(address("10.0.0.1"));
        assert!(guest.let_in().await && guest.let_in().await);
        let strangers: Vec<_> = (0..3).map(|_| seats.take(address("10.0.0.1"))).collect();
        assert!(is_gone(&strangers[0]).await);
        strangers[1].must_go(PATIENCE).await;
        let longer = tokio::time::timeout(PATIENCE * 9, guest.must_go(PATIENCE)).await;
        assert!(longer.is_err());
        // There is room for one guest.
        assert!(!strangers[2].let_in().await);
        drop(guest);
        assert!(strangers[2].let_in().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_asks_a_few_things_at_once_and_is_not_sent_away_meanwhile() {
        let seats = Seats::new(2, 1, PATIENCE);
        let seat = seats.take(address("10.0.0.1"));
        let asking: Vec<_> = (0..QUESTIONS).map(|_| seat.ask().unwrap()).collect();
        assert!(seat.ask().is_none());
        let longer = tokio::time::timeout(PATIENCE * 9, seat.must_go(PATIENCE)).await;
        assert!(longer.is_err());
        drop(asking);
        assert!(seat.ask().is_some());
        assert!(seat.let_in().await);
        let many: Vec<_> = (0..3 * QUESTIONS).map(|_| seat.ask()).collect();
        assert!(many.iter().all(Option::is_some));
    }
}
