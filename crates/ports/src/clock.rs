//! Wall time.

use ferrolet_types::Timestamp;

/// The node's wall clock. Spans are measured with tokio's time; this is for timestamps that people
/// and APIs see.
pub trait Clock: Send + Sync {
    /// The moment it is now.
    fn now(&self) -> Timestamp;
}
