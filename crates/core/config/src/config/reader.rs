//! Turns raw values into typed ones and notes every fault on the way.
//!
//! A reader never stops: a value that will not do is reported and replaced by a harmless one, so
//! that all faults of a configuration are found in one pass. The configuration built from it is
//! thrown away when there was a fault.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt::Display,
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    time::Duration,
};

use ferrolet_types::Quantity;
use serde_json::Value;

use crate::{FeatureGates, FieldError, RawConfig, duration};

/// A word of a fixed vocabulary.
pub(super) trait Word: Copy + 'static {
    /// Every word with its text, the one to fall back on first.
    const WORDS: &'static [(&'static str, Self)];
}

/// Reads one raw configuration.
pub(super) struct Reader<'a> {
    raw: &'a RawConfig,
    pub(super) gates: &'a FeatureGates,
    faults: RefCell<Vec<FieldError>>,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(raw: &'a RawConfig, gates: &'a FeatureGates) -> Self {
        Self { raw, gates, faults: RefCell::default(), warnings: RefCell::default() }
    }

    /// Everything found, faults first.
    pub(super) fn finish(self) -> (Vec<FieldError>, Vec<String>) {
        (self.faults.into_inner(), self.warnings.into_inner())
    }

    pub(super) fn fault(&self, path: &str, value: impl Display, message: impl Into<String>) {
        self.faults.borrow_mut().push(FieldError::at(path, value, message));
    }

    /// Reports the field's value as it stands.
    pub(super) fn refuse(&self, path: &str, message: impl Into<String>) {
        let value = self.get(path).map(shown).unwrap_or_default();
        self.fault(path, value, message);
    }

    pub(super) fn warn(&self, message: String) {
        self.warnings.borrow_mut().push(message);
    }

    pub(super) fn get(&self, path: &str) -> Option<&'a Value> {
        self.raw.get(path)
    }

    pub(super) fn flag(&self, path: &str) -> bool {
        self.optional_flag(path).unwrap_or(false)
    }

    pub(super) fn optional_flag(&self, path: &str) -> Option<bool> {
        self.get(path)?.as_bool()
    }

    pub(super) fn text(&self, path: &str) -> String {
        self.optional_text(path).unwrap_or_default()
    }

    /// A text, where an empty one means none.
    pub(super) fn optional_text(&self, path: &str) -> Option<String> {
        self.get(path)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    }

    pub(super) fn texts(&self, path: &str) -> Vec<String> {
        let items = self.get(path).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub(super) fn text_map(&self, path: &str) -> BTreeMap<String, String> {
        let entries = self.get(path).and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    pub(super) fn int(&self, path: &str) -> i64 {
        self.optional_int(path).unwrap_or(0)
    }

    pub(super) fn optional_int(&self, path: &str) -> Option<i64> {
        self.get(path)?.as_i64()
    }

    /// A number that must lie in a range; out of it, the fault is reported and the low end used.
    pub(super) fn within<N: TryFrom<i64> + Default>(
        &self,
        path: &str,
        range: RangeInclusive<i64>,
    ) -> N {
        let number = self.int(path);
        if !range.contains(&number) {
            let message = match (*range.start(), *range.end()) {
                (0, i64::MAX) => "must not be negative".to_owned(),
                (low, i64::MAX) => format!("must be {low} or more"),
                (low, high) => format!("must be between {low} and {high}"),
            };
            self.refuse(path, message);
            return N::default();
        }
        N::try_from(number).unwrap_or_default()
    }

    /// A number that must not be negative.
    pub(super) fn count(&self, path: &str) -> u32 {
        self.within(path, 0..=i64::MAX)
    }

    /// A port, where 0 means none.
    pub(super) fn optional_port(&self, path: &str) -> Option<u16> {
        Some(self.within::<u16>(path, 0..=65535)).filter(|port| *port != 0)
    }

    /// Signed nanoseconds of a duration field.
    pub(super) fn nanos(&self, path: &str) -> Option<i64> {
        duration::parse(self.get(path)?.as_str()?)
    }

    /// A duration that must not be negative.
    pub(super) fn duration(&self, path: &str) -> Duration {
        match self.nanos(path).map(u64::try_from) {
            Some(Ok(nanos)) => Duration::from_nanos(nanos),
            Some(Err(_)) => {
                self.refuse(path, "must not be negative");
                Duration::ZERO
            }
            None => Duration::ZERO,
        }
    }

    /// A duration that must be more than nothing.
    pub(super) fn period(&self, path: &str) -> Duration {
        if self.nanos(path) == Some(0) {
            self.refuse(path, "must be more than 0s");
        }
        self.duration(path)
    }

    /// A duration, where nothing means off.
    pub(super) fn optional_duration(&self, path: &str) -> Option<Duration> {
        Some(self.duration(path)).filter(|duration| !duration.is_zero())
    }

    pub(super) fn address(&self, path: &str) -> IpAddr {
        self.text(path).parse().unwrap_or_else(|_| {
            self.refuse(path, "is not an IP address");
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        })
    }

    /// A word of a vocabulary; anything else is reported with the words that would do.
    pub(super) fn word<W: Word>(&self, path: &str) -> W {
        let text = self.text(path);
        if let Some((_, word)) = W::WORDS.iter().find(|(known, _)| *known == text) {
            return *word;
        }
        let known: Vec<String> = W::WORDS.iter().map(|(known, _)| format!("{known:?}")).collect();
        self.refuse(path, format!("must be one of {}", known.join(", ")));
        W::WORDS[0].1
    }

    /// A quantity, or nothing where the text is not one, which is then reported.
    pub(super) fn checked_quantity(&self, path: &str, text: &str) -> Option<Quantity> {
        let quantity = Quantity::parse(text).ok();
        if quantity.is_none() {
            self.fault(path, text, "is not a quantity such as 100m or 64Mi");
        }
        quantity
    }

    pub(super) fn quantity(&self, path: &str, text: &str) -> Quantity {
        self.checked_quantity(path, text).unwrap_or(Quantity::ZERO)
    }

    /// Reports the field unless the gate is on.
    pub(super) fn needs_gate(&self, path: &str, gate: &str) {
        if !self.gates.enabled(gate) {
            self.refuse(path, format!("needs the feature gate {gate}"));
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Declares a vocabulary: an enum, its texts, and how it is written.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $crate::config::reader::Word for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($text, Self::$variant)),+];
        }

        impl $name {
            /// The word as the configuration writes it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}
pub(super) use words;
