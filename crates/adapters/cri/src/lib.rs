//! ferrolet-cri
