//! ferrolet-e2e
