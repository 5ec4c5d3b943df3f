//! Carries bytes between two ends until one is done, or both are silent for too long.

use std::sync::Mutex;
use std::time::Duration;

use ferrolet_streams::tunnel::silence;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

/// Two of these are what a stream costs.
const PIECE: usize = 32 * 1024;

/// How long a runtime may take to say its last words after the client said its own.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends with the first end that is done: a stream has no use for half of itself. What the runtime
/// has said by then still arrives: a process that answers and ends at once must not lose its answer
/// because the client's next word found nobody.
pub(super) async fn carry<A, B>(client: A, runtime: B, idle: Duration)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let last = Mutex::new(Instant::now());
    let (from_client, mut to_client) = tokio::io::split(client);
    let (from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let ended = {
        let mut hear = std::pin::pin!(pump(from_runtime, &mut to_client, &last));
        let say = async {
            let ended = pump(from_client, &mut to_runtime, &last).await;
            // So that the runtime hears of it; one that has gone already is no error.
            let _ = to_runtime.shutdown().await;
            ended
        };
        tokio::select! {
            ended = hear.as_mut() => ended,
            ended = say => match tokio::time::timeout(LAST_WORDS, hear).await {
                Ok(_) | Err(_) => ended,
            },
            () = silence(&last, idle) => {
                tracing::debug!(?idle, "A stream was silent for too long");
                Ok(())
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(err = %error, "A stream broke");
    }
    // Says goodbye where TLS wants it; an end that does not listen any more is gone already.
    let goodbye = async { tokio::join!(to_client.shutdown(), to_runtime.shutdown()) };
    let _ = tokio::time::timeout(Duration::from_secs(5), goodbye).await;
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    last: &Mutex<Instant>,
) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let n = from.read(&mut piece).await?;
        if n == 0 {
            return Ok(());
        }
        *last.lock().expect("no panic under this lock") = Instant::now();
        to.write_all(&piece[..n]).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_go_both_ways_until_one_end_is_done() {
        let (mut client, near) = tokio::io::duplex(64);
        let (mut runtime, far) = tokio::io::duplex(64);
        let client_side = async {
            client.write_all(b"question").await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let runtime_side = async {
            let mut heard = [0; 8];
            runtime.read_exact(&mut heard).await.unwrap();
            runtime.write_all(&[7; 1000]).await.unwrap();
            drop(runtime);
            heard
        };
        let carried = carry(near, far, Duration::from_secs(60));
        let (answer, heard, ()) = tokio::join!(client_side, runtime_side, carried);
        assert_eq!((answer.len(), &heard), (1000, b"question"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_runtimes_last_words_arrive_after_the_client_has_said_its_own() {
        let (mut client, near) = tokio::io::duplex(64);
        let (mut runtime, far) = tokio::io::duplex(64);
        let client_side = async {
            client.write_all(b"bye").await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let runtime_side = async {
            let mut heard = Vec::new();
            runtime.read_to_end(&mut heard).await.unwrap();
            runtime.write_all(b"last words").await.unwrap();
            drop(runtime);
            heard
        };
        let carried = carry(near, far, Duration::from_secs(60));
        let (answer, heard, ()) = tokio::join!(client_side, runtime_side, carried);
        assert_eq!((answer.as_slice(), heard.as_slice()), (&b"last words"[..], &b"bye"[..]));
        // One that says nothing is not waited for.
        let (client, near) = tokio::io::duplex(64);
        let (_runtime, far) = tokio::io::duplex(64);
        drop(client);
        let began = Instant::now();
        carry(near, far, Duration::from_secs(60)).await;
        assert!(began.elapsed() <= LAST_WORDS);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_stream_and_talk_keeps_it() {
        let (mut client, near) = tokio::io::duplex(64);
        let (mut runtime, far) = tokio::io::duplex(64);
        let began = Instant::now();
        let talk = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(40)).await;
                client.write_all(b"x").await.unwrap();
                let mut heard = [0];
                runtime.read_exact(&mut heard).await.unwrap();
            }
        };
        tokio::join!(carry(near, far, Duration::from_secs(60)), talk);
        assert_eq!(began.elapsed(), Duration::from_secs(180));
    }
}
