//! What an answer of the manifest URL means: which pods there are now, and what to tell.

use std::collections::BTreeSet;

use ferrolet_types::{SourceUpdate, hash::fnv1a_128, pod::PodSource};

use super::Answer;
use crate::{Notice, Origin, read};

/// So many failures in a row are told; the last of them says that the rest is silence.
const TOLD_FAILURES: u32 = 4;

/// The pods of one URL, as far as they are known.
#[derive(Debug)]
pub struct UrlSet {
    url: String,
    node: String,
    /// The body that was judged last, and what was wrong with it.
    judged: Option<(u128, Option<String>)>,
    last_sent: Option<SourceUpdate>,
    n_failures: u32,
}

/// What came of one answer.
#[derive(Debug, Default, PartialEq)]
pub struct Answered {
    /// The whole set, when it changed or was never sent.
    pub update: Option<SourceUpdate>,
    /// What should be told; failures in a row are told a few times only.
    pub notices: Vec<Notice>,
}

impl UrlSet {
    /// Nothing known yet.
    pub fn new(url: impl Into<String>, node: impl Into<String>) -> Self {
        Self { url: url.into(), node: node.into(), judged: None, last_sent: None, n_failures: 0 }
    }

    /// Judges what came of a request.
    pub fn answer(&mut self, answer: Result<Answer, String>) -> Answered {
        let mut answered = Answered::default();
        match self.judge(answer, &mut answered) {
            Ok(()) if self.n_failures > 0 => {
                self.n_failures = 0;
                let message = "the manifest URL can be read again";
                answered.notices.push(self.notice(message));
            }
            Ok(()) => {}
            Err(fault) => {
                self.n_failures = self.n_failures.saturating_add(1);
                if self.n_failures < TOLD_FAILURES {
                    answered.notices.push(self.notice(fault));
                } else if self.n_failures == TOLD_FAILURES {
                    let message = format!("{fault} (not told again until it works)");
                    answered.notices.push(self.notice(message));
                }
            }
        }
        answered
    }

    fn judge(
        &mut self,
        answer: Result<Answer, String>,
        answered: &mut Answered,
    ) -> Result<(), String> {
        let answer = answer.map_err(|fault| format!("cannot read the manifest URL: {fault}"))?;
        if answer.status != 200 {
            return Err(format!("the manifest URL answers with status {}", answer.status));
        }
        if answer.body.is_empty() {
            self.judged = None;
            self.send(Vec::new(), answered);
            return Err("the manifest URL answers with nothing; taken as no pods".to_owned());
        }
        let content = fnv1a_128(&answer.body);
        if let Some((judged, fault)) = &self.judged
            && *judged == content
        {
            return fault.clone().map_or(Ok(()), Err);
        }
        match read(&answer.body, Origin::Url(&self.url), &self.node) {
            Ok(reading) => {
                self.judged = Some((content, None));
                let warnings = reading.warnings.into_iter();
                answered.notices.extend(warnings.map(|warning| self.notice(warning)));
                self.send(reading.pods, answered);
                Ok(())
            }
            Err(error) => {
                let fault = error.to_string();
                self.judged = Some((content, Some(fault.clone())));
                Err(fault)
            }
        }
    }

    fn send(&mut self, pods: Vec<ferrolet_types::SourcedPod>, answered: &mut Answered) {
        let update = SourceUpdate {
            source: PodSource::Http,
            pods,
            unreadable: BTreeSet::new(),
            is_provisional: false,
        };
        if self.last_sent.as_ref() != Some(&update) {
            self.last_sent = Some(update.clone());
            answered.update = Some(update);
        }
    }

    fn notice(&self, message: impl Into<String>) -> Notice {
        Notice::new(PodSource::Http, self.url.as_str(), message)
    }
}
