//! How devices feel, as their drivers say: the book, and `dra_health_state`, upstream's file of it.
//!
//! What a driver does not repeat in time is not known any more. A driver may name so many devices
//! and no more: it can invent as many as it likes.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_types::Timestamp;
use serde::{Deserialize, Serialize};

/// Devices of one driver that are remembered; upstream's number.
pub const N_DEVICES: usize = 16_384;
/// How long a word of a driver holds that names no time.
const HOLDS: Duration = Duration::from_secs(30);
/// Longest message of a device in a pod's status.
const LONGEST: usize = 1024;

/// How a device feels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeling {
    /// It works.
    Healthy,
    /// It does not.
    Unhealthy,
    /// Nobody knows.
    Unknown,
}

impl Feeling {
    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
        }
    }

    fn of(word: &str) -> Self {
        match word {
            "Healthy" => Self::Healthy,
            "Unhealthy" => Self::Unhealthy,
            _ => Self::Unknown,
        }
    }
}

/// What a driver says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// The pool that it is of.
    pub pool: String,
    /// Its name there.
    pub device: String,
    /// How it feels.
    pub feeling: Feeling,
    /// How long that holds; zero for as long as usual.
    pub holds: Duration,
    /// Why, in the driver's words.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    health: DeviceHealth,
    at: Timestamp,
}

impl Told {
    fn is_stale(&self, now: Timestamp) -> bool {
        let holds = self.health.holds;
        now.since(self.at) > if holds.is_zero() { HOLDS } else { holds }
    }
}

/// What drivers say of their devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthBook {
    /// By driver, pool and device.
    drivers: BTreeMap<String, BTreeMap<(String, String), Told>>,
}

/// A message that fits into a status.
pub fn shortened(message: &str) -> String {
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    format!("{}...", &message[..message.floor_char_boundary(LONGEST - 3)])
}

impl HealthBook {
    /// How a device feels now, and why.
    pub fn of(
        &self,
        driver: &str,
        pool: &str,
        device: &str,
        now: Timestamp,
    ) -> (Feeling, Option<&str>) {
        let devices = self.drivers.get(driver);
        let told = devices.and_then(|it| it.get(&(pool.to_owned(), device.to_owned())));
        match told.filter(|it| !it.is_stale(now)) {
            Some(told) => (told.health.feeling, Some(&told.health.message)),
            None => (Feeling::Unknown, None),
        }
    }

    /// Takes in what a driver says of all its devices. Answers which of them feel different, and
    /// how many were left out.
    pub fn report(
        &mut self,
        driver: &str,
        devices: Vec<DeviceHealth>,
        now: Timestamp,
    ) -> (Vec<(String, String)>, usize) {
        let known = self.drivers.entry(driver.to_owned()).or_default();
        let (mut changed, mut n_left_out) = (Vec::new(), 0);
        let mut reported = std::collections::BTreeSet::new();
        for health in devices {
            let key = (health.pool.clone(), health.device.clone());
            reported.insert(key.clone());
            let old = known.get(&key);
            if old.is_none() && known.len() >= N_DEVICES {
                n_left_out += 1;
                continue;
            }
            if old.is_none_or(|old| old.health != health) {
                changed.push(key.clone());
            }
            known.insert(key, Told { health, at: now });
        }
        // Who is not named any more is forgotten when its last word does not hold any longer.
        known.retain(|key, told| {
            let is_gone = !reported.contains(key) && told.is_stale(now);
            if is_gone && told.health.feeling != Feeling::Unknown {
                changed.push(key.clone());
            }
            !is_gone
        });
        (changed, n_left_out)
    }

    /// Nobody speaks for the driver any more; answers whose devices that were.
    pub fn forget(&mut self, driver: &str) -> Vec<(String, String)> {
        self.drivers.remove(driver).unwrap_or_default().into_keys().collect()
    }
}

#[derive(Serialize, Deserialize)]
struct FileDriver {
    #[serde(rename = "Devices", default)]
    devices: Option<BTreeMap<String, FileDevice>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FileDevice {
    pool_name: String,
    device_name: String,
    health: String,
    last_updated: jiff::Timestamp,
    #[serde(default)]
    health_check_timeout: i64,
    #[serde(default)]
    message: String,
}

/// The book as a file.
pub fn encode_health(book: &HealthBook) -> Result<Vec<u8>, serde_json::Error> {
    let device = |told: &Told| FileDevice {
        pool_name: told.health.pool.clone(),
        device_name: told.health.device.clone(),
        health: told.health.feeling.as_str().to_owned(),
        last_updated: told.at.0,
        health_check_timeout: i64::try_from(told.health.holds.as_nanos()).unwrap_or(i64::MAX),
        message: told.health.message.clone(),
    };
    let drivers = book.drivers.iter().map(|(driver, devices)| {
        let devices =
            devices.iter().map(|((pool, name), it)| (format!("{pool}/{name}"), device(it)));
        (driver, FileDriver { devices: Some(devices.collect()) })
    });
    serde_json::to_vec(&drivers.collect::<BTreeMap<_, _>>())
}

/// The book that a file holds.
pub fn decode_health(content: &[u8]) -> Result<HealthBook, serde_json::Error> {
    let drivers: BTreeMap<String, FileDriver> = serde_json::from_slice(content)?;
    let told = |it: FileDevice| Told {
        health: DeviceHealth {
            pool: it.pool_name,
            device: it.device_name,
            feeling: Feeling::of(&it.health),
            holds: Duration::from_nanos(u64::try_from(it.health_check_timeout).unwrap_or(0)),
            message: it.message,
        },
        at: Timestamp(it.last_updated),
    };
    let drivers = drivers.into_iter().map(|(driver, file)| {
        let devices = file.devices.into_iter().flatten().take(N_DEVICES).map(|(_, it)| told(it));
        let devices = devices.map(|it| ((it.health.pool.clone(), it.health.device.clone()), it));
        (driver, devices.collect())
    });
    Ok(HealthBook { drivers: drivers.collect() })
}
