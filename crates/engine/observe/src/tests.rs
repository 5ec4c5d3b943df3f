//! The map of what runs, and the loops around it, on testkit's world under paused time.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{
    Clock as _, HealthCheck as _, ListedContainer, ListedSandbox, ListedState, Measured as _,
    Runtime as _, RuntimeEvent, RuntimeEventKind, RuntimeListing,
};
use ferrolet_testkit::{Call, Script, World, container_spec, pod, sandbox_spec};
use ferrolet_types::{
    ContainerId, Pod, PodUid,
    hint::{Hint, Seen},
    pod::PodView as _,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{LastListing, ListingHealth, known::Known, watch_containers};

const IMAGE: &str = "registry.example/app:1";

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// `id=state` for sandboxes (`s…`) and containers of one pod.
fn listing(text: &str) -> RuntimeListing {
    let uid = PodUid::new("u");
    let mut listing = RuntimeListing::default();
    for (id, state) in text.split_whitespace().filter_map(|it| it.split_once('=')) {
        if id.starts_with('s') {
            listing.sandboxes.push(ListedSandbox {
                id: id.into(),
                uid: uid.clone(),
                key: pod("web").build().key(),
                is_ready: state == "ready",
                created_at: None,
            });
        } else {
            listing.containers.push(ListedContainer {
                id: id.into(),
                uid: uid.clone(),
                name: "main".into(),
                sandbox: "s".into(),
                state: match state {
                    "created" => ListedState::Created,
                    "running" => ListedState::Running,
                    "exited" => ListedState::Exited,
                    _ => ListedState::Unknown,
                },
                image_ref: String::new(),
                created_at: None,
            });
        }
    }
    listing
}

fn brief(hints: &[Hint]) -> String {
    let brief = |hint: &Hint| match hint {
        Hint::Changed { news, .. } => format!("{} {:?}", news.id, news.now),
        Hint::Census(uids) => {
            let uids: Vec<&str> = uids.iter().map(PodUid::as_str).collect();
            format!("[{}]", uids.join(" "))
        }
    };
    let lines: Vec<String> = hints.iter().map(brief).collect();
    lines.join(", ")
}

/// States and events: what a listing means against the one before; sandboxes count as
/// containers.
#[test]
fn a_listing_tells_what_differs_from_the_one_before() {
    let check = |before: &str, after: &str, expected: &str| {
        let mut known = Known::default();
        known.take_listing(&listing(before));
        let hints = known.take_listing(&listing(after));
        assert_eq!(brief(&hints), expected, "{before} then {after}");
    };
    check("", "", "[]");
    check("", "s=ready a=created", "a Created, s Running, [u]");
    check("s=ready a=created", "s=ready a=running", "a Running, [u]");
    check("s=ready a=running", "s=ready a=running", "[u]");
    check("a=running", "a=exited", "a Ended, [u]");
    check("a=running", "a=lost", "a Unknown, [u]");
    check("s=ready", "s=stopped", "s Ended, [u]");
    check("s=ready a=exited", "s=ready", "a Removed, [u]");
    check("s=ready", "", "s Removed, []");
}

/// Evented: an event that the listing already told is no news.
#[test]
fn an_event_tells_what_the_map_does_not_know() {
    use RuntimeEventKind::{Created, Deleted, Started, Stopped};
    let check = |before: &str, kind: RuntimeEventKind, expected: Option<Seen>| {
        let mut known = Known::default();
        known.take_listing(&listing(before));
        let event = RuntimeEvent { uid: PodUid::new("u"), id: "a".to_owned(), kind };
        let told = known.take_event(event.clone()).map(|hint| match hint {
            Hint::Changed { news, .. } => news.now,
            Hint::Census(_) => panic!("an event is no census"),
        });
        assert_eq!(told, expected, "{before} then {kind:?}");
        if kind != Deleted {
            assert_eq!(known.take_event(event), None, "told once");
        }
    };
    check("", Created, Some(Seen::Created));
    check("", Started, Some(Seen::Running));
    check("", Stopped, Some(Seen::Ended));
    check("a=created", Started, Some(Seen::Running));
    check("a=running", Stopped, Some(Seen::Ended));
    check("a=exited", Deleted, Some(Seen::Removed));
    check("a=lost", Stopped, Some(Seen::Ended));
    // Late events of what went on already.
    check("a=running", Created, None);
    check("a=running", Started, None);
    check("a=exited", Created, None);
    check("a=exited", Started, None);
}

/// A watch on a world, and what it says.
struct Bench {
    world: World,
    hints: mpsc::Receiver<Hint>,
    health: Arc<ListingHealth>,
    _tasks: JoinSet<()>,
}

impl Bench {
    fn start(prepare: impl FnOnce(&World)) -> Self {
        let world = World::new();
        world.add_image(IMAGE);
        world.set_default_latency(Duration::ZERO, Duration::ZERO);
        prepare(&world);
        let (sender, hints) = mpsc::channel(100);
        let health = Arc::new(ListingHealth::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_containers(world.runtime(), sender, health.clone()));
        Self { world, hints, health, _tasks: tasks }
    }

    /// Waits for the news that a container does that, and answers how long it took.
    async fn hears(&mut self, id: &ContainerId, now: Seen) -> Duration {
        let began = Instant::now();
        loop {
            let hint = timeout(secs(300), self.hints.recv()).await;
            let hint = hint.unwrap_or_else(|_| panic!("never heard that {id} is {now:?}"));
            if let Some(Hint::Changed { news, .. }) = hint
                && news.id == id.as_str()
                && news.now == now
            {
                return began.elapsed();
            }
        }
    }

    /// When the next censuses come, seen from now.
    async fn censuses(&mut self, n: usize) -> Vec<Duration> {
        let began = Instant::now();
        let mut times = Vec::new();
        while times.len() < n {
            let hint = timeout(secs(600), self.hints.recv()).await;
            if matches!(hint.unwrap(), Some(Hint::Census(_))) {
                times.push(began.elapsed());
            }
        }
        times
    }

    fn forget_hints(&mut self) {
        while self.hints.try_recv().is_ok() {}
    }
}

fn web() -> Pod {
    pod("web").container("main", IMAGE).build()
}

async fn started(world: &World, pod: &Pod) -> ContainerId {
    let runtime = world.runtime();
    let spec = sandbox_spec(pod, 0);
    let sandbox = runtime.run_sandbox(&spec).await.unwrap();
    let container = container_spec(pod, "main", 0);
    let id = runtime.create_container(&sandbox, &spec, &container).await;
    let id = id.unwrap();
    runtime.start_container(&id).await.unwrap();
    id
}

/// Full relist: ours is rare while events come.
#[tokio::test(start_paused = true)]
async fn with_events_news_come_at_once_and_listings_once_a_minute() {
    let mut bench = Bench::start(|_| {});
    sleep(secs(1)).await;
    bench.forget_hints();
    let id = started(&bench.world, &web()).await;
    assert_eq!(bench.hears(&id, Seen::Running).await, Duration::ZERO);
    bench.world.crash_container(&id, 1);
    assert_eq!(bench.hears(&id, Seen::Ended).await, Duration::ZERO);
    let times = bench.censuses(3).await;
    assert_eq!(times[1] - times[0], secs(60));
    assert_eq!(times[2] - times[1], secs(60));
}

/// What no event told is found by the listing.
#[tokio::test(start_paused = true)]
async fn a_lost_event_is_found_by_the_next_listing() {
    let mut bench = Bench::start(|_| {});
    sleep(secs(1)).await;
    let id = started(&bench.world, &web()).await;
    bench.hears(&id, Seen::Running).await;
    bench.world.lose_events(1);
    bench.world.crash_container(&id, 1);
    let late = bench.hears(&id, Seen::Ended).await;
    assert!(late > secs(50) && late <= secs(60), "{late:?}");
}

/// On demand: one pod is looked at without waiting for the listing.
#[tokio::test(start_paused = true)]
async fn a_listing_that_hangs_holds_no_event_up() {
    let mut bench = Bench::start(|_| {});
    sleep(secs(1)).await;
    bench.world.hang_call(Call::List);
    sleep(secs(61)).await;
    assert_eq!(bench.world.in_flight(Call::List), 1);
    let id = started(&bench.world, &web()).await;
    assert_eq!(bench.hears(&id, Seen::Running).await, Duration::ZERO);
    bench.world.crash_container(&id, 1);
    assert_eq!(bench.hears(&id, Seen::Ended).await, Duration::ZERO);
    bench.world.free_hung();
    bench.censuses(1).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_listing_is_shown_by_the_clock_on_the_wall() {
    let bench = Bench::start(|_| {});
    let clock = bench.world.clock();
    let figure = LastListing::new(bench.health.clone(), clock.clone());
    assert!(figure.samples().is_empty(), "nothing was listed yet");
    sleep(secs(1)).await;
    let seconds_ago = || {
        let shown = figure.samples();
        clock.now().0.as_second() as f64 - shown[0].value.total()
    };
    let first = seconds_ago();
    sleep(secs(30)).await;
    assert_eq!(seconds_ago(), first + 30.0, "the next listing is not due");
    sleep(secs(35)).await;
    assert!(seconds_ago() < 30.0);
}

#[tokio::test(start_paused = true)]
async fn what_ran_before_the_watch_began_is_told() {
    let world = World::new();
    world.add_image(IMAGE);
    let id = started(&world, &web()).await;
    let (sender, hints) = mpsc::channel(100);
    let mut tasks = JoinSet::new();
    let health = Arc::new(ListingHealth::default());
    tasks.spawn(watch_containers(world.runtime(), sender, health.clone()));
    let mut bench = Bench { world, hints, health, _tasks: tasks };
    assert!(bench.hears(&id, Seen::Running).await < millis(10));
}

/// Full relist: measured from the end of the one before, faster while something happens.
#[tokio::test(start_paused = true)]
async fn without_events_listings_follow_changes_quickly_and_quiet_slowly() {
    let mut bench = Bench::start(World::disable_events);
    sleep(secs(10)).await;
    bench.forget_hints();
    let times = bench.censuses(3).await;
    assert_eq!(times[2] - times[1], secs(1), "quiet");
    let id = started(&bench.world, &web()).await;
    assert!(bench.hears(&id, Seen::Running).await <= secs(1));
    let times = bench.censuses(6).await;
    let steps: Vec<u128> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert_eq!(steps, [100, 200, 400, 800, 1000], "{times:?}");
}

/// Evented: a stream that ends; ours never gives up.
#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_is_opened_again_with_growing_pauses() {
    let mut bench = Bench::start(|_| {});
    sleep(secs(1)).await;
    let id = started(&bench.world, &web()).await;
    assert_eq!(bench.world.open_streams(), 1);
    bench.world.runtime_down();
    sleep(secs(20)).await;
    assert_eq!(bench.world.open_streams(), 0);
    bench.world.crash_container(&id, 1);
    bench.world.runtime_up();
    let late = bench.hears(&id, Seen::Ended).await;
    assert!(late <= secs(1), "listings fill the gap: {late:?}");
    let world = bench.world.clone();
    let is_back = |world: &World| world.open_streams() == 1;
    world.until("the stream", secs(3), is_back).await;
    bench.forget_hints();
    let times = bench.censuses(2).await;
    assert_eq!(times[1] - times[0], secs(60));
}

/// Healthy while the last listing is younger than three minutes.
#[tokio::test(start_paused = true)]
async fn the_listing_is_unhealthy_before_the_first_and_three_minutes_after_the_last() {
    let bench = Bench::start(World::runtime_down);
    sleep(secs(1)).await;
    let check = |expected: Option<&str>| {
        let told = bench.health.check().err();
        assert_eq!(told.as_deref(), expected);
    };
    check(Some("pleg has yet to be successful"));
    bench.world.runtime_up();
    sleep(secs(5)).await;
    check(None);
    bench.world.runtime_down();
    sleep(secs(170)).await;
    check(None);
    sleep(secs(20)).await;
    let told = bench.health.check().unwrap_err();
    assert!(told.starts_with("pleg was last seen active"), "{told}");
    bench.world.runtime_up();
    sleep(secs(5)).await;
    check(None);
}

#[tokio::test(start_paused = true)]
async fn the_watch_ends_when_nobody_listens() {
    let bench = Bench::start(World::disable_events);
    let Bench { hints, mut _tasks, .. } = bench;
    drop(hints);
    assert!(timeout(secs(5), _tasks.join_next()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_by_itself_is_heard_of() {
    let mut bench = Bench::start(|world| {
        world.script_name("main", Script::ExitsAfter(secs(7), 0));
    });
    sleep(secs(1)).await;
    let id = started(&bench.world, &web()).await;
    assert_eq!(bench.hears(&id, Seen::Ended).await.as_secs(), 7);
}
