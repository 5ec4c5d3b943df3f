//! ferrolet-report
