//! Tokens: asked for when a server wants one, kept per host, repository and asker until they expire.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Credentials, RegistryError,
    challenge::{self, Challenge},
    client::{Answer, Client, Question},
    hosts::Host,
};
use crate::digest::Digest;

/// What a token service may say, at most.
const MOST_BYTES: u64 = 1 << 20;
/// How long a token lives whose service does not say.
const USUAL_LIFE: u64 = 60;
/// Tokens that are remembered; one is a kilobyte or two.
const MOST_TOKENS: usize = 1000;

/// Who asks whom for what.
pub(super) struct Asker<'a> {
    pub(super) client: &'a Client,
    pub(super) host: &'a Host,
    pub(super) repository: &'a str,
    pub(super) credentials: &'a Credentials,
    pub(super) patience: Duration,
}

/// Tokens that still count.
#[derive(Default)]
pub(super) struct Tokens(Mutex<BTreeMap<Key, Token>>);

/// Credentials are part of it, hashed: what one pod may read is not another's.
type Key = (String, String, Digest);

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    ends: Instant,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Tokens {
    /// Asks with the token at hand; on refusal once more with a new one.
    pub(super) async fn ask(
        &self,
        asker: &Asker<'_>,
        uri: &str,
        headers: &HeaderMap,
    ) -> Result<Answer, RegistryError> {
        let key =
            (asker.host.base.clone(), asker.repository.to_owned(), digest_of(asker.credentials));
        let known = match asker.credentials {
            Credentials::RegistryToken(token) => Some(secret(asker, format!("Bearer {token}"))?),
            _ => self.known(&key),
        };
        let answer = asker.ask(uri, headers, known).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let challenge = answer.headers(&header::WWW_AUTHENTICATE).find_map(challenge::parse);
        let token = match challenge {
            None => return Ok(answer),
            Some(Challenge::Basic) => match asker.basic()? {
                None => return Ok(answer),
                Some(header) => Token { header, ends: Instant::now() + Duration::from_secs(3600) },
            },
            Some(Challenge::Bearer { realm, service, scope }) => {
                asker.buy(&realm, &service, &scope).await?
            }
        };
        self.remember(key, token.clone());
        asker.ask(uri, headers, Some(token.header)).await
    }

    fn known(&self, key: &Key) -> Option<HeaderValue> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens
            .get(key)
            .filter(|token| token.ends > Instant::now())
            .map(|token| token.header.clone())
    }

    fn remember(&self, key: Key, token: Token) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MOST_TOKENS {
            let now = Instant::now();
            tokens.retain(|_, token| token.ends > now);
        }
        if tokens.len() < MOST_TOKENS {
            tokens.insert(key, token);
        }
    }
}

impl Asker<'_> {
    async fn ask(
        &self,
        uri: &str,
        headers: &HeaderMap,
        authorization: Option<HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        // The operator's headers may carry secrets as well.
        let mut private = self.host.headers.clone();
        if let Some(value) = authorization {
            private.insert(header::AUTHORIZATION, value);
        }
        let question = Question {
            method: Method::GET,
            uri,
            headers,
            private,
            body: Bytes::new(),
            patience: self.patience,
        };
        self.client.ask(question).await
    }

    fn basic(&self) -> Result<Option<HeaderValue>, RegistryError> {
        let Credentials::Basic { user, password } = self.credentials else { return Ok(None) };
        secret(self, format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).map(Some)
    }

    /// Asks the token service that the registry names.
    async fn buy(&self, realm: &str, service: &str, scope: &str) -> Result<Token, RegistryError> {
        if !(realm.starts_with("https://") || self.host.is_plain() && realm.starts_with("http://"))
        {
            return Err(self.fault("names no address with TLS to get it from"));
        }
        let usual = format!("repository:{}:pull", self.repository);
        let scope = if scope.is_empty() { &usual } else { scope };
        let mut query = format!("service={}&scope={}", escaped(service), escaped(scope));
        let mut private = HeaderMap::new();
        let (method, uri, body) = match self.credentials {
            Credentials::IdentityToken(token) => {
                query = format!(
                    "{query}&grant_type=refresh_token&client_id=ferrolet&refresh_token={}",
                    escaped(token)
                );
                private.insert(
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("application/x-www-form-urlencoded"),
                );
                (Method::POST, realm.to_owned(), Bytes::from(query))
            }
            _ => {
                if let Some(header) = self.basic()? {
                    private.insert(header::AUTHORIZATION, header);
                }
                let separator = if realm.contains('?') { '&' } else { '?' };
                (Method::GET, format!("{realm}{separator}{query}"), Bytes::new())
            }
        };
        let headers = HeaderMap::new();
        let question = Question {
            method,
            uri: &uri,
            headers: &headers,
            private,
            body,
            patience: self.patience,
        };
        // Its address may hold what was sent; only the realm is told.
        let answer = self.client.ask(question).await?;
        let answer = answer.expect(&[StatusCode::OK], "a token")?;
        let text = answer.whole("bytes in a token service's answer", MOST_BYTES).await?;
        let answer: TokenAnswer = serde_json::from_slice(&text)
            .map_err(|_| self.fault("its service answered something else"))?;
        let token = answer.token.or(answer.access_token).filter(|it| !it.is_empty());
        let token = token.ok_or_else(|| self.fault("its service gave none"))?;
        let life = answer.expires_in.unwrap_or(USUAL_LIFE).clamp(USUAL_LIFE, 24 * 3600);
        // A little earlier than it says: the answer was under way.
        let ends = Instant::now() + Duration::from_secs(life) - Duration::from_secs(10);
        Ok(Token { header: secret(self, format!("Bearer {token}"))?, ends })
    }

    fn fault(&self, fault: &str) -> RegistryError {
        RegistryError::Token { host: self.host.authority().to_owned(), fault: fault.to_owned() }
    }
}

fn secret(asker: &Asker<'_>, text: String) -> Result<HeaderValue, RegistryError> {
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| asker.fault("these credentials cannot be sent"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn digest_of(credentials: &Credentials) -> Digest {
    let text = match credentials {
        Credentials::Anonymous => String::new(),
        Credentials::Basic { user, password } => format!("basic\0{user}\0{password}"),
        Credentials::IdentityToken(token) => format!("identity\0{token}"),
        Credentials::RegistryToken(token) => format!("registry\0{token}"),
    };
    Digest::of(text.as_bytes())
}

/// A value for a query or a form.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
