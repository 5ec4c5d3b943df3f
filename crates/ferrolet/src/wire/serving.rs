//! The certificate that the main server shows, from the configuration to the listener.

use std::sync::Arc;

use anyhow::Context as _;
use ferrolet_cluster::certificates::{Least, ServingDoors, ServingSettings, Signer, serving_pair};
use ferrolet_config::Loaded;
use ferrolet_host::OperatorFiles;
use ferrolet_ports::Clock;
use ferrolet_server::ServingCertificate;
use tokio::task::JoinSet;

use super::platform::certificates;

/// Finds the certificate, starts what keeps it current, and answers where it is shown.
pub(super) fn start(
    loaded: &Loaded,
    node_name: &str,
    signer: Option<Signer>,
    clock: Arc<dyn Clock>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Arc<ServingCertificate>> {
    let tls = &loaded.config.tls;
    let settings = ServingSettings {
        is_requested: tls.server_bootstrap,
        certificate: tls.cert_file.clone(),
        key: tls.private_key_file.clone(),
        follows_files: loaded.config.gates.enabled("ReloadKubeletServerCertificateFile"),
        least: match loaded.config.gates.enabled("AllowDNSOnlyNodeCSR") {
            true => Least::Name,
            false => Least::Address,
        },
    };
    let doors = ServingDoors {
        store: Arc::new(certificates(loaded)?),
        files: Arc::new(OperatorFiles),
        signer,
        clock,
    };
    let pairs = serving_pair(settings, node_name, doors, tasks)?;
    let certificate = ServingCertificate::none_yet();
    certificate.show(&pairs).context("use the serving certificate")?;
    tasks.spawn(certificate.clone().keep_showing(pairs));
    Ok(certificate)
}
