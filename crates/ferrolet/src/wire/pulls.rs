//! How images are pulled: the configuration and the node's doors put together.
//!
//! Credential providers are read and checked here, once: a file that is wrong keeps the agent from
//! starting, because pods would fail later with nobody looking.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use ferrolet_config::{
    Loaded,
    config::{CredentialVerification, PullConcurrency},
};
use ferrolet_host::pulls::{LoginPlaces, NodeLogins, NodePullFiles};
use ferrolet_images::{
    provider::{self, Provider},
    verify::Verification,
};
use ferrolet_pods::{PullDoors, PullLimits, PullRate, PullSettings};

/// No configuration of plugins is bigger.
const LARGEST_CONFIG: u64 = 4 << 20;
const TOKEN_GATE: &str = "KubeletServiceAccountTokenForCredentialProviders";

/// What pulls need of the node.
pub(super) fn doors(loaded: &Loaded) -> PullDoors {
    PullDoors {
        files: Arc::new(NodePullFiles::new(&loaded.flags.root_dir)),
        logins: Arc::new(logins(loaded)),
    }
}

fn logins(loaded: &Loaded) -> NodeLogins {
    let flags = &loaded.flags;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    NodeLogins::new(LoginPlaces::usual(
        &flags.root_dir,
        home.as_deref(),
        flags.image_credential_provider_bin_dir.clone(),
    ))
}

/// How images are pulled.
pub(super) fn settings(loaded: &Loaded) -> anyhow::Result<PullSettings> {
    let config = &loaded.config.images;
    Ok(PullSettings {
        limits: match config.concurrency {
            PullConcurrency::Serial => PullLimits::SERIAL,
            PullConcurrency::SerialPerRegistry => PullLimits::SERIAL_PER_REGISTRY,
            PullConcurrency::AtMost(n) => {
                PullLimits::at_most(usize::try_from(n.get()).unwrap_or(usize::MAX))
            }
            PullConcurrency::Unbounded => PullLimits::NONE,
        },
        rate: config
            .pulls_per_second
            .map(|per_second| PullRate { per_second, burst: config.pull_burst }),
        verification: config.credential_verification.map(|policy| match policy {
            CredentialVerification::NeverVerify => Verification::Never,
            CredentialVerification::NeverVerifyPreloadedImages => Verification::UnlessPreloaded,
            CredentialVerification::NeverVerifyAllowlistedImages => {
                Verification::UnlessListed(config.verification_allowlist.clone())
            }
            CredentialVerification::AlwaysVerify => Verification::Always,
        }),
        providers: providers(loaded, &logins(loaded))?,
    })
}

/// The plugins, each of which is there.
fn providers(loaded: &Loaded, logins: &NodeLogins) -> anyhow::Result<Vec<Provider>> {
    let flags = &loaded.flags;
    let (config, directory) =
        match (&flags.image_credential_provider_config, &flags.image_credential_provider_bin_dir) {
            (None, None) => return Ok(Vec::new()),
            (Some(config), Some(directory)) => (config, directory),
            (Some(_), None) => {
                bail!(
                    "--image-credential-provider-config needs --image-credential-provider-bin-dir"
                )
            }
            (None, Some(_)) => {
                bail!(
                    "--image-credential-provider-bin-dir needs --image-credential-provider-config"
                )
            }
        };
    if !directory.is_dir() {
        bail!(
            "--image-credential-provider-bin-dir {}: there is no such directory",
            directory.display()
        );
    }
    let mut files = Vec::new();
    for path in config_files(config)? {
        let read = || format!("--image-credential-provider-config {}", path.display());
        let text = read_text(&path).with_context(read)?;
        files.push(provider::parse_config(&text).with_context(read)?);
    }
    let all = provider::merge(files)
        .with_context(|| format!("--image-credential-provider-config {}", config.display()))?;
    for provider in &all {
        if provider.token.is_some() && !loaded.config.gates.enabled(TOKEN_GATE) {
            bail!(
                "credential provider {}: tokenAttributes needs the feature gate {TOKEN_GATE}",
                provider.name
            );
        }
        logins.check_plugin(&provider.name)?;
    }
    Ok(all)
}

/// The file itself, or the configurations in a directory in the order of their names.
fn config_files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let shown = path.display();
    let meta = std::fs::metadata(path)
        .with_context(|| format!("--image-credential-provider-config {shown}"))?;
    if !meta.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path)
        .with_context(|| format!("--image-credential-provider-config {shown}"))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let ending = path.extension().and_then(|it| it.to_str());
            matches!(ending, Some("json" | "yaml" | "yml")) && !path.is_dir()
        })
        .collect();
    files.sort();
    if files.is_empty() {
        bail!("--image-credential-provider-config {shown}: no configuration in this directory");
    }
    Ok(files)
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    if std::fs::metadata(path)?.len() > LARGEST_CONFIG {
        bail!("is bigger than {LARGEST_CONFIG} bytes");
    }
    Ok(std::fs::read_to_string(path)?)
}
