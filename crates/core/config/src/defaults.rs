//! What a field becomes when nobody set it.
//!
//! Three layers, as upstream has them: the schema's table; the few defaults that depend on other
//! fields, on feature gates or on the operating system; and the permissive "legacy" defaults of a
//! kubelet started without a file.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    FeatureGates, RawConfig, duration,
    raw::is_zero,
    schema::{FIELDS, Fallback, Field, Kind, Presence},
};

/// Hard eviction thresholds on Linux when a configuration file says nothing about them.
const EVICTION_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

impl RawConfig {
    /// Every field at its default, as a configuration file without fields would give, eviction
    /// thresholds apart.
    pub fn defaults() -> Self {
        let mut raw = Self::default();
        raw.fill_defaults(&FeatureGates::default());
        raw
    }

    /// The defaults of a kubelet started without `--config`: open to everybody, as in its first
    /// releases.
    pub(crate) fn legacy_defaults(gates: &FeatureGates) -> Self {
        let mut raw = Self::default();
        raw.fill_defaults(gates);
        raw.set("authentication.anonymous.enabled", json!(true));
        raw.set("authentication.webhook.enabled", json!(false));
        raw.set("authorization.mode", json!("AlwaysAllow"));
        raw.set("readOnlyPort", json!(10255));
        raw
    }

    /// Fills in what was not given. Idempotent.
    pub(crate) fn fill_defaults(&mut self, gates: &FeatureGates) {
        self.fill_dependent(gates);
        fill(self.fields_mut(), FIELDS);
    }

    /// Fills in Linux's hard eviction thresholds; only a configuration file asks for this, flags
    /// alone do not.
    pub(crate) fn fill_eviction_hard(&mut self) {
        let merge = self.get("mergeDefaultEvictionSettings") == Some(&json!(true));
        let given = self.get("evictionHard").and_then(Value::as_object).cloned();
        if given.is_some() && !merge {
            return;
        }
        let mut thresholds = given.unwrap_or_default();
        for (signal, value) in EVICTION_HARD {
            thresholds.entry(signal).or_insert_with(|| json!(value));
        }
        self.set("evictionHard", Value::Object(thresholds));
    }

    /// The gates named in `featureGates`.
    pub(crate) fn gate_settings(&self) -> BTreeMap<String, bool> {
        let entries = self.get("featureGates").and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(name, on)| Some((name.clone(), on.as_bool()?))).collect()
    }

    /// Must run before the table: these look at whether other fields were given.
    fn fill_dependent(&mut self, gates: &FeatureGates) {
        if self.is_unset("nodeStatusReportFrequency") && !self.is_unset("nodeStatusUpdateFrequency")
        {
            let update = self.get("nodeStatusUpdateFrequency").cloned().unwrap_or_default();
            self.set("nodeStatusReportFrequency", update);
        }
        let parallel = self.get("maxParallelImagePulls").and_then(Value::as_i64);
        if self.get("serializeImagePulls").is_none() {
            self.set("serializeImagePulls", json!(parallel.is_none_or(|pulls| pulls < 2)));
        }
        if self.get("podPidsLimit").and_then(Value::as_i64).is_some_and(|limit| limit < 0) {
            self.set("podPidsLimit", json!(-1));
        }
        if gates.enabled("KubeletCrashLoopBackOffMax")
            && self.get("crashLoopBackOff.maxContainerRestartPeriod").is_none()
        {
            self.set("crashLoopBackOff.maxContainerRestartPeriod", json!("5m0s"));
        }
        if gates.enabled("KubeletEnsureSecretPulledImages")
            && self.is_unset("imagePullCredentialsVerificationPolicy")
        {
            self.set("imagePullCredentialsVerificationPolicy", json!("NeverVerifyPreloadedImages"));
        }
    }

    fn is_unset(&self, path: &str) -> bool {
        self.get(path).is_none_or(is_zero)
    }
}

fn fill(object: &mut Map<String, Value>, fields: &[Field]) {
    for field in fields {
        match field.kind {
            Kind::Object(inner) => {
                if field.presence == Presence::Plain {
                    object.entry(field.name).or_insert_with(|| json!({}));
                }
                if let Some(Value::Object(object)) = object.get_mut(field.name) {
                    fill(object, inner);
                }
            }
            Kind::List(Kind::Object(inner)) => {
                let items = object.get_mut(field.name).and_then(Value::as_array_mut);
                items
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_object_mut)
                    .for_each(|item| fill(item, inner));
                fill_one(object, field);
            }
            _ => fill_one(object, field),
        }
    }
}

fn fill_one(object: &mut Map<String, Value>, field: &Field) {
    let unset = match object.get(field.name) {
        None => true,
        Some(value) => field.presence == Presence::Plain && is_zero(value),
    };
    if let (true, Some(value)) = (unset, fallback(field)) {
        object.insert(field.name.to_owned(), value);
    }
}

fn fallback(field: &Field) -> Option<Value> {
    Some(match field.fallback {
        Fallback::Nothing => return None,
        Fallback::Yes => json!(true),
        Fallback::No => json!(false),
        Fallback::Number(number) => json!(number),
        Fallback::Words(words) => json!(words),
        Fallback::Word(word) if matches!(field.kind, Kind::Duration | Kind::DurationOrNanos) => {
            let nanos = duration::parse(word).expect("the table's durations are well formed");
            json!(duration::format(nanos))
        }
        Fallback::Word(word) => json!(word),
    })
}
