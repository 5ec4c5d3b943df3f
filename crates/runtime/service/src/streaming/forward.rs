//! Forwarded ports: pairs of SPDY streams, each a connection to a port of the pod.
//!
//! A client opens two streams with the same number of a request and the port: one for errors, one for data. One that
//! takes what comes slowly holds up the others of its client, as it does everywhere: SPDY is spoken without flow control.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use ferrolet_streams::spdy;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::StreamBackend;
use super::pipe::Pipe;

const PIECE: usize = 32 * 1024;
/// So many connections of one client at a time.
const MOST: usize = 256;
/// Pieces of data that wait for the pod.
const N_WAITING: usize = 8;

/// A request of which one or both streams are there.
#[derive(Default)]
struct Pair {
    error: Option<u32>,
    data: Option<u32>,
}

/// Serves a client until it goes.
pub(super) async fn run<R, W>(from: R, to: W, backend: Arc<dyn StreamBackend>, sandbox: String)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let to = Arc::new(Mutex::new(to));
    // Everything that belongs to this client ends with it.
    let mut connections = JoinSet::new();
    if let Err(error) = serve(from, &to, &backend, &sandbox, &mut connections).await {
        tracing::debug!(err = %error, sandbox, "A port-forward broke");
    }
    drop(connections);
    let _gone = to.lock().await.shutdown().await;
}

async fn serve<R, W>(
    from: R,
    to: &Arc<Mutex<W>>,
    backend: &Arc<dyn StreamBackend>,
    sandbox: &str,
    connections: &mut JoinSet<()>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let mut frames = spdy::Frames::of_client(from);
    let mut accepter = spdy::Accepter::default();
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut inputs: BTreeMap<u32, mpsc::Sender<Vec<u8>>> = BTreeMap::new();
    loop {
        match frames.next().await? {
            spdy::Heard::Closed => return Ok(()),
            spdy::Heard::Ping(answer) => {
                let mut to = to.lock().await;
                to.write_all(&answer).await?;
                to.flush().await?;
            }
            spdy::Heard::Data { id } => {
                if let Some(input) = inputs.get(&id)
                    && input.send(frames.piece().to_vec()).await.is_err()
                {
                    inputs.remove(&id);
                }
            }
            // No more is sent; what the pod says still comes.
            spdy::Heard::Ended { id } => drop(inputs.remove(&id)),
            spdy::Heard::Other => {}
            spdy::Heard::Opened { id, headers, .. } => {
                while connections.try_join_next().is_some() {}
                let header = |name: &str| {
                    let found = headers.iter().find(|it| it.0 == name);
                    found.map(|it| it.1.as_str()).unwrap_or_default()
                };
                let port: u16 = header("port").parse().map_err(|_| wrong("a stream of no port"))?;
                if pairs.len() + connections.len() > MOST {
                    return Err(wrong("too many connections"));
                }
                {
                    let mut to = to.lock().await;
                    to.write_all(&accepter.accept(id)).await?;
                    to.flush().await?;
                }
                let request = format!("{}/{port}", header("requestid"));
                let pair = pairs.entry(request.clone()).or_default();
                match header("streamtype") {
                    "error" => pair.error = Some(id),
                    "data" => pair.data = Some(id),
                    _ => return Err(wrong("a stream of no type")),
                }
                let (Some(error), Some(data)) = (pair.error, pair.data) else { continue };
                pairs.remove(&request);
                let (sender, input) = mpsc::channel(N_WAITING);
                inputs.insert(data, sender);
                let (to, backend) = (Arc::clone(to), Arc::clone(backend));
                let sandbox = sandbox.to_owned();
                connections.spawn(async move {
                    let joined = connect(&*backend, &sandbox, port, (&to, data), input).await;
                    let words = joined
                        .err()
                        .map(|why| format!("error forwarding port {port} to pod {sandbox}: {why}"));
                    let mut to = to.lock().await;
                    // A client that is gone needs no end.
                    if let Some(words) = words {
                        let _gone = spdy::send(&mut *to, error, words.as_bytes()).await;
                    }
                    let _gone = spdy::finish(&mut *to, data).await;
                    let _gone = spdy::finish(&mut *to, error).await;
                });
            }
        }
    }
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// One connection, until both sides have said all.
async fn connect<W: AsyncWrite + Unpin>(
    backend: &dyn StreamBackend,
    sandbox: &str,
    port: u16,
    (to, data): (&Mutex<W>, u32),
    mut input: mpsc::Receiver<Vec<u8>>,
) -> Result<(), String> {
    let socket = backend.connect(sandbox, port).await?;
    let socket = Pipe::new(socket).map_err(|error| error.to_string())?;
    let inward = async {
        while let Some(piece) = input.recv().await {
            socket.write_all(&piece).await?;
        }
        socket.finish();
        io::Result::Ok(())
    };
    let outward = async {
        let mut piece = vec![0; PIECE];
        loop {
            let n = socket.read(&mut piece).await?;
            if n == 0 {
                return io::Result::Ok(());
            }
            spdy::send(&mut *to.lock().await, data, &piece[..n]).await?;
        }
    };
    let mut outward = std::pin::pin!(outward);
    let ended = tokio::select! {
        // The pod's side has ended: there is nobody to hear the rest.
        ended = &mut outward => ended,
        said = inward => match said {
            Ok(()) => outward.await,
            Err(error) => Err(error),
        },
    };
    ended.map_err(|error| error.to_string())
}
