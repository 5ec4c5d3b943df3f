//! The built-in network for real: namespaces that each test makes, one of which plays the node. The machine's own network
//! is never touched. Making namespaces needs root; without it the tests say so and try nothing.

mod bench;
mod lifetime;
mod traffic;
