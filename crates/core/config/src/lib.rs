//! ferrolet-config
