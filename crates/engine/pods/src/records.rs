//! What pods were granted and what was put in force, kept on disk in upstream's format:
//! `allocated_pods_state` and `actuated_pods_state` in the root directory.
//!
//! Workers note, [`Records::keep`] writes: many notes become one write. Nobody waits for the disk:
//! without the newest grant a resize is judged again, and without the newest word on what is in
//! force a container is bounded once more. Where its policy asks for a restart that would be a
//! second one, so a resize is written at once and only a crowd of new pods waits. A file that
//! cannot be read is reported, set aside and begun anew, from the other one or from the pods' own
//! specifications, where upstream's kubelet refuses to start (ADR 0015). Refuses: deciding anything
//! from what it holds.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use ferrolet_ports::StateFiles;
use ferrolet_resources::PodResources;
use ferrolet_types::{PodUid, hash::fnv1a_32};
use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A crowd of pods brings a crowd of notes: what is noted within this time after a write is written
/// together. A resize does not wait: its note is what keeps a container from being restarted for it
/// twice.
const PAUSE: Duration = Duration::from_millis(200);

const ALLOCATED: &str = "allocated_pods_state";
const ACTUATED: &str = "actuated_pods_state";

/// Resources by pod.
pub(crate) type ByPod = BTreeMap<PodUid, PodResources>;

/// Both records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    books: Mutex<Books>,
    changed: Notify,
    /// Something changed that must not be lost.
    hurry: Notify,
}

/// What a note was about.
enum News {
    /// Nothing that was not known.
    Old,
    /// A pod came or went; whoever forgets it learns it again.
    Crowd,
    /// A pod was given other resources.
    Resize,
}

#[derive(Clone, Debug, Default)]
struct Books {
    allocated: ByPod,
    actuated: ByPod,
}

/// Why a record cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("not a checkpoint: {0}")]
    Shape(String),
    #[error("checkpoint is corrupted: its checksum is {told}, its content's is {found}")]
    Checksum { told: u64, found: u32 },
}

impl Records {
    /// Reads both files, once, before anybody notes anything.
    pub(crate) async fn load(&self, files: &dyn StateFiles) {
        let actuated = read(files, ACTUATED).await.unwrap_or_default();
        let allocated = read(files, ALLOCATED).await;
        let books = Books {
            // What is in force was granted once. A resize that waited for room is judged again,
            // instead of being taken for granted because the specification says so.
            allocated: allocated.unwrap_or_else(|| actuated.clone()),
            actuated,
        };
        *self.books.lock().expect("no panic while the lock is held") = books;
    }

    /// Everything that was granted.
    pub(crate) fn allocated(&self) -> ByPod {
        self.look(|books| books.allocated.clone())
    }

    /// What one pod was granted.
    pub(crate) fn allocated_to(&self, uid: &PodUid) -> Option<PodResources> {
        self.look(|books| books.allocated.get(uid).cloned())
    }

    /// What is in force for one pod.
    pub(crate) fn actuated(&self, uid: &PodUid) -> Option<PodResources> {
        self.look(|books| books.actuated.get(uid).cloned())
    }

    /// Notes what a pod was granted.
    pub(crate) fn grant(&self, uid: &PodUid, resources: PodResources) {
        self.note(|books| News::of(&mut books.allocated, uid, resources));
    }

    /// Notes what is in force.
    pub(crate) fn put_in_force(&self, uid: &PodUid, resources: &PodResources) {
        self.note(|books| News::of(&mut books.actuated, uid, resources.clone()));
    }

    /// Keeps what is said of these pods only.
    pub(crate) fn retain(&self, is_known: impl Fn(&PodUid) -> bool) {
        self.note(|books| {
            let before = books.allocated.len() + books.actuated.len();
            books.allocated.retain(|uid, _| is_known(uid));
            books.actuated.retain(|uid, _| is_known(uid));
            match before == books.allocated.len() + books.actuated.len() {
                true => News::Old,
                false => News::Crowd,
            }
        });
    }

    /// Forgets a pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.retain(|known| known != uid);
    }

    /// Writes what was noted, for ever. Cancel-safe between two writes; each replaces its file in
    /// one step.
    pub(crate) async fn keep(&self, files: &dyn StateFiles) -> std::convert::Infallible {
        let mut written = [Vec::new(), Vec::new()];
        loop {
            self.changed.notified().await;
            let books = self.look(Clone::clone);
            let contents =
                [(ALLOCATED, encode(&books.allocated)), (ACTUATED, encode(&books.actuated))];
            for ((name, content), old) in contents.into_iter().zip(&mut written) {
                if content == *old {
                    continue;
                }
                match files.write(name, content.clone()).await {
                    Ok(()) => *old = content,
                    Err(error) => tracing::error!(%error, "Resources of pods cannot be noted"),
                }
            }
            tokio::select! {
                // A timer loses nothing, and a hurry that nobody waited for is remembered.
                () = tokio::time::sleep(PAUSE) => {}
                () = self.hurry.notified() => {}
            }
        }
    }

    fn look<T>(&self, of: impl FnOnce(&Books) -> T) -> T {
        of(&self.books.lock().expect("no panic while the lock is held"))
    }

    fn note(&self, edit: impl FnOnce(&mut Books) -> News) {
        let news = edit(&mut self.books.lock().expect("no panic while the lock is held"));
        match news {
            News::Old => {}
            News::Crowd => self.changed.notify_one(),
            News::Resize => {
                self.changed.notify_one();
                self.hurry.notify_one();
            }
        }
    }
}

impl News {
    /// Notes a pod's resources and says what is new about them.
    fn of(book: &mut ByPod, uid: &PodUid, resources: PodResources) -> Self {
        match book.get_mut(uid) {
            None => {
                book.insert(uid.clone(), resources);
                Self::Crowd
            }
            Some(known) if *known == resources => Self::Old,
            Some(known) => {
                *known = resources;
                Self::Resize
            }
        }
    }
}

/// What a record says; `None` for one that cannot be read.
async fn read(files: &dyn StateFiles, name: &str) -> Option<ByPod> {
    let content = match files.read(name).await {
        Ok(Some(content)) => content,
        Ok(None) => return Some(ByPod::new()),
        Err(error) => {
            tracing::error!(%error, "A record of pods' resources cannot be read and begins anew");
            return None;
        }
    };
    match decode(&content) {
        Ok(pods) => Some(pods),
        Err(error) => {
            let aside = format!("{name}.unreadable");
            tracing::error!(file = name, %error, aside, "A record of pods' resources cannot be read and begins anew");
            if let Err(error) = files.write(&aside, content).await {
                tracing::error!(%error, "The unreadable record cannot be kept");
            }
            None
        }
    }
}

/// Upstream's checkpoint: the entries as JSON in a string, and a checksum over the text that Go
/// prints for that string. Fields come in upstream's order, so that what did not change reads as it
/// did.
fn encode(pods: &ByPod) -> Vec<u8> {
    let entries: Vec<String> = pods
        .iter()
        .map(|(uid, resources)| format!("{}:{}", json!(uid.to_string()), entry(resources)))
        .collect();
    let data = match entries.is_empty() {
        true => "{}".to_owned(),
        false => format!(r#"{{"entries":{{{}}}}}"#, entries.join(",")),
    };
    let (checksum, data) = (checksum(&data), json!(data));
    format!(r#"{{"data":{data},"checksum":{checksum}}}"#).into_bytes()
}

fn entry(resources: &PodResources) -> String {
    // A map that Go never made is null.
    let limits = Some(&resources.volume_limits).filter(|limits| !limits.is_empty());
    format!(
        r#"{{"ContainerResources":{},"PodLevelResources":{},"EmptyDirVolumeLimits":{}}}"#,
        json!(resources.containers),
        json!(resources.pod),
        json!(limits),
    )
}

fn checksum(data: &str) -> u32 {
    fnv1a_32(format!("(string){data}").as_bytes())
}

fn decode(content: &[u8]) -> Result<ByPod, RecordError> {
    let shape = |error: serde_json::Error| RecordError::Shape(error.to_string());
    let missing = |what: &str| RecordError::Shape(format!("no {what}"));
    let checkpoint: Value = serde_json::from_slice(content).map_err(shape)?;
    let data = checkpoint["data"].as_str().ok_or_else(|| missing("data"))?;
    let told = checkpoint["checksum"].as_u64().ok_or_else(|| missing("checksum"))?;
    let found = checksum(data);
    if told != u64::from(found) {
        return Err(RecordError::Checksum { told, found });
    }
    let mut data: Value = serde_json::from_str(data).map_err(shape)?;
    let Value::Object(entries) = data["entries"].take() else {
        return Ok(ByPod::new());
    };
    let read = |(uid, mut entry): (String, Value)| {
        let containers: Option<BTreeMap<String, ResourceRequirements>> =
            serde_json::from_value(entry["ContainerResources"].take()).map_err(shape)?;
        let pod: Option<ResourceRequirements> =
            serde_json::from_value(entry["PodLevelResources"].take()).map_err(shape)?;
        let volume_limits: Option<BTreeMap<String, Option<Quantity>>> =
            serde_json::from_value(entry["EmptyDirVolumeLimits"].take()).map_err(shape)?;
        let resources = PodResources {
            containers: containers.unwrap_or_default(),
            pod,
            volume_limits: volume_limits.unwrap_or_default(),
        };
        Ok((PodUid::new(uid), resources))
    };
    entries.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = r#"{"data":"{\"entries\":{\"ed72b505-3176-45d5-81e1-b75d82e7aaca\":{\"ContainerResources\":{\"g\":{\"limits\":{\"cpu\":\"200m\",\"memory\":\"48Mi\"},\"requests\":{\"cpu\":\"200m\",\"memory\":\"48Mi\"}}},\"PodLevelResources\":null,\"EmptyDirVolumeLimits\":null}}}","checksum":CHECKSUM}"#;
    /// `recorded/state-files/actuated_pods_state.json`, the shortest of its pods, and the whole.
    const WHOLE: &str = include_str!("../tests/recorded/actuated_pods_state.json");

    #[test]
    fn upstreams_checkpoint_is_read_and_written_back_byte_for_byte() {
        let pods = decode(WHOLE.as_bytes()).unwrap();
        assert_eq!(pods.len(), 4);
        let sure = &pods[&PodUid::new("ed72b505-3176-45d5-81e1-b75d82e7aaca")];
        let limits = sure.containers["g"].limits.as_ref().unwrap();
        assert_eq!(limits["memory"].0, "48Mi");
        assert_eq!(text(&pods), WHOLE);
        assert_eq!(
            text(&ByPod::new()),
            r#"{"data":"{}","checksum":CHECKSUM}"#.replace("CHECKSUM", &checksum("{}").to_string())
        );
    }

    fn text(pods: &ByPod) -> String {
        String::from_utf8(encode(pods)).unwrap()
    }

    /// As upstream's kubelet writes them with gate `InPlacePodVerticalScalingMemoryBackedVolumes`:
    /// a node that is handed over keeps them until the pod is granted its resources anew.
    #[test]
    fn limits_of_volumes_are_kept_as_they_were_found() {
        let check = |limits: &str, expected: &[(&str, Option<&str>)]| {
            let data = format!(
                r#"{{"entries":{{"u":{{"ContainerResources":{{"c":{{}}}},"PodLevelResources":null,"EmptyDirVolumeLimits":{limits}}}}}}}"#
            );
            let (number, data) = (checksum(&data), json!(data));
            let whole = format!(r#"{{"data":{data},"checksum":{number}}}"#);
            let pods = decode(whole.as_bytes()).unwrap();
            let found: Vec<(&str, Option<&str>)> = pods[&PodUid::new("u")]
                .volume_limits
                .iter()
                .map(|(name, limit)| (name.as_str(), limit.as_ref().map(|it| it.0.as_str())))
                .collect();
            assert_eq!(found, expected, "{limits}");
            assert_eq!(text(&pods), whole);
        };
        check("null", &[]);
        check(r#"{"cache":"64Mi"}"#, &[("cache", Some("64Mi"))]);
        check(r#"{"a":"1Gi","b":null}"#, &[("a", Some("1Gi")), ("b", None)]);
    }

    #[test]
    fn a_checkpoint_that_was_tampered_with_is_refused() {
        let text = RECORDED.replace("CHECKSUM", "1");
        assert!(matches!(decode(text.as_bytes()), Err(RecordError::Checksum { told: 1, .. })));
        for bad in ["", "{", "[]", "{}", r#"{"data":1,"checksum":2}"#] {
            assert!(matches!(decode(bad.as_bytes()), Err(RecordError::Shape(_))), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_set_aside_and_taken_from_the_other() {
        let of = |cpu: &str| PodResources {
            containers: BTreeMap::from([(
                "c".to_owned(),
                serde_json::from_value(json!({"requests": {"cpu": cpu}})).unwrap(),
            )]),
            ..PodResources::default()
        };
        let uid = PodUid::new("a");
        let (granted, in_force) = (of("2"), of("1"));
        let good = |resources: &PodResources| {
            let pods = ByPod::from([(uid.clone(), resources.clone())]);
            String::from_utf8(encode(&pods)).unwrap()
        };
        let bad = "{\"data\":\"{}\",\"checksum\":1}";
        let check =
            async |allocated: &str, actuated: &str, expected: [Option<&PodResources>; 2]| {
                let world = ferrolet_testkit::World::new();
                let files = world.state_files();
                for (name, content) in [(ALLOCATED, allocated), (ACTUATED, actuated)] {
                    let written = files.write(name, content.as_bytes().to_vec()).await;
                    written.unwrap();
                }
                let records = Records::default();
                records.load(files.as_ref()).await;
                let found = [records.allocated().get(&uid).cloned(), records.actuated(&uid)];
                assert_eq!(found, expected.map(Option::<&PodResources>::cloned));
                for (name, content) in [(ALLOCATED, allocated), (ACTUATED, actuated)] {
                    let kept = files.read(&format!("{name}.unreadable")).await.unwrap();
                    let expected = (content == bad).then(|| bad.as_bytes().to_vec());
                    assert_eq!(kept, expected, "{name}");
                }
            };
        let (wider, narrower) = (good(&granted), good(&in_force));
        check(&wider, &narrower, [Some(&granted), Some(&in_force)]).await;
        check(bad, &narrower, [Some(&in_force), Some(&in_force)]).await;
        check(&wider, bad, [Some(&granted), None]).await;
        check(bad, bad, [None, None]).await;
    }

    /// Notes when something is written, in milliseconds after its birth.
    struct Diary {
        born: tokio::time::Instant,
        writes: Mutex<Vec<u128>>,
    }

    impl StateFiles for Diary {
        fn read<'a>(
            &'a self,
            _name: &'a str,
        ) -> ferrolet_ports::Fut<'a, Result<Option<Vec<u8>>, ferrolet_ports::HostError>> {
            Box::pin(async { Ok(None) })
        }

        fn write<'a>(
            &'a self,
            _name: &'a str,
            _content: Vec<u8>,
        ) -> ferrolet_ports::Fut<'a, Result<(), ferrolet_ports::HostError>> {
            let at = self.born.elapsed().as_millis();
            Box::pin(async move {
                self.writes.lock().unwrap().push(at);
                Ok(())
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_written_together_and_a_resize_at_once() {
        let (records, diary) = (
            Records::default(),
            Diary { born: tokio::time::Instant::now(), writes: Mutex::default() },
        );
        let come = async {
            let pass = |ms| tokio::time::sleep(Duration::from_millis(ms));
            for n in 0..100 {
                records.grant(&PodUid::new(n.to_string()), PodResources::default());
                pass(1).await;
            }
            // 100 ms: the crowd waits, a resize does not.
            let resized = PodResources {
                pod: Some(ResourceRequirements::default()),
                ..PodResources::default()
            };
            records.grant(&PodUid::new("7"), resized);
            pass(500).await;
            records.forget(&PodUid::new("7"));
            pass(500).await;
        };
        tokio::select! {
            () = come => {}
            never = records.keep(&diary) => match never {},
        }
        // The first write brings both files; of the second nothing ever changes.
        assert_eq!(*diary.writes.lock().unwrap(), [0, 0, 100, 600]);
    }
}
