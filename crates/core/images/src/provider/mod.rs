//! Credential-provider plugins: how they are configured, what they are asked, what they answer, and
//! what may be kept of it.
//!
//! `config` reads `CredentialProviderConfig`; `message` speaks the exec protocol. Both decode
//! strictly. Refuses: running anything, and showing an answer that it could not read, because it
//! may hold a password.

mod config;
mod message;

pub use config::{
    AccountToken, CacheScope, Provider, ProviderConfigError, TokenCache, merge, parse_config,
};
pub use message::{AccountPart, Answer, AnswerError, CacheKey, Request, parse_answer};
