//! The conversation with the manager of power, and what follows from it.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{Event, EventKind, EventObject, PowerError, PowerNews, PowerSession, Tally};
use ferrolet_types::{
    Eviction, EvictionReason, Pod, PodUid,
    pod::{Phase, PodView as _},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    Doors, Settings, ShutdownGroup,
    plan::{grace, group_pods, whole_period},
    record::ShutdownRecord,
};

/// A manager of power that is gone is looked for this often.
const AGAIN: Duration = Duration::from_secs(1);
/// A delay that was asked for is looked at this often, each time after twice as long.
const DELAY_LOOKS: u32 = 5;
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// The cluster is given this long to hear how pods ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
const BACKLOG_LOOK: Duration = Duration::from_millis(20);
const FAULT: &str = "node is shutting down";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Listens for ever.
pub(crate) async fn run(
    settings: Settings,
    doors: Doors,
    fault: watch::Sender<Option<String>>,
    tally: Arc<Tally>,
) {
    if settings.keeps_record {
        ShutdownRecord::load(doors.state_files.as_ref()).await.show(&tally);
    }
    let loops = Watch { settings, doors, fault, tally };
    let mut told = None;
    loop {
        let Err(error) = loops.listen().await;
        if told.as_ref() != Some(&error) {
            tracing::warn!(%error, "Nobody tells when the machine goes down: pods would die with it");
        }
        told = Some(error);
        sleep(AGAIN).await;
    }
}

struct Watch {
    settings: Settings,
    doors: Doors,
    fault: watch::Sender<Option<String>>,
    tally: Arc<Tally>,
}

/// There is no end but an error.
type Never = std::convert::Infallible;

impl Watch {
    /// Listens until the manager of power is gone.
    async fn listen(&self) -> Result<Never, PowerError> {
        let mut power = self.doors.power.listen().await?;
        self.lengthen_delay(power.as_mut()).await?;
        power.hold_up().await?;
        tracing::info!(groups = ?self.settings.groups, "Pods are ended when the machine goes down");
        let mut news = power.next().await?;
        loop {
            news = match news {
                PowerNews::GoesDown => match self.go_down(power.as_mut()).await {
                    Some(news) => news,
                    None => power.next().await?,
                },
                PowerNews::StaysUp => {
                    self.stay_up();
                    power.hold_up().await?;
                    power.next().await?
                }
            };
        }
    }

    /// Asks for a delay that is long enough, and waits until it is there.
    async fn lengthen_delay(&self, power: &mut dyn PowerSession) -> Result<(), PowerError> {
        let wanted = whole_period(&self.settings.groups);
        let mut found = power.longest_delay().await?;
        if found >= wanted {
            return Ok(());
        }
        power.ask_for_delay(wanted).await?;
        let mut pause = FIRST_LOOK;
        for _ in 0..DELAY_LOOKS {
            found = power.longest_delay().await?;
            if found >= wanted {
                return Ok(());
            }
            sleep(pause).await;
            pause *= 2;
        }
        Err(PowerError {
            attempt: "wait for logind's InhibitDelayMaxSec",
            cause: format!("it is {found:?}, and shutdownGracePeriod needs {wanted:?}"),
        })
    }

    /// The machine goes down: ends pods, group by group, then lets it. Answers with what was said
    /// meanwhile: that it stays up.
    async fn go_down(&self, power: &mut dyn PowerSession) -> Option<PowerNews> {
        self.tell("Shutdown manager detected shutdown event");
        self.fault.send_replace(Some(FAULT.to_owned()));
        let start = Some(self.doors.clock.now());
        self.note(ShutdownRecord { start, end: None }).await;
        let stays_up = tokio::select! {
            // The future lives here and is not made anew.
            () = self.end_pods() => None,
            // Cancel-safe by contract.
            () = until_it_stays_up(power) => Some(PowerNews::StaysUp),
        };
        self.note(ShutdownRecord { start, end: Some(self.doors.clock.now()) }).await;
        if stays_up.is_none() {
            self.tell_cluster().await;
            tracing::info!("Every pod had its time; the machine may go down");
            power.release();
        }
        stays_up
    }

    fn stay_up(&self) {
        self.tell("Shutdown manager detected shutdown cancellation");
        self.fault.send_replace(None);
    }

    async fn end_pods(&self) {
        let active = self.doors.pods.pods().into_iter().filter(is_active).collect();
        for (group, pods) in group_pods(&self.settings.groups, active) {
            if pods.is_empty() {
                continue;
            }
            if timeout(group.period, self.end_group(group, &pods)).await.is_err() {
                let names: Vec<String> = pods.iter().map(|pod| pod.key().to_string()).collect();
                let (priority, period) = (group.priority, group.period);
                tracing::warn!(priority, ?period, pods = ?names, "Pods did not end in their time");
            }
        }
    }

    /// Ends pods side by side, and waits until nothing is left of any.
    async fn end_group(&self, group: ShutdownGroup, pods: &[Pod]) {
        for pod in pods {
            let order = Eviction {
                uid: pod.uid(),
                reason: EvictionReason::Terminated,
                message: MESSAGE.to_owned(),
                annotations: Default::default(),
                disruption: Some(MESSAGE.to_owned()),
                grace: Some(grace(pod, group)),
            };
            tracing::info!(pod = %pod.key(), grace = ?order.grace, "Pod ends with the machine");
            // Nobody takes orders when the agent ends; then pods go on by themselves.
            if self.doors.evictions.send(order).await.is_err() {
                return;
            }
        }
        let uids: Vec<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
        self.doors.ended.all(&uids).await;
    }

    /// Lets the last statuses reach the cluster while there still is a network.
    async fn tell_cluster(&self) {
        let Some(backlog) = &self.doors.backlog else {
            return;
        };
        let told = async {
            while backlog.n_pending() > 0 {
                sleep(BACKLOG_LOOK).await;
            }
        };
        if timeout(LAST_WORDS, told).await.is_err() {
            let n_pods = backlog.n_pending();
            tracing::warn!(n_pods, "The cluster does not know yet how these pods ended");
        }
    }

    async fn note(&self, record: ShutdownRecord) {
        if self.settings.keeps_record {
            record.show(&self.tally);
            record.store(self.doors.state_files.as_ref()).await;
        }
    }

    fn tell(&self, message: &str) {
        self.doors.events.record(Event {
            object: EventObject::Node,
            kind: EventKind::Normal,
            reason: "Shutdown".to_owned(),
            message: message.to_owned(),
        });
    }
}

/// Waits for the word that the machine stays up. A manager of power that is gone says nothing more:
/// it goes down like everything else.
async fn until_it_stays_up(power: &mut dyn PowerSession) {
    loop {
        match power.next().await {
            Ok(PowerNews::StaysUp) => return,
            Ok(PowerNews::GoesDown) => {}
            Err(_gone) => return std::future::pending().await,
        }
    }
}

fn is_active(pod: &Pod) -> bool {
    !pod.api_phase().is_some_and(Phase::is_terminal)
}
