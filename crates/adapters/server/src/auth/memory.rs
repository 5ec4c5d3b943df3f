//! Answers kept for a while, never more than a fixed number of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Upstream's size for the same purpose.
const AT_MOST: usize = 8192;

pub(super) struct Memory<K, V> {
    kept: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Hash + Eq, V: Clone> Memory<K, V> {
    pub(super) fn new() -> Self {
        Self { kept: Mutex::new(HashMap::new()) }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let kept = self.kept.lock().expect("no panic under this lock");
        let (until, value) = kept.get(key)?;
        (*until > Instant::now()).then(|| value.clone())
    }

    /// Keeps an answer; when the table is full, what has run out goes, and then everything: asking
    /// again is always right.
    pub(super) fn keep(&self, key: K, value: V, span: Duration) {
        if span.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut kept = self.kept.lock().expect("no panic under this lock");
        if kept.len() >= AT_MOST {
            kept.retain(|_, (until, _)| *until > now);
        }
        if kept.len() >= AT_MOST {
            kept.clear();
        }
        kept.insert(key, (now + span, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_run_out_and_never_pile_up() {
        let memory = Memory::new();
        memory.keep(1, "a", Duration::from_secs(10));
        memory.keep(2, "b", Duration::ZERO);
        assert_eq!((memory.get(&1), memory.get(&2)), (Some("a"), None));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(memory.get(&1), None);
        for key in 0..3 * AT_MOST {
            memory.keep(key, "x", Duration::from_secs(10));
        }
        assert!(memory.kept.lock().unwrap().len() <= AT_MOST);
    }
}
