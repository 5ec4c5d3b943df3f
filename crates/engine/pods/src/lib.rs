//! ferrolet-pods
