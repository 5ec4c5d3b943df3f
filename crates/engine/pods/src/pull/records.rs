//! What was pulled and by whom, kept on disk: written around each pull, asked before a present
//! image is used.
//!
//! Owns the files below `image_manager`. A pull that was dropped half-way may still have fetched
//! its image, so its intent stays until a pull of that name has succeeded: whoever comes next has
//! to prove itself. Refuses: deciding; core's `images` does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use ferrolet_images::{
    Credential, ImageName,
    record::{
        PullCredentials, PulledRecord, after_pull, decode_intent, decode_record, encode_intent,
        encode_record, file_name,
    },
    verify::{FirstLook, Verdict, Verification, compare, first_look},
};
use ferrolet_ports::{Clock, HostError, Images, PullFile, PullFiles};
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

/// Keeps the records.
pub(super) struct PullRecords {
    files: Arc<dyn PullFiles>,
    policy: Verification,
    clock: Arc<dyn Clock>,
    /// Held while a record is read, changed and written.
    changing: AsyncMutex<()>,
    intents: Mutex<Intents>,
    recovered: OnceCell<()>,
}

#[derive(Default)]
struct Intents {
    under_way: BTreeMap<String, u32>,
    /// Names of pulls that were dropped half-way.
    abandoned: BTreeSet<String>,
}

/// A pull that has begun. Dropped without an end, it counts as abandoned.
pub(super) struct Intent<'a> {
    records: &'a PullRecords,
    name: String,
    is_ended: bool,
}

/// What is known of a present image before credentials are asked for.
pub(super) enum Known {
    NotNeeded,
    Allowed,
    PullAgain,
    Depends(PullCredentials),
}

impl PullRecords {
    pub(super) fn new(
        files: Arc<dyn PullFiles>,
        policy: Verification,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            files,
            policy,
            clock,
            changing: AsyncMutex::new(()),
            intents: Mutex::default(),
            recovered: OnceCell::new(),
        }
    }

    /// Turns intents of an earlier life whose image is here into records without credentials, once
    /// and until that has worked.
    pub(super) async fn recover(&self, images: &dyn Images) {
        let recovered = self.recovered.get_or_try_init(|| self.recover_intents(images)).await;
        if let Err(error) = recovered {
            tracing::warn!(%error, "Unfinished pulls of an earlier run cannot be looked at");
        }
    }

    async fn recover_intents(&self, images: &dyn Images) -> Result<(), String> {
        let files = self.files.list(PullFile::Intent).await;
        let files = files.map_err(|error| error.to_string())?;
        let names: BTreeSet<String> = files
            .iter()
            .filter_map(|(file, content)| match decode_intent(content) {
                Ok(name) => Some(name),
                Err(error) => {
                    tracing::warn!(file, %error, "A pull intent cannot be read");
                    None
                }
            })
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let here = images.list_images().await;
        for image in here.map_err(|error| error.to_string())? {
            let known = image.digests.iter().chain(&image.tags);
            for name in known.filter(|name| names.contains(*name)) {
                let Ok(parsed) = ImageName::parse(name) else {
                    continue;
                };
                let noted = self.note(&parsed, &image.id, None).await;
                noted.map_err(|error| error.to_string())?;
                self.remove_intent(name).await;
            }
        }
        Ok(())
    }

    /// What is known of a present image.
    pub(super) async fn look(&self, named: &str, image: &ImageName, image_ref: &str) -> Known {
        let record = match self.read(image_ref).await {
            Ok(record) => record,
            Err(error) => {
                tracing::warn!(image = named, %error, "The record of a pull cannot be read: the image is pulled again");
                return Known::PullAgain;
            }
        };
        let is_under_way = self.lock().under_way.contains_key(named);
        let has_intent = is_under_way || record.is_none() && self.has_intent_file(named).await;
        match first_look(&self.policy, image, record.as_ref(), has_intent) {
            FirstLook::NotNeeded => Known::NotNeeded,
            FirstLook::Allowed => Known::Allowed,
            FirstLook::PullAgain => Known::PullAgain,
            FirstLook::Depends(known) => Known::Depends(known.clone()),
        }
    }

    /// Whether a pod's credentials are as good as the known ones.
    pub(super) async fn is_proven(
        &self,
        image: &ImageName,
        image_ref: &str,
        known: &PullCredentials,
        offered: &[Credential],
    ) -> bool {
        match compare(known, offered) {
            Verdict::Allowed => true,
            Verdict::PullAgain => false,
            Verdict::AllowedAndNew(new) => {
                if let Err(error) = self.note(image, image_ref, Some(new)).await {
                    tracing::warn!(image = image.repository(), %error, "The record of a pull cannot be written");
                }
                true
            }
        }
    }

    /// Notes that a pull begins.
    pub(super) async fn begin(&self, named: &str) -> Result<Intent<'_>, HostError> {
        *self.lock().under_way.entry(named.to_owned()).or_default() += 1;
        let intent = Intent { records: self, name: named.to_owned(), is_ended: false };
        let (file, text) = (file_name(named), encode_intent(named));
        let written = self.files.write(PullFile::Intent, &file, &text);
        match written.await {
            Ok(()) => Ok(intent),
            Err(error) => {
                intent.failed().await;
                Err(error)
            }
        }
    }

    async fn note(
        &self,
        image: &ImageName,
        image_ref: &str,
        credentials: Option<PullCredentials>,
    ) -> Result<(), HostError> {
        let _held = self.changing.lock().await;
        let before = self.read(image_ref).await.unwrap_or_else(|error| {
            tracing::warn!(image_ref, %error, "The record of a pull cannot be read: a new one is written");
            None
        });
        let now = self.clock.now();
        let after = after_pull(before, image.repository(), image_ref, credentials, now);
        match after {
            Some(record) => {
                let (name, text) = (file_name(image_ref), encode_record(&record));
                self.files.write(PullFile::Record, &name, &text).await
            }
            None => Ok(()),
        }
    }

    async fn read(&self, image_ref: &str) -> Result<Option<PulledRecord>, String> {
        let file = file_name(image_ref);
        let read = self.files.read(PullFile::Record, &file);
        let Some(content) = read.await.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let record = decode_record(&content).map_err(|error| error.to_string())?;
        Ok((record.image_ref == image_ref).then_some(record))
    }

    async fn has_intent_file(&self, named: &str) -> bool {
        match self.files.read(PullFile::Intent, &file_name(named)).await {
            Ok(Some(content)) => decode_intent(&content).is_ok_and(|name| name == named),
            Ok(None) => false,
            // Nobody can tell, so the pod has to prove itself.
            Err(_) => true,
        }
    }

    async fn remove_intent(&self, named: &str) {
        let file = file_name(named);
        let removed = self.files.remove(PullFile::Intent, &file);
        if let Err(error) = removed.await {
            tracing::warn!(image = named, %error, "A pull intent cannot be removed");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Intents> {
        self.intents.lock().expect("no panic while the lock is held")
    }
}

impl Intent<'_> {
    /// The pull brought an image, with this credential.
    pub(super) async fn succeeded(
        mut self,
        image: &ImageName,
        image_ref: &str,
        used: Option<&Credential>,
    ) {
        let credentials = PullCredentials::of(used);
        let noted = self.records.note(image, image_ref, Some(credentials)).await;
        if let Err(error) = noted {
            // The intent stays: it still makes the image one that we have pulled.
            tracing::warn!(image = %self.name, %error, "The record of a pull cannot be written");
            return;
        }
        self.records.lock().abandoned.remove(&self.name);
        self.end().await;
    }

    /// The pull brought nothing.
    pub(super) async fn failed(mut self) {
        self.end().await;
    }

    async fn end(&mut self) {
        self.is_ended = true;
        let is_over = {
            let mut intents = self.records.lock();
            let is_last = intents.leave(&self.name);
            is_last && !intents.abandoned.contains(&self.name)
        };
        if is_over {
            self.records.remove_intent(&self.name).await;
        }
    }
}

impl Intents {
    /// One pull of this name less; true when it was the last.
    fn leave(&mut self, name: &str) -> bool {
        let Some(count) = self.under_way.get_mut(name) else {
            return true;
        };
        *count -= 1;
        if *count == 0 {
            self.under_way.remove(name);
            return true;
        }
        false
    }
}

impl Drop for Intent<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            let mut intents = self.records.lock();
            intents.leave(&self.name);
            intents.abandoned.insert(self.name.clone());
        }
    }
}
