//! ferrolet-volumes
