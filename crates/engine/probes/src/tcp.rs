//! A TCP socket: well when somebody accepts the connection. It is closed at once, politely and
//! without a trace.

use std::time::Duration;

use tokio::time;

use crate::dial::{Dialer, join_host_port};
use crate::prober::Outcome;

pub(crate) async fn probe(dialer: &Dialer, host: &str, port: u16, timeout: Duration) -> Outcome {
    match time::timeout(timeout, dialer.dial(host, port)).await {
        Ok(Ok(_stream)) => Outcome::Success,
        Ok(Err(cause)) => Outcome::Failure(cause),
        Err(_) => {
            let address = join_host_port(host, port);
            Outcome::Failure(format!("dial tcp {address}: i/o timeout"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ferrolet_testkit::FakeOutbound;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    const ENOUGH: Duration = Duration::from_secs(5);

    /// TcpSocket: connect only.
    #[tokio::test]
    async fn whoever_listens_is_well() {
        let dialer = Dialer::new(Arc::new(FakeOutbound::default()));
        for host in ["127.0.0.1", "::1", "localhost"] {
            let listener = TcpListener::bind((host, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let outcome = probe(&dialer, host, port, ENOUGH).await;
            assert_eq!(outcome, Outcome::Success, "{host}");
        }
    }

    /// Dialer: nothing stays in TIME_WAIT.
    #[tokio::test]
    async fn a_visit_ends_politely_and_is_forgotten_soon() {
        let outbound = Arc::new(FakeOutbound::default());
        let dialer = Dialer::new(outbound.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let visits = tokio::spawn(async move {
            for _ in 0..20 {
                let (mut stream, _) = listener.accept().await.unwrap();
                // The server reads an end, no reset.
                assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
            }
        });
        for _ in 0..20 {
            let outcome = probe(&dialer, "127.0.0.1", port, ENOUGH).await;
            assert_eq!(outcome, Outcome::Success);
        }
        visits.await.unwrap();
        assert_eq!(outbound.n_told(), 20);
    }

    #[tokio::test]
    async fn a_closed_port_is_told_as_go_tells_it() {
        let dialer = Dialer::new(Arc::new(FakeOutbound::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let text = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        let outcome = probe(&dialer, "127.0.0.1", port, ENOUGH).await;
        assert_eq!(outcome, Outcome::Failure(text));
    }
}
