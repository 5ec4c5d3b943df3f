//! logind as the manager of power: how long it waits, a lock that makes it wait, and its signal that
//! the machine goes down. Upstream: `pkg/kubelet/nodeshutdown/systemd`.

use std::{
    error::Error as _,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use ferrolet_linux::offload::{Job, Pool, refused};
use ferrolet_ports::{Fut, Power, PowerError, PowerNews, PowerSession};

use crate::{BusError, Connection, Method, Value};

const LOGIND: &str = "org.freedesktop.login1";
const LOGIND_PATH: &str = "/org/freedesktop/login1";
const LOGIND_MANAGER: &str = "org.freedesktop.login1.Manager";
/// Each question to logind and systemd.
const ANSWER: Duration = Duration::from_secs(10);
/// Where logind looks for what others want of it.
const DROP_INS: &str = "/etc/systemd/logind.conf.d";
const DROP_IN: &str = "99-kubelet.conf";

/// logind on the system's bus.
#[derive(Clone, Debug)]
pub struct Logind {
    /// The bus; `None` for the system's.
    bus: Option<PathBuf>,
    drop_ins: PathBuf,
}

impl Logind {
    /// The machine's own.
    pub fn of_machine() -> Self {
        Self { bus: None, drop_ins: PathBuf::from(DROP_INS) }
    }

    /// One on another bus, with another directory of settings.
    pub fn at(bus: &Path, drop_ins: &Path) -> Self {
        Self { bus: Some(bus.to_owned()), drop_ins: drop_ins.to_owned() }
    }
}

impl Power for Logind {
    fn listen(&self) -> Fut<'_, Result<Box<dyn PowerSession>, PowerError>> {
        Box::pin(async {
            let attempt = "listen to logind";
            let opened = match &self.bus {
                None => Connection::system().await,
                Some(bus) => Connection::open(bus).await,
            };
            let mut bus = opened.map_err(|error| failed(attempt, &error))?;
            let rule = format!(
                "type='signal',interface='{LOGIND_MANAGER}',member='PrepareForShutdown',path='{LOGIND_PATH}'"
            );
            // Before anything is asked, so that nothing is said unheard.
            bus.subscribe(&rule, ANSWER).await.map_err(|error| failed(attempt, &error))?;
            let session = Session { bus, lock: None, drop_ins: self.drop_ins.clone() };
            Ok(Box::new(session) as Box<dyn PowerSession>)
        })
    }
}

struct Session {
    bus: Connection,
    /// logind waits for as long as this is open.
    lock: Option<OwnedFd>,
    drop_ins: PathBuf,
}

fn manager(member: &str) -> Method<'_> {
    Method { destination: LOGIND, path: LOGIND_PATH, interface: LOGIND_MANAGER, member }
}

impl PowerSession for Session {
    fn longest_delay(&mut self) -> Fut<'_, Result<Duration, PowerError>> {
        Box::pin(async {
            let attempt = "read InhibitDelayMaxUSec of logind";
            let value = self.bus.property(manager("InhibitDelayMaxUSec"), ANSWER).await;
            match value.map_err(|error| failed(attempt, &error))? {
                Value::U64(micros) => Ok(Duration::from_micros(micros)),
                other => {
                    let cause = format!("it is of type {}", other.signature());
                    Err(PowerError { attempt, cause })
                }
            }
        })
    }

    fn ask_for_delay(&mut self, delay: Duration) -> Fut<'_, Result<(), PowerError>> {
        Box::pin(async move {
            let attempt = "set InhibitDelayMaxSec of logind";
            let (directory, text) = (self.drop_ins.clone(), drop_in(delay));
            let written = Job::on(Pool::State, attempt).run(move || {
                let place = directory.join(DROP_IN);
                let write =
                    || fs::create_dir_all(&directory).and_then(|()| fs::write(&place, text));
                write().map_err(|cause| refused(format!("write {}", place.display()), &cause))
            });
            written.await.map_err(|error| PowerError { attempt, cause: error.to_string() })?;
            let reload = Method {
                destination: "org.freedesktop.systemd1",
                path: "/org/freedesktop/systemd1",
                interface: "org.freedesktop.systemd1.Manager",
                member: "KillUnit",
            };
            const SIGHUP: i32 = 1;
            let body =
                vec![Value::text("systemd-logind.service"), Value::text("all"), Value::I32(SIGHUP)];
            let told = self.bus.call(reload, body, ANSWER).await;
            told.map(drop).map_err(|error| failed(attempt, &error))
        })
    }

    fn hold_up(&mut self) -> Fut<'_, Result<(), PowerError>> {
        Box::pin(async {
            let attempt = "take logind's lock";
            let words =
                ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
            let body = words.map(Value::text).to_vec();
            let answer = self.bus.call(manager("Inhibit"), body, ANSWER).await;
            let mut answer = answer.map_err(|error| failed(attempt, &error))?;
            let Some(lock) = answer.descriptors.pop() else {
                return Err(PowerError { attempt, cause: "it gives no descriptor".to_owned() });
            };
            self.lock = Some(lock);
            Ok(())
        })
    }

    fn release(&mut self) {
        self.lock = None;
    }

    fn next(&mut self) -> Fut<'_, Result<PowerNews, PowerError>> {
        Box::pin(async {
            loop {
                let signal = self.bus.next_signal().await;
                let signal = signal.map_err(|error| failed("listen to logind", &error))?;
                if !signal.is_signal(LOGIND_MANAGER, "PrepareForShutdown") {
                    continue;
                }
                match signal.body.first() {
                    Some(Value::Bool(true)) => return Ok(PowerNews::GoesDown),
                    Some(Value::Bool(false)) => return Ok(PowerNews::StaysUp),
                    other => tracing::warn!(?other, "logind's PrepareForShutdown says nothing"),
                }
            }
        })
    }
}

/// What logind is told in a file of its own, as upstream writes it.
fn drop_in(delay: Duration) -> String {
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    format!("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={seconds}\n")
}

fn failed(attempt: &'static str, error: &BusError) -> PowerError {
    let cause = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    PowerError { attempt, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logind_is_told_in_upstreams_words() {
        let expected = "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=30\n";
        assert_eq!(drop_in(Duration::from_secs(30)), expected);
    }
}
