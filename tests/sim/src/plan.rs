//! From a seed to a list of events. Pure: a plan never looks at the world.

use std::time::Duration;

use ferrolet_testkit::Call;

use crate::{
    dice::Dice,
    manners::{RESET, TALKERS},
    shape::Shape,
};

/// Places for pods; a place holds one pod at a time.
pub(crate) const N_SLOTS: u64 = 4;

/// One thing that happens, to the node or to what is wanted of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A manifest appears, or takes the place of another one.
    Put {
        /// Where.
        slot: u64,
        /// What.
        shape: Shape,
    },
    /// A pod of the API gets another image for its last container.
    Change {
        /// Where.
        slot: u64,
    },
    /// The deletion of a pod of the API is asked for.
    Delete {
        /// Where.
        slot: u64,
        /// With that grace, or less if the pod has less.
        grace: i64,
    },
    /// A manifest disappears.
    Remove {
        /// Where.
        slot: u64,
    },
    /// The manifest that disappeared last comes back unchanged.
    Return {
        /// Where.
        slot: u64,
    },
    /// One of the running containers dies.
    CrashContainer {
        /// Which, counted round.
        pick: u64,
        /// With that code.
        code: i32,
    },
    /// One of the ready sandboxes dies.
    CrashSandbox {
        /// Which, counted round.
        pick: u64,
    },
    /// The runtime goes away.
    Down,
    /// The runtime comes back.
    Up,
    /// The next calls of a kind fail.
    Fail {
        /// Which kind.
        call: Call,
        /// How many.
        n: usize,
    },
    /// Calls of a kind take that long from now on.
    Slow {
        /// Which kind.
        call: Call,
        /// How long.
        takes: Duration,
    },
    /// Every call about one pod hangs.
    Hang {
        /// Whose.
        slot: u64,
    },
    /// Nothing hangs any more.
    Free,
    /// Events get lost.
    LoseEvents {
        /// How many.
        n: usize,
    },
    /// The runtime has no events from now on.
    NoEvents,
    /// Volumes cannot be made ready.
    BreakVolumes,
    /// Volumes can be made ready again.
    MendVolumes,
    /// Commands in containers of a name answer like that from now on: probes and hooks.
    Answer {
        /// Whose.
        container: &'static str,
        /// With that code.
        code: i32,
        /// After that time.
        takes: Duration,
    },
    /// The last container of a pod of the API gets other bounds.
    Resize {
        /// Where.
        slot: u64,
        /// Bytes of memory.
        memory: i64,
    },
    /// A pod of the API gets an ephemeral container.
    Debug {
        /// Where.
        slot: u64,
    },
    /// The node cannot afford a pod any longer.
    Evict {
        /// Where.
        slot: u64,
    },
    /// The pod network is not ready.
    NetworkDown,
    /// The pod network is ready again.
    NetworkUp,
    /// The agent dies, stays away that long, and comes back.
    Kill {
        /// How long nobody is there.
        away: Duration,
    },
    /// Everything dies, and the agent comes back to a fresh kernel.
    Reboot,
    /// Time passes.
    Wait(Duration),
}

/// The plan of a seed.
pub fn plan(seed: u64, n_steps: usize) -> Vec<Event> {
    let mut dice = Dice::new(seed);
    let mut events = Vec::with_capacity(n_steps * 2);
    while events.len() < n_steps * 2 {
        events.push(roll(&mut dice));
        // Most of the time the next thing happens while the last one is still being dealt with.
        let pause = match dice.below(6) {
            0 => Duration::ZERO,
            1 => Duration::from_millis(dice.below(8)),
            2 => Duration::from_millis(dice.below(500)),
            3 | 4 => Duration::from_secs(dice.below(20)),
            _ => Duration::from_secs(dice.below(400)),
        };
        events.push(Event::Wait(pause));
    }
    events
}

fn roll(dice: &mut Dice) -> Event {
    let slot = dice.below(N_SLOTS);
    match dice.below(49) {
        0..=11 => Event::Put { slot, shape: Shape::roll(dice) },
        12 | 13 => Event::Change { slot },
        14 => Event::Delete { slot, grace: *dice.pick(&[0, 1, 10, 30]) },
        15..=18 => Event::Remove { slot },
        19 | 20 => Event::Return { slot },
        21 | 22 => {
            Event::CrashContainer { pick: dice.next(), code: *dice.pick(&[0, 1, 137, RESET]) }
        }
        23 => Event::CrashSandbox { pick: dice.next() },
        24 => Event::Down,
        25 | 26 => Event::Up,
        27 | 28 => Event::Fail {
            call: *dice.pick(&CALLS),
            n: usize::try_from(1 + dice.below(4)).unwrap_or(1),
        },
        29 => {
            Event::Slow { call: *dice.pick(&CALLS), takes: Duration::from_millis(dice.below(3000)) }
        }
        30 => Event::Hang { slot },
        31 => Event::Free,
        32 => Event::LoseEvents { n: usize::try_from(1 + dice.below(6)).unwrap_or(1) },
        33 if dice.percent(30) => Event::NoEvents,
        34 => {
            if dice.percent(50) {
                Event::BreakVolumes
            } else {
                Event::MendVolumes
            }
        }
        35 => {
            if dice.percent(40) {
                Event::NetworkDown
            } else {
                Event::NetworkUp
            }
        }
        36 if dice.percent(40) => Event::Reboot,
        40..=43 => {
            let (is_well, container) = (dice.percent(40), *dice.pick(&TALKERS));
            Event::Answer {
                container,
                code: if is_well { 0 } else { 1 },
                takes: match dice.below(4) {
                    0 if !is_well => Duration::from_secs(dice.below(90)),
                    _ => Duration::ZERO,
                },
            }
        }
        44..=46 => Event::Resize { slot, memory: *dice.pick(&[64 << 20, 96 << 20, 128 << 20]) },
        47 => Event::Debug { slot },
        48 => Event::Evict { slot },
        _ => Event::Kill { away: Duration::from_millis(dice.below(4) * dice.below(8000)) },
    }
}

/// What may fail or be slow.
pub(crate) const CALLS: [Call; 23] = [
    Call::List,
    Call::ObservePod,
    Call::Events,
    Call::RunSandbox,
    Call::StopSandbox,
    Call::RemoveSandbox,
    Call::CreateContainer,
    Call::StartContainer,
    Call::StopContainer,
    Call::RemoveContainer,
    Call::UpdateContainer,
    Call::ImageStatus,
    Call::PullImage,
    Call::EnsureCgroup,
    Call::RemoveCgroup,
    Call::EnsurePodFiles,
    Call::RemovePodFiles,
    Call::RemoveLogs,
    Call::WriteHosts,
    Call::EnsureContainerLogs,
    Call::LinkContainerLog,
    Call::EnsureVolumes,
    Call::ReleaseVolumes,
];
