//! A whole run: the stages in turn, the second look at what differs, the verdict.
//!
//! A case that differs is played again, twice, with few others beside it; only what differs every
//! time counts, because a machine that does something else for a second makes pods miss a state.
//! Everything ours answered is kept in `target/differential/`, with the agents' logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferrolet_lab::cluster::Api;
use ferrolet_lab::parts::ControlPlane;
use ferrolet_lab::{Bench, Cluster, ClusterOptions, Toolbox};

use crate::answer::{self, Answer};
use crate::case::Case;
use crate::compare::{Difference, compare};
use crate::evidence::Evidence;
use crate::known::Known;
use crate::perform::{Answers, perform};
use crate::quality::agreeing;
use crate::stage::{Scene, Stage};
use crate::{Mode, Options, home, report};

/// Cases at a time when something is looked at again.
const FEW: usize = 4;

/// How often a case is played until a difference counts.
const N_LOOKS: usize = 3;

/// How often a case is recorded until two recordings agree.
const N_RECORDINGS: usize = 4;

/// What a run works with.
pub(crate) struct Set<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) tools: &'a Toolbox,
    pub(crate) binaries: &'a ControlPlane,
    pub(crate) options: &'a Options,
    pub(crate) known: &'a [Known],
}

/// Differences by case.
type Found = BTreeMap<String, Vec<Difference>>;

impl Set<'_> {
    /// Plays the cases and gives the exit code.
    pub(crate) fn run(&self, cases: &[Case]) -> Result<u8> {
        let cluster = Cluster::start(self.bench, self.binaries, &ClusterOptions::default())?;
        let scene = Scene {
            bench: self.bench,
            tools: self.tools,
            cluster: &cluster,
            api: Api::new(&cluster.proxy_address())?,
        };
        let cases: Vec<&Case> = cases.iter().collect();
        match self.options.mode {
            Mode::Record => self.record(&scene, &cases),
            Mode::Recorded => self.judge(&scene, &cases, Answers::new()),
            Mode::Live => {
                let mut stage =
                    Stage::start(&scene, "diff-upstream", &self.binaries.binary("kubelet"))?;
                let live = self.play(&mut stage, &cases, "u")?;
                stage.end(&kept("upstream.log")?)?;
                println!("upstream's kubelet has played {} cases", live.len());
                self.judge(&scene, &cases, live)
            }
        }
    }

    fn play(&self, stage: &mut Stage<'_>, cases: &[&Case], prefix: &str) -> Result<Answers> {
        perform(stage, cases, prefix, self.options.n_at_once)
            .with_context(|| ferrolet_lab::process::tail(&stage.node.node.log(), 20))
    }

    /// Two recordings of each case that can be trusted; a few cases at a time, so that what was
    /// recorded is kept.
    fn record(&self, scene: &Scene<'_>, cases: &[&Case]) -> Result<u8> {
        let mut stage = Stage::start(scene, "diff-upstream", &self.binaries.binary("kubelet"))?;
        let mut n_failed = 0;
        for part in cases.chunks(self.options.n_at_once * 2) {
            let mut recorded: BTreeMap<String, Vec<Answer>> = BTreeMap::new();
            let mut left = part.to_vec();
            for number in 0..N_RECORDINGS {
                for (case, answer) in self.play(&mut stage, &left, &format!("u{number}"))? {
                    recorded.entry(case).or_default().push(answer);
                }
                left.retain(|case| agreeing(&recorded[&case.name]).is_none());
                if left.is_empty() {
                    break;
                }
            }
            for (case, answers) in &recorded {
                match agreeing(answers) {
                    Some(answers) => answer::write(&home().join("answers"), case, answers)?,
                    None => {
                        n_failed += 1;
                        println!("UNSTABLE {case}: no two of {N_RECORDINGS} recordings end alike");
                    }
                }
            }
            println!("recorded {} of {}", part.len() - left.len(), part.len());
        }
        stage.end(&kept("upstream.log")?)?;
        let n_passed = cases.len() - n_failed;
        println!("{n_passed} passed, {n_failed} failed, 0 skipped");
        Ok(u8::from(n_failed > 0))
    }

    /// Ours against the recordings, and against what was just seen.
    fn judge(&self, scene: &Scene<'_>, cases: &[&Case], live: Answers) -> Result<u8> {
        let mut theirs: BTreeMap<String, Vec<Answer>> = BTreeMap::new();
        let mut n_skipped = 0;
        let mut played: Vec<&Case> = Vec::new();
        for case in cases {
            let mut answers = answer::read(&home().join("answers"), &case.name)?;
            answers.extend(live.get(&case.name).cloned());
            if answers.is_empty() {
                println!("skipped {}: no answer is recorded", case.name);
                n_skipped += 1;
            } else {
                theirs.insert(case.name.clone(), answers);
                played.push(case);
            }
        }
        let mut stage = Stage::start(scene, "diff-ours", &self.options.agent)?;
        let answers = self.play(&mut stage, &played, "o")?;
        let first = differences(&answers, &theirs)?;
        let mut found = first;
        for number in 2..=N_LOOKS {
            let has_news = |case: &&&Case| {
                let found = found.get(&case.name);
                let evidence = evidence(&theirs, &case.name);
                found.is_some_and(|found| self.has_news(&case.name, found, &evidence))
            };
            let again: Vec<&Case> = played.iter().filter(has_news).copied().collect();
            if again.is_empty() {
                break;
            }
            println!("{} of {} cases differ; once more", again.len(), played.len());
            let few = FEW.min(self.options.n_at_once);
            let answers = perform(&mut stage, &again, &format!("o{number}"), few)?;
            let now = differences(&answers, &theirs)?;
            for case in &again {
                let later = now.get(&case.name).cloned().unwrap_or_default();
                let both = found.entry(case.name.clone()).or_default();
                let earlier = std::mem::replace(both, later);
                both.retain(|it| earlier.iter().any(|other| other.path == it.path));
            }
        }
        stage.end(&kept("ours.log")?)?;
        Ok(self.verdict(&played, &found, &theirs, n_skipped))
    }

    /// Whether a case has a difference that the list does not know.
    fn has_news(&self, case: &str, found: &[Difference], evidence: &Evidence) -> bool {
        found.iter().any(|it| !self.known.iter().any(|known| known.covers(case, it, evidence)))
    }

    fn verdict(
        &self,
        played: &[&Case],
        found: &Found,
        theirs: &BTreeMap<String, Vec<Answer>>,
        n_skipped: usize,
    ) -> u8 {
        let mut n_failed = 0;
        for case in played {
            let differences = found.get(&case.name).map(Vec::as_slice).unwrap_or_default();
            let evidence = evidence(theirs, &case.name);
            if !self.has_news(&case.name, differences, &evidence) {
                continue;
            }
            n_failed += 1;
            println!("DIFFERS {}", case.name);
            for difference in differences {
                let mut known = self.known.iter();
                if !known.any(|known| known.covers(&case.name, difference, &evidence)) {
                    print!("{}", report::lines(difference));
                }
            }
        }
        let mut n_old = 0;
        for known in self.known {
            let mut about = played.iter().filter(|case| known.names(&case.name)).peekable();
            let is_seen = |case: &&&Case| {
                let evidence = evidence(theirs, &case.name);
                let all = found.get(&case.name);
                all.is_some_and(|all| all.iter().any(|it| known.covers(&case.name, it, &evidence)))
            };
            if about.peek().is_some() && !about.any(|case| is_seen(&case)) {
                println!("no longer seen: {} (tests/differential/known.yaml)", known.title);
                n_old += 1;
            }
        }
        let n_passed = played.len() - n_failed;
        println!("{n_passed} passed, {n_failed} failed, {n_skipped} skipped");
        // A difference that is gone is good news that the list has to hear of; some of the cases
        // alone may not show what is still there.
        u8::from(n_failed > 0 || n_old > 0 && self.options.is_whole())
    }
}

fn evidence(theirs: &BTreeMap<String, Vec<Answer>>, case: &str) -> Evidence {
    Evidence::of(theirs.get(case).map(Vec::as_slice).unwrap_or_default())
}

fn differences(answers: &Answers, theirs: &BTreeMap<String, Vec<Answer>>) -> Result<Found> {
    let mut found = Found::new();
    for (case, ours) in answers {
        answer::write(&kept("ours")?, case, vec![ours.clone()])?;
        let theirs = theirs.get(case).map(Vec::as_slice).unwrap_or_default();
        let differences = compare(ours, theirs);
        if !differences.is_empty() {
            found.insert(case.clone(), differences);
        }
    }
    Ok(found)
}

/// A place below `target/differential`, for whoever looks for the reason.
fn kept(name: &str) -> Result<PathBuf> {
    let directory: &Path = &home().join("../../target/differential");
    fs::create_dir_all(directory)?;
    Ok(directory.join(name))
}
