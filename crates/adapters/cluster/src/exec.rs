//! Keeps the credentials that a program prints: asked for before anything else, again shortly before
//! they expire, and again when the server refuses them.
//!
//! Owner of what the clients show meanwhile: the token in [`Told`](crate::client::Told), the
//! certificate in [`Identity`]. Refuses: understanding answers, which is
//! [`ExecPlugin::decode`].

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{Clock, CredentialFiles};
use ferrolet_types::Timestamp;
use tokio::time::sleep;

use crate::{
    api::Clients,
    kubeconfig::{ExecCredential, ExecPlugin},
    tls::Identity,
};

/// First and longest pause before a program that failed is asked again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Credentials are renewed this long before they expire, so that none is shown that has.
const AHEAD: Duration = Duration::from_secs(10);

/// What keeps them.
pub(crate) struct ExecKeeper {
    pub(crate) plugin: ExecPlugin,
    pub(crate) files: Arc<dyn CredentialFiles>,
    pub(crate) identity: Identity,
    pub(crate) clock: Arc<dyn Clock>,
}

impl ExecKeeper {
    /// Asks until there are credentials; answers when they expire.
    pub(crate) async fn first(&self) -> Option<Timestamp> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.ask().await {
                Ok((expires, _)) => return expires,
                Err(error) => {
                    let hint = self.plugin.install_hint();
                    tracing::error!(
                        error,
                        hint,
                        "No credentials from the kubeconfig's exec plugin, trying again"
                    );
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Renews them for ever.
    pub(crate) async fn keep(self, mut expires: Option<Timestamp>, clients: Clients) {
        let told = self.plugin.told();
        let mut pause = FIRST_PAUSE;
        loop {
            let due = async {
                match expires {
                    Some(at) => sleep(at.since(self.clock.now()).saturating_sub(AHEAD)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Both are cancel-safe: a refusal that nobody waited for is kept.
                () = told.until_refused() => {}
                () = due => {}
            }
            match self.ask().await {
                Ok((next, is_other_certificate)) => {
                    expires = next;
                    pause = FIRST_PAUSE;
                    if is_other_certificate {
                        clients.reconnect();
                    }
                }
                Err(error) => {
                    tracing::error!(
                        error,
                        "Credentials from the kubeconfig's exec plugin cannot be renewed, trying again"
                    );
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            // A server that refuses everything does not have the program run in a circle.
            sleep(pause).await;
        }
    }

    /// Asks once, and shows what was answered; whether that is a certificate.
    async fn ask(&self) -> Result<(Option<Timestamp>, bool), String> {
        let answer = self.files.ask_program(self.plugin.ask()).await?;
        let ExecCredential { token, certificate, expires } = self.plugin.decode(&answer)?;
        let has_certificate = certificate.is_some();
        if let Some((certificate, key)) = certificate {
            let shown = self.identity.replace(certificate.as_bytes(), key.as_bytes());
            shown.map_err(|error| format!("use the exec plugin's certificate: {error}"))?;
        }
        self.plugin.told().tell(token.as_deref());
        let expires = expires.map(|at| Timestamp::from_second(at.as_second()));
        Ok((expires, has_certificate))
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path, sync::Mutex};

    use ferrolet_ports::{ChangeHints, Fut, ProgramAsk, ReadFile};
    use serde_json::json;

    use super::*;
    use crate::{
        fake::{FakeApi, TokioClock},
        kubeconfig::{Credentials, resolve},
    };

    /// A program that fails once and then answers with one token after the other, each good for a
    /// minute.
    struct Program {
        n_runs: Mutex<u64>,
        clock: Arc<dyn Clock>,
    }

    impl ReadFile for Program {
        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            Ok(b"AUTHORITY".to_vec())
        }
    }

    impl CredentialFiles for Program {
        fn write_private(&self, _: &Path, _: &str) -> io::Result<()> {
            Ok(())
        }

        fn watch(&self, _: &Path) -> Box<dyn ChangeHints> {
            panic!("nobody watches a program")
        }

        fn ask_program<'a>(&'a self, ask: &'a ProgramAsk) -> Fut<'a, Result<Vec<u8>, String>> {
            assert_eq!(ask.program, "login");
            let mut n_runs = self.n_runs.lock().unwrap();
            *n_runs += 1;
            let answer = match *n_runs {
                1 => Err("not yet".to_owned()),
                n => {
                    let expires = self.clock.now().after(Duration::from_secs(60));
                    let status = json!({"token": format!("t{n}"), "expirationTimestamp": expires.to_string()});
                    let answer = json!({
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "kind": "ExecCredential",
                        "status": status,
                    });
                    Ok(answer.to_string().into_bytes())
                }
            };
            Box::pin(std::future::ready(answer))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_programs_token_is_kept_until_it_expires_or_is_refused() {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock);
        let files = Arc::new(Program { n_runs: Mutex::new(0), clock: clock.clone() });
        let text = "clusters: [{name: k, cluster: {server: 'https://a:1', certificate-authority: ca}}]\n\
                    users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}}}]\n\
                    contexts: [{name: c, context: {cluster: k, user: u}}]\ncurrent-context: c\n";
        let access = resolve("k", text, Path::new("/etc"), files.as_ref()).ok().unwrap();
        let Credentials::Exec(plugin) = access.credentials else { panic!("it names a program") };
        let told = plugin.told();
        let n_runs = || *files.n_runs.lock().unwrap();
        let keeper =
            ExecKeeper { plugin, files: files.clone(), identity: Identity::default(), clock };
        let expires = keeper.first().await;
        assert_eq!((n_runs(), told.header().unwrap().to_str().unwrap()), (2, "Bearer t2"));
        let client = FakeApi::new().client();
        let clients = Clients {
            work: client.clone(),
            events: client.clone(),
            heartbeat: client.clone(),
            reviews: client,
        };
        let keeping = tokio::spawn(keeper.keep(expires, clients));
        sleep(Duration::from_secs(45)).await;
        assert_eq!(n_runs(), 2, "it is good for a minute");
        sleep(Duration::from_secs(10)).await;
        assert_eq!((n_runs(), told.header().unwrap().to_str().unwrap()), (3, "Bearer t3"));
        told.refused();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(n_runs(), 4, "the server did not take it");
        keeping.abort();
    }
}
