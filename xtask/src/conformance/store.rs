//! Where results are kept: the last full run of each kubelet in the cache, and as data in the
//! checkout for the page.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferrolet_lab::parts::cache_directory;

use super::judge::Judge;
use super::page::Chapter;
use super::results::{Kubelet, Results};
use super::{list, page};
use crate::build;

fn cached(judge: Judge, kubelet: Kubelet) -> Result<PathBuf> {
    let directory = cache_directory()?.join("conformance");
    Ok(directory.join(format!("{}.json", judge.label(kubelet))))
}

fn kept(judge: Judge, kubelet: Kubelet) -> PathBuf {
    let directory = build::root().join("tests/conformance/results");
    directory.join(format!("{}.json", judge.label(kubelet)))
}

/// The last full run on this machine, or else the one that the checkout has.
pub(super) fn load(judge: Judge, kubelet: Kubelet) -> Result<Option<Results>> {
    for path in [cached(judge, kubelet)?, kept(judge, kubelet)] {
        if path.exists() {
            let text = fs::read_to_string(&path)?;
            let results =
                Results::parse(&text).with_context(|| format!("read {}", path.display()))?;
            return Ok(Some(results.only(&list::names(judge))));
        }
    }
    Ok(None)
}

/// Whether there was a full run, here or elsewhere.
fn is_known(judge: Judge, kubelet: Kubelet) -> bool {
    cached(judge, kubelet).is_ok_and(|it| it.exists()) || kept(judge, kubelet).exists()
}

/// Keeps a full run in the cache.
pub(super) fn save(judge: Judge, kubelet: Kubelet, results: &Results) -> Result<()> {
    write(&cached(judge, kubelet)?, &text_of(results)?)
}

/// Puts both kubelets' last runs before each judge into the checkout and generates the page from
/// them.
pub(super) fn write_page() -> Result<()> {
    let mut chapters = Vec::new();
    for judge in Judge::ALL {
        if judge.is_serial() && Kubelet::ALL.iter().any(|it| !is_known(judge, *it)) {
            println!(
                "no chapter of the {} suite: it has no full run of both kubelets",
                judge.name()
            );
            continue;
        }
        let of = |kubelet: Kubelet| {
            load(judge, kubelet)?.with_context(|| {
                format!(
                    "{name} has no full run yet: cargo xtask conformance --suite {} --kubelet {name}",
                    judge.name(),
                    name = kubelet.name()
                )
            })
        };
        chapters.push(Chapter {
            judge,
            groups: list::groups(judge),
            ours: of(Kubelet::Ferrolet)?,
            upstream: of(Kubelet::Upstream)?,
        });
    }
    for chapter in &chapters {
        let judge = chapter.judge;
        write(&kept(judge, Kubelet::Ferrolet), &text_of(&chapter.ours)?)?;
        write(&kept(judge, Kubelet::Upstream), &text_of(&chapter.upstream)?)?;
    }
    let path = build::root().join("docs/conformance.md");
    write(&path, &page::page(&chapters))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn text_of(results: &Results) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(&results.to_json())?))
}

/// Written beside and renamed.
fn write(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().context("the path has a directory")?;
    fs::create_dir_all(directory)?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    fs::write(&draft, text).with_context(|| format!("write {}", draft.display()))?;
    fs::rename(&draft, path).with_context(|| format!("write {}", path.display()))
}
