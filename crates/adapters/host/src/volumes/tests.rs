//! Volumes on real directories. What mounts is tried end to end, in a mount namespace of its own.
