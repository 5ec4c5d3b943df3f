//! The trace of an update lasts until the update is in force.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_ports::RuntimeErrorKind;
use ferrolet_testkit::{Call, World, pod};
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use tracing::{Subscriber, span, subscriber::DefaultGuard};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

use crate::rig::*;

/// Notes, whenever a root ends, whether the pod's container ran by then.
struct Roots {
    world: World,
    uid: PodUid,
    ended: Arc<Mutex<Vec<bool>>>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Roots {
    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        if context.span(&id).is_some_and(|span| span.name() == "podUpdate") {
            let is_running = self.world.is_running(&self.uid, "main");
            self.ended.lock().expect("no layer panics while it notes").push(is_running);
        }
    }
}

fn watch_roots(world: &World, pod: &Pod) -> (Arc<Mutex<Vec<bool>>>, DefaultGuard) {
    let ended = Arc::<Mutex<Vec<bool>>>::default();
    let roots = Roots { world: world.clone(), uid: pod.uid(), ended: ended.clone() };
    let subscriber = tracing_subscriber::registry().with(roots);
    (ended, tracing::subscriber::set_default(subscriber))
}

#[tokio::test(start_paused = true)]
async fn a_trace_waits_with_its_pod_for_the_network() {
    let world = world();
    let web = pod("web").container("main", IMAGE).build();
    let (ended, _guard) = watch_roots(&world, &web);
    let agent = Agent::start(&world);
    agent.set_network(false);
    agent.add(&web).await;
    tokio::time::sleep(secs(5)).await;
    assert_eq!(*ended.lock().unwrap(), [false; 0], "nothing of it is in force");
    agent.set_network(true);
    main_runs(&world, &web.uid(), secs(90)).await;
    eventually("the root", SOON, || !ended.lock().unwrap().is_empty()).await;
    assert_eq!(*ended.lock().unwrap(), [true]);
}

#[tokio::test(start_paused = true)]
async fn a_trace_has_the_second_try_too() {
    let world = world();
    let web = pod("web").container("main", IMAGE).build();
    let (ended, _guard) = watch_roots(&world, &web);
    world.fail_next(Call::RunSandbox, 1, RuntimeErrorKind::Internal, "no network");
    let agent = Agent::start(&world);
    agent.add(&web).await;
    main_runs(&world, &web.uid(), secs(90)).await;
    eventually("the root", SOON, || !ended.lock().unwrap().is_empty()).await;
    assert_eq!(*ended.lock().unwrap(), [true]);
}

#[tokio::test(start_paused = true)]
async fn a_trace_does_not_wait_for_ever() {
    let world = world();
    let web = pod("web").container("main", IMAGE).build();
    let (ended, _guard) = watch_roots(&world, &web);
    let agent = Agent::start(&world);
    agent.set_network(false);
    agent.add(&web).await;
    let patience = Duration::from_secs(20 * 60);
    eventually("the root", patience, || !ended.lock().unwrap().is_empty()).await;
    assert_eq!(*ended.lock().unwrap(), [false]);
}
