//! ferrolet-testkit
