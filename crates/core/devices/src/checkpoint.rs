//! `device-plugins/kubelet_internal_checkpoint`, upstream's file of who has which device, both ways.
//!
//! The checksum is made over Go's text for the decoded data, so a list that is null differs from an
//! empty one, and the order inside lists counts. Refuses: a file whose checksum does not fit, whole.

use std::{collections::BTreeMap, fmt::Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ferrolet_types::{PodUid, Timestamp, hash::fnv1a_32};
use serde_json::{Value, json};

use crate::{
    Allocation, DeviceBook,
    go_dump::{list, map, or_nil},
};

/// What a checkpoint says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Who has what.
    pub entries: Vec<CheckpointEntry>,
    /// Healthy devices, by resource.
    pub registered: BTreeMap<String, Vec<String>>,
}

/// Devices of one resource that one container has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    /// Whose container.
    pub uid: PodUid,
    /// Which.
    pub container: String,
    /// Of what.
    pub resource: String,
    /// Which devices, by NUMA node.
    pub ids: BTreeMap<i64, Vec<String>>,
    /// The plugin's answer.
    pub answer: Vec<u8>,
}

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
        told: u64,
        /// What its content comes to.
        found: u32,
    },
}

/// An entry as it stands in the file, where what is null was never made.
struct FileEntry {
    uid: String,
    container: String,
    resource: String,
    ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    answer: Option<Vec<u8>>,
}

type FileRegistered = BTreeMap<String, Option<Vec<String>>>;

impl Checkpoint {
    /// The file.
    pub fn encode(&self) -> Vec<u8> {
        let file: Vec<FileEntry> = self.entries.iter().map(FileEntry::of).collect();
        let registered: FileRegistered =
            self.registered.iter().map(|(name, ids)| (name.clone(), Some(ids.clone()))).collect();
        // A list that nothing was put into is null in Go.
        let file = Some(file).filter(|file| !file.is_empty());
        let checksum = checksum(file.as_deref(), Some(&registered));
        let entries = file.map(|file| file.iter().map(FileEntry::json).collect::<Vec<Value>>());
        let data = format!(
            r#"{{"PodDeviceEntries":{},"RegisteredDevices":{}}}"#,
            json!(entries),
            json!(registered)
        );
        format!(r#"{{"Data":{data},"Checksum":{checksum}}}"#).into_bytes()
    }

    /// What a file says.
    pub fn decode(content: &[u8]) -> Result<Self, CheckpointError> {
        let shape = |error: &dyn std::fmt::Display| CheckpointError::Shape(error.to_string());
        let file: Value = serde_json::from_slice(content).map_err(|error| shape(&error))?;
        let told = file["Checksum"].as_u64().ok_or_else(|| shape(&"no Checksum"))?;
        let data = file["Data"].as_object().ok_or_else(|| shape(&"no Data"))?;
        let entries = match data.get("PodDeviceEntries") {
            None | Some(Value::Null) => None,
            Some(Value::Array(list)) => {
                let read = list.iter().map(|it| FileEntry::read(it).map_err(|why| shape(&why)));
                Some(read.collect::<Result<Vec<FileEntry>, CheckpointError>>()?)
            }
            Some(_) => return Err(shape(&"PodDeviceEntries is not a list")),
        };
        let registered: Option<FileRegistered> =
            serde_json::from_value(data.get("RegisteredDevices").cloned().unwrap_or_default())
                .map_err(|error| shape(&error))?;
        let found = checksum(entries.as_deref(), registered.as_ref());
        if told != u64::from(found) {
            return Err(CheckpointError::Checksum { told, found });
        }
        Ok(Self {
            entries: entries.into_iter().flatten().map(FileEntry::into_entry).collect(),
            registered: registered
                .into_iter()
                .flatten()
                .map(|(name, ids)| (name, ids.unwrap_or_default()))
                .collect(),
        })
    }
}

impl FileEntry {
    fn of(entry: &CheckpointEntry) -> Self {
        Self {
            uid: entry.uid.to_string(),
            container: entry.container.clone(),
            resource: entry.resource.clone(),
            ids: Some(entry.ids.iter().map(|(node, ids)| (*node, Some(ids.clone()))).collect()),
            answer: Some(entry.answer.clone()),
        }
    }

    fn into_entry(self) -> CheckpointEntry {
        let ids = self.ids.into_iter().flatten();
        CheckpointEntry {
            uid: PodUid::new(self.uid),
            container: self.container,
            resource: self.resource,
            ids: ids.map(|(node, ids)| (node, ids.unwrap_or_default())).collect(),
            answer: self.answer.unwrap_or_default(),
        }
    }

    fn read(value: &Value) -> Result<Self, String> {
        let entry = value.as_object().ok_or("an entry is not an object")?;
        let text = |name: &str| match entry.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(format!("{name} of an entry is not a text")),
        };
        let read = |name: &str| entry.get(name).cloned().unwrap_or_default();
        let ids: Option<BTreeMap<i64, Option<Vec<String>>>> =
            serde_json::from_value(read("DeviceIDs"))
                .map_err(|error| format!("DeviceIDs of an entry: {error}"))?;
        let answer = match read("AllocResp") {
            Value::Null => None,
            Value::String(text) => {
                Some(STANDARD.decode(text).map_err(|error| format!("AllocResp: {error}"))?)
            }
            _ => return Err("AllocResp of an entry is not a text".to_owned()),
        };
        Ok(Self {
            uid: text("PodUID")?,
            container: text("ContainerName")?,
            resource: text("ResourceName")?,
            ids,
            answer,
        })
    }

    fn json(&self) -> Value {
        json!({
            "PodUID": self.uid,
            "ContainerName": self.container,
            "ResourceName": self.resource,
            "DeviceIDs": self.ids,
            "AllocResp": self.answer.as_ref().map(|it| STANDARD.encode(it)),
        })
    }

    fn dump(&self) -> String {
        let ids =
            or_nil(self.ids.as_ref(), |ids| map(ids, |it| or_nil(it.as_ref(), |it| list(it))));
        let answer = or_nil(self.answer.as_ref(), |it| list(it));
        format!(
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} \
             DeviceIDs:(checkpoint.DevicesPerNUMA){ids} AllocResp:([]uint8){answer}}}",
            self.uid, self.container, self.resource
        )
    }
}

fn checksum(entries: Option<&[FileEntry]>, registered: Option<&FileRegistered>) -> u32 {
    let mut text =
        String::from("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)");
    match entries {
        None => text.push_str("<nil>"),
        Some(entries) => {
            let entries: Vec<String> = entries.iter().map(FileEntry::dump).collect();
            text.push_str(&list(&entries));
        }
    }
    let registered =
        or_nil(registered, |them| map(them, |ids| or_nil(ids.as_ref(), |ids| list(ids))));
    // Writing to a text cannot fail.
    let _ = write!(text, " RegisteredDevices:(map[string][]string){registered}}}");
    fnv1a_32(text.as_bytes())
}

impl DeviceBook {
    /// What is to be kept over the agent's end.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut entries = Vec::new();
        for (uid, pod) in &self.pods {
            for (container, resources) in pod {
                for (resource, allocation) in resources {
                    entries.push(CheckpointEntry {
                        uid: uid.clone(),
                        container: container.clone(),
                        resource: resource.clone(),
                        ids: allocation.ids.clone(),
                        answer: allocation.answer.clone(),
                    });
                }
            }
        }
        let registered = self.resources.iter();
        let registered =
            registered.map(|(name, it)| (name.clone(), it.healthy().into_iter().collect()));
        Checkpoint { entries, registered: registered.collect() }
    }

    /// Begins with what an earlier life of the agent knew: resources count for nothing until their
    /// plugins are back, and pods keep what they have. `read` understands a plugin's answer.
    pub fn recalled<E>(
        checkpoint: Checkpoint,
        now: Timestamp,
        mut read: impl FnMut(&CheckpointEntry) -> Result<ferrolet_spec::PluginResources, E>,
    ) -> (Self, Vec<(CheckpointEntry, E)>) {
        let mut book = Self::default();
        let mut unreadable = Vec::new();
        for entry in checkpoint.entries {
            match read(&entry) {
                Ok(resources) => {
                    let CheckpointEntry { uid, container, resource, ids, answer } = entry;
                    let pod = book.pods.entry(uid).or_default();
                    let allocation = Allocation { ids, resources, answer, is_recalled: true };
                    pod.entry(container).or_default().insert(resource, allocation);
                }
                Err(error) => unreadable.push((entry, error)),
            }
        }
        for resource in checkpoint.registered.keys() {
            book.recall(resource, now);
        }
        (book, unreadable)
    }
}
