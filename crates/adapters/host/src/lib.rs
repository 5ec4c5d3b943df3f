//! ferrolet-host
