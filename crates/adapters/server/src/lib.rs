//! ferrolet-server
