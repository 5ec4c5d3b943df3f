//! ferrolet-probes
