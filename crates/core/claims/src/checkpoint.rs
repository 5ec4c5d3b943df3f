//! `dra_manager_state`, upstream's file of claims that are in use, both ways.
//!
//! The content is a JSON text inside of a JSON text, with the CRC-32 of the inner one beside it.
//! Fields that a version does not have are taken as empty: 1.32 and 1.33 know no shares, and before
//! 1.37 nothing was skipped. Refuses: a file whose checksum does not fit, and the file of 1.31 and
//! before, which upstream refuses too.

use std::collections::BTreeMap;

use ferrolet_types::PodUid;
use serde::{Deserialize, Serialize};

use crate::{ClaimBook, ClaimInfo, ClaimRef, DriverState, PreparedDevice, Stage};

const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

/// Why a checkpoint cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// It has another shape.
    #[error("not a checkpoint: {0}")]
    Shape(String),
    /// It says something else than when it was written.
    #[error("checkpoint is corrupted: its checksum is {told}, its content's is {found}")]
    Checksum {
        /// What the file says.
        told: u32,
        /// What its content comes to.
        found: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(rename = "Data")]
    data: String,
    #[serde(rename = "Checksum")]
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Data {
    #[serde(default)]
    kind: String,
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(rename = "ClaimInfoStateList", default)]
    claims: Option<Vec<Claim>>,
}

#[derive(Serialize, Deserialize)]
struct Empty {}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Claim {
    #[serde(rename = "ClaimUID")]
    claim_uid: String,
    claim_name: String,
    namespace: String,
    #[serde(rename = "PodUIDs", default)]
    pod_uids: Option<BTreeMap<String, Empty>>,
    #[serde(default)]
    driver_state: Option<BTreeMap<String, Driver>>,
}

#[derive(Serialize, Deserialize)]
struct Driver {
    #[serde(rename = "Devices", default)]
    devices: Option<Vec<Device>>,
    #[serde(rename = "skipNodeOperations", default, skip_serializing_if = "Option::is_none")]
    skips: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct Device {
    #[serde(rename = "PoolName")]
    pool: String,
    #[serde(rename = "DeviceName")]
    device: String,
    #[serde(rename = "ShareID", default)]
    share_id: Option<String>,
    #[serde(rename = "RequestNames", default)]
    requests: Option<Vec<String>>,
    #[serde(rename = "CDIDeviceIDs", default)]
    cdi_ids: Option<Vec<String>>,
}

/// The book as a file.
pub fn encode(book: &ClaimBook) -> Result<Vec<u8>, CheckpointError> {
    let shape = |error: serde_json::Error| CheckpointError::Shape(error.to_string());
    let claims: Vec<Claim> = book.claims().map(claim_to_file).collect();
    let data = Data {
        kind: KIND.to_owned(),
        api_version: API_VERSION.to_owned(),
        // As upstream's kubelet has it before the first claim.
        claims: (!claims.is_empty()).then_some(claims),
    };
    let data = serde_json::to_string(&data).map_err(shape)?;
    let checksum = crc32(data.as_bytes());
    serde_json::to_vec(&File { data, checksum }).map_err(shape)
}

/// The book that a file holds.
pub fn decode(content: &[u8]) -> Result<ClaimBook, CheckpointError> {
    let shape = |error: serde_json::Error| CheckpointError::Shape(error.to_string());
    let file: File = serde_json::from_slice(content).map_err(shape)?;
    let found = crc32(file.data.as_bytes());
    if found != file.checksum {
        return Err(CheckpointError::Checksum { told: file.checksum, found });
    }
    let data: Data = serde_json::from_str(&file.data).map_err(shape)?;
    Ok(ClaimBook::new(data.claims.into_iter().flatten().map(claim_from_file)))
}

fn list(of: &[String]) -> Option<Vec<String>> {
    (!of.is_empty()).then(|| of.to_vec())
}

fn claim_to_file(info: &ClaimInfo) -> Claim {
    let driver = |state: &DriverState| {
        let devices = state.devices.iter().map(|it| Device {
            pool: it.pool.clone(),
            device: it.device.clone(),
            share_id: it.share_id.clone(),
            requests: list(&it.requests),
            cdi_ids: list(&it.cdi_ids),
        });
        let devices: Vec<Device> = devices.collect();
        Driver { devices: (!devices.is_empty()).then_some(devices), skips: list(&state.skips) }
    };
    let drivers = info.drivers.iter().map(|(name, state)| (name.clone(), driver(state)));
    Claim {
        claim_uid: info.claim.uid.clone(),
        claim_name: info.claim.name.clone(),
        namespace: info.claim.namespace.clone(),
        pod_uids: Some(info.pods.iter().map(|uid| (uid.to_string(), Empty {})).collect()),
        driver_state: Some(drivers.collect()),
    }
}

fn claim_from_file(claim: Claim) -> ClaimInfo {
    let device = |it: Device| PreparedDevice {
        pool: it.pool,
        device: it.device,
        share_id: it.share_id,
        requests: it.requests.unwrap_or_default(),
        cdi_ids: it.cdi_ids.unwrap_or_default(),
    };
    let driver = |it: Driver| DriverState {
        devices: it.devices.into_iter().flatten().map(device).collect(),
        skips: it.skips.unwrap_or_default(),
    };
    let drivers = claim.driver_state.into_iter().flatten();
    ClaimInfo {
        claim: ClaimRef {
            namespace: claim.namespace,
            name: claim.claim_name,
            uid: claim.claim_uid,
        },
        pods: claim.pod_uids.into_iter().flatten().map(|(uid, _)| PodUid::new(uid)).collect(),
        drivers: drivers.map(|(name, state)| (name, driver(state))).collect(),
        stage: Stage::Kept,
    }
}

/// CRC-32 as Ethernet has it (IEEE 802.3, reflected), bit by bit: the file is small.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    let fold = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, fold)
}
