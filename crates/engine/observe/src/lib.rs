//! ferrolet-observe
