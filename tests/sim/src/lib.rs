//! ferrolet-sim
