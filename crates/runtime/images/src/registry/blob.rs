//! A blob as a stream of pieces, checked as it passes.
//!
//! A connection that breaks is made again and goes on where it stopped, with the hash's state still in memory. Only a
//! connection that brings nothing counts against the number of attempts, so a large blob survives a bad line.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::sync::mpsc;

use super::{
    Answer, RegistryError, Repository,
    hosts::{Ability, Host},
};
use crate::{
    digest::{Digest, Hasher},
    manifest::Descriptor,
};

/// Connections in a row that bring nothing.
const MOST_ATTEMPTS: u32 = 5;

/// What a blob's reader gets.
#[derive(Debug)]
pub(crate) enum Piece {
    /// More of it.
    Data(Bytes),
    /// All of it was there and is what its digest says.
    End,
}

struct Progress {
    n_read: u64,
    hasher: Hasher,
}

impl Repository<'_> {
    /// Sends a blob's pieces; [`Piece::End`] only after they were found to be right.
    pub(crate) async fn blob(
        &self,
        blob: &Descriptor,
        pieces: &mpsc::Sender<Piece>,
        told: impl Fn(u64),
    ) -> Result<(), RegistryError> {
        let mut progress = Progress { n_read: 0, hasher: blob.digest.hasher() };
        let mut attempt = 0;
        loop {
            let before = progress.n_read;
            let failure = match self.read_on(blob, &mut progress, pieces, &told).await {
                Ok(host) => {
                    let found = progress.hasher.finish();
                    check(host, &blob.digest, &found)?;
                    return pieces.send(Piece::End).await.map_err(|_| RegistryError::Gone);
                }
                Err(error) => error,
            };
            attempt = if progress.n_read > before { 1 } else { attempt + 1 };
            if attempt >= MOST_ATTEMPTS || !is_passing(&failure) {
                return Err(failure);
            }
            tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
        }
    }

    /// Reads until the blob's end; says who gave it.
    async fn read_on(
        &self,
        blob: &Descriptor,
        progress: &mut Progress,
        pieces: &mpsc::Sender<Piece>,
        told: &impl Fn(u64),
    ) -> Result<String, RegistryError> {
        let path = format!("blobs/{}", blob.digest);
        let mut answer = self.open_blob(&path, progress.n_read).await?;
        // A server that knows no ranges begins again.
        let mut skipped = if answer.status() == StatusCode::OK { progress.n_read } else { 0 };
        let stall = self.registry.settings.stall;
        while let Some(mut piece) = answer.piece(stall).await? {
            let skip = usize::try_from(skipped).unwrap_or(usize::MAX).min(piece.len());
            skipped -= skip as u64;
            let piece = piece.split_off(skip);
            if piece.is_empty() {
                continue;
            }
            progress.n_read += piece.len() as u64;
            if progress.n_read > blob.size {
                let found = format!("more than its {} bytes", blob.size);
                return Err(RegistryError::Content {
                    host: answer.host,
                    expected: blob.digest.clone(),
                    found,
                });
            }
            progress.hasher.update(&piece);
            told(piece.len() as u64);
            pieces.send(Piece::Data(piece)).await.map_err(|_| RegistryError::Gone)?;
        }
        if progress.n_read < blob.size {
            let source = std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into();
            return Err(RegistryError::Connection { host: answer.host, source });
        }
        Ok(answer.host)
    }

    async fn open_blob(&self, path: &str, from: u64) -> Result<Answer, RegistryError> {
        let mut refusal = None;
        for host in self.able(Ability::Pull) {
            match self.open_blob_of(host, path, from).await {
                Ok(answer) => return Ok(answer),
                Err(error) => refusal = Some(error),
            }
        }
        Err(self.refused(refusal))
    }

    async fn open_blob_of(
        &self,
        host: &Host,
        path: &str,
        from: u64,
    ) -> Result<Answer, RegistryError> {
        let mut headers = HeaderMap::new();
        let hoped: &[StatusCode] = if from == 0 {
            &[StatusCode::OK]
        } else {
            let range = HeaderValue::from_str(&format!("bytes={from}-")).expect("digits are text");
            headers.insert(header::RANGE, range);
            &[StatusCode::OK, StatusCode::PARTIAL_CONTENT]
        };
        let answer = self.ask(host, path, &headers).await?.expect(hoped, path)?;
        let begins = answer.header(&header::CONTENT_RANGE).starts_with(&format!("bytes {from}-"));
        let status = answer.status();
        if status == StatusCode::PARTIAL_CONTENT && !begins {
            let what = format!("{path} from byte {from}");
            return Err(RegistryError::Status { host: answer.host, status, what });
        }
        Ok(answer)
    }
}

/// Whether another connection may do better.
fn is_passing(error: &RegistryError) -> bool {
    match error {
        RegistryError::Connection { .. } => true,
        RegistryError::Status { status, .. } => {
            status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
        }
        _ => false,
    }
}

fn check(host: String, expected: &Digest, found: &Digest) -> Result<(), RegistryError> {
    if expected == found {
        return Ok(());
    }
    Err(RegistryError::Content { host, expected: expected.clone(), found: found.to_string() })
}
