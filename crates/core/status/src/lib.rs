//! ferrolet-status
