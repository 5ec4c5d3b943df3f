//! systemd as the maker of slices: transient units, so that nothing stays over a boot, and properties
//! set at run time, so that a `daemon-reload` does not undo them.
//!
//! Each request has a connection of its own, a few at a time: a systemd that hangs holds up those who
//! need a slice now, for as long as their deadline, and nobody else. Upstream: `libcontainer`'s
//! manager for systemd.

use std::{
    error::Error as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{Fut, HostError, Retry, Slice, SliceProperty, Slices};
use tokio::{sync::Semaphore, time::timeout};

use crate::{BusError, Connection, Message, Method, Value};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// Each question.
const ANSWER: Duration = Duration::from_secs(10);
/// What systemd began has to be done by then.
const DONE: Duration = Duration::from_secs(30);
/// Requests at a time.
const MOST_REQUESTS: usize = 8;
/// The unit is there, or its name is taken.
const EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const ABSENT: &str = "org.freedesktop.systemd1.NoSuchUnit";

/// systemd on the system's bus.
#[derive(Clone, Debug)]
pub struct Systemd {
    /// The bus; `None` for the system's.
    bus: Option<PathBuf>,
    requests: Arc<Semaphore>,
}

impl Systemd {
    /// The machine's own.
    pub fn of_machine() -> Self {
        Self { bus: None, requests: Arc::new(Semaphore::new(MOST_REQUESTS)) }
    }

    /// One on another bus.
    pub fn at(bus: &Path) -> Self {
        Self { bus: Some(bus.to_owned()), ..Self::of_machine() }
    }

    async fn connect(&self) -> Result<Connection, BusError> {
        match &self.bus {
            None => Connection::system().await,
            Some(bus) => Connection::open(bus).await,
        }
    }

    async fn ensure_slice(&self, slice: &Slice) -> Result<(), BusError> {
        let _turn = self.requests.acquire().await;
        let mut bus = self.connect().await?;
        follow_jobs(&mut bus).await?;
        let properties = constant(slice).chain(slice.properties.iter().map(property)).collect();
        let body = vec![
            Value::text(&slice.name),
            Value::text("replace"),
            Value::Array("(sv)".to_owned(), properties),
            Value::Array("(sa(sv))".to_owned(), Vec::new()),
        ];
        match bus.call(manager("StartTransientUnit"), body, ANSWER).await {
            Ok(answer) => job_ends(&mut bus, &answer, "StartTransientUnit").await,
            Err(BusError::Error(why)) if why.starts_with(EXISTS) => {
                set_properties(&mut bus, &slice.name, &slice.properties).await
            }
            Err(error) => Err(error),
        }
    }

    async fn set_unit(&self, name: &str, properties: &[SliceProperty]) -> Result<(), BusError> {
        let _turn = self.requests.acquire().await;
        let mut bus = self.connect().await?;
        set_properties(&mut bus, name, properties).await
    }

    async fn stop_unit(&self, name: &str) -> Result<(), BusError> {
        let _turn = self.requests.acquire().await;
        let mut bus = self.connect().await?;
        follow_jobs(&mut bus).await?;
        let body = vec![Value::text(name), Value::text("replace")];
        match bus.call(manager("StopUnit"), body, ANSWER).await {
            Ok(answer) => job_ends(&mut bus, &answer, "StopUnit").await,
            Err(BusError::Error(why)) if why.starts_with(ABSENT) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Slices for Systemd {
    fn ensure<'a>(&'a self, slice: &'a Slice) -> Fut<'a, Result<(), HostError>> {
        Box::pin(async {
            let made = self.ensure_slice(slice).await;
            made.map_err(|error| failed(format!("make {} by systemd", slice.name), &error))
        })
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        properties: &'a [SliceProperty],
    ) -> Fut<'a, Result<(), HostError>> {
        Box::pin(async move {
            let set = self.set_unit(name, properties).await;
            set.map_err(|error| failed(format!("set properties of {name} by systemd"), &error))
        })
    }

    fn stop<'a>(&'a self, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        Box::pin(async move {
            let stopped = self.stop_unit(name).await;
            stopped.map_err(|error| failed(format!("stop {name} by systemd"), &error))
        })
    }
}

fn manager(member: &str) -> Method<'_> {
    Method { destination: SYSTEMD, path: SYSTEMD_PATH, interface: MANAGER, member }
}

/// Before anything is begun, so that no end is missed.
async fn follow_jobs(bus: &mut Connection) -> Result<(), BusError> {
    let rule =
        format!("type='signal',interface='{MANAGER}',member='JobRemoved',path='{SYSTEMD_PATH}'");
    bus.subscribe(&rule, ANSWER).await
}

/// Waits until systemd has done what it began.
async fn job_ends(bus: &mut Connection, begun: &Message, what: &str) -> Result<(), BusError> {
    let Some(job @ Value::Path(_)) = begun.body.first() else {
        return Err(BusError::Unexpected(what.to_owned()));
    };
    let ended = timeout(DONE, async {
        loop {
            let signal = bus.next_signal().await?;
            if !signal.is_signal(MANAGER, "JobRemoved") {
                continue;
            }
            let [_, ended, _, Value::Str(result)] = signal.body.as_slice() else {
                continue;
            };
            if ended == job {
                return Ok(result.clone());
            }
        }
    });
    match ended.await {
        Err(_elapsed) => Err(BusError::Silent(format!("the end of {what}"), DONE)),
        Ok(Err(error)) => Err(error),
        Ok(Ok(result)) if result == "done" => Ok(()),
        Ok(Ok(result)) => Err(BusError::Error(format!("{what} ended with {result}"))),
    }
}

async fn set_properties(
    bus: &mut Connection,
    name: &str,
    properties: &[SliceProperty],
) -> Result<(), BusError> {
    if properties.is_empty() {
        return Ok(());
    }
    let properties = properties.iter().map(property).collect();
    let until_boot = Value::Bool(true);
    let body = vec![Value::text(name), until_boot, Value::Array("(sv)".to_owned(), properties)];
    bus.call(manager("SetUnitProperties"), body, ANSWER).await.map(drop)
}

/// What every slice of ours has.
fn constant(slice: &Slice) -> impl Iterator<Item = Value> {
    let wants = Value::Array("s".to_owned(), vec![Value::text(&slice.parent)]);
    let described = Value::text(format!("libcontainer container {}", slice.name));
    let accounted = ["MemoryAccounting", "CPUAccounting", "IOAccounting", "TasksAccounting"];
    let first = [
        named("Description", described),
        named("Wants", wants),
        named("DefaultDependencies", Value::Bool(false)),
    ];
    first.into_iter().chain(accounted.into_iter().map(|it| named(it, Value::Bool(true))))
}

fn property(property: &SliceProperty) -> Value {
    match property {
        SliceProperty::Number(name, number) => named(name, Value::U64(*number)),
        SliceProperty::Mask(name, bits) => {
            let bits = bits.iter().copied().map(Value::Byte).collect();
            named(name, Value::Array("y".to_owned(), bits))
        }
    }
}

fn named(name: &str, value: Value) -> Value {
    Value::Struct(vec![Value::text(name), Value::variant(value)])
}

fn failed(attempt: String, error: &BusError) -> HostError {
    let cause = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    HostError { attempt, cause, retry: Retry::Later }
}
