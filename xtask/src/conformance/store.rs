//! Where results are kept: the last full run of each kubelet in the cache, and as data in the checkout for the page.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferrolet_lab::parts::cache_directory;

use super::results::{Kubelet, Results};
use super::{list, page};
use crate::build;

fn cached(kubelet: Kubelet) -> Result<PathBuf> {
    let directory = cache_directory()?.join("conformance");
    Ok(directory.join(format!("{}.json", kubelet.name())))
}

fn kept(kubelet: Kubelet) -> PathBuf {
    let directory = build::root().join("tests/conformance/results");
    directory.join(format!("{}.json", kubelet.name()))
}

/// The last full run on this machine, or else the one that the checkout has.
pub(super) fn load(kubelet: Kubelet) -> Result<Option<Results>> {
    for path in [cached(kubelet)?, kept(kubelet)] {
        if path.exists() {
            let text = fs::read_to_string(&path)?;
            let results =
                Results::parse(&text).with_context(|| format!("read {}", path.display()))?;
            return Ok(Some(results.only(&list::names())));
        }
    }
    Ok(None)
}

/// Keeps a full run in the cache.
pub(super) fn save(kubelet: Kubelet, results: &Results) -> Result<()> {
    write(&cached(kubelet)?, &text_of(results)?)
}

/// Puts both kubelets' last runs into the checkout and generates the page from them.
pub(super) fn write_page() -> Result<()> {
    let of = |kubelet: Kubelet| {
        load(kubelet)?.with_context(|| {
            format!(
                "{name} has no full run yet: cargo xtask conformance --kubelet {name}",
                name = kubelet.name()
            )
        })
    };
    let (ours, upstream) = (of(Kubelet::Ferrolet)?, of(Kubelet::Upstream)?);
    for (kubelet, results) in [(Kubelet::Ferrolet, &ours), (Kubelet::Upstream, &upstream)] {
        write(&kept(kubelet), &text_of(results)?)?;
    }
    let path = build::root().join("docs/conformance.md");
    write(&path, &page::page(&list::groups(), &ours, &upstream))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn text_of(results: &Results) -> Result<String> {
    Ok(format!(
        "{}\n",
        serde_json::to_string_pretty(&results.to_json())?
    ))
}

/// Written beside and renamed.
fn write(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().context("the path has a directory")?;
    fs::create_dir_all(directory)?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    fs::write(&draft, text).with_context(|| format!("write {}", draft.display()))?;
    fs::rename(&draft, path).with_context(|| format!("write {}", path.display()))
}
