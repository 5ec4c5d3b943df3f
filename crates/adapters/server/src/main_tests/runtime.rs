//! A runtime's streaming server, as far as a test needs one: it hears one request, answers as it is
//! told, and does what the test says.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Where it listens, and a task that gives the request's head at its end.
pub(super) async fn runtime<F>(
    answer: String,
    then: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> (SocketAddr, JoinHandle<String>)
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        then(stream).await;
        String::from_utf8(head).unwrap()
    });
    (address, task)
}
