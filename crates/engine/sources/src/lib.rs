//! ferrolet-sources
