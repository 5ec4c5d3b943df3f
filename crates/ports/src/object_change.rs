//! News about objects that pods refer to: which one changed, not what it holds.

/// An object changed, appeared or went; the new state can be read already when this is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectChange {
    /// What kind of object it is.
    pub kind: ObjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Kinds of objects that pods refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A config map.
    ConfigMap,
    /// A secret.
    Secret,
    /// A cluster trust bundle. Which one is not told: who uses any looks at his own.
    TrustBundle,
}
