//! ferrolet-lifecycle
