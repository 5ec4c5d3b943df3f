//! Who judges a node: upstream's two test programs, one of them twice, and what differs between them.
//! Pure.
//!
//! | judge | upstream's directory | looks at the node |
//! | --- | --- | --- |
//! | cluster | `test/e2e` | through the API server |
//! | node | `test/e2e_node` | also from beside it: its files, its local ports, the runtime |
//! | serial | `test/e2e_node` | one test at a time, which has the node for itself and mostly configures it anew |

use serde_json::{Value, json};

use super::results::Kubelet;

/// Who judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judge {
    Cluster,
    Node,
    Serial,
}

impl Judge {
    pub(super) const ALL: [Judge; 3] = [Judge::Cluster, Judge::Node, Judge::Serial];

    /// Those that have a program each; the others are ways of it.
    pub(super) const SUITES: [Judge; 2] = [Judge::Cluster, Judge::Node];

    pub(super) fn name(self) -> &'static str {
        match self {
            Judge::Cluster => "cluster",
            Judge::Node => "node",
            Judge::Serial => "serial",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Judge> {
        Judge::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The program, as [`ferrolet_lab::parts::suite`] knows it.
    pub(super) fn program(self) -> &'static str {
        match self {
            Judge::Cluster => "e2e.test",
            Judge::Node | Judge::Serial => "e2e_node.test",
        }
    }

    /// The names of its tests that count, and why others do not.
    pub(super) fn list(self) -> &'static str {
        match self {
            Judge::Cluster => include_str!("../../../tests/conformance/list.txt"),
            Judge::Node => include_str!("../../../tests/conformance/node.txt"),
            Judge::Serial => include_str!("../../../tests/conformance/serial.txt"),
        }
    }

    /// What everything is called that is kept of one kubelet before this judge.
    pub(super) fn label(self, kubelet: Kubelet) -> String {
        match self {
            Judge::Cluster => kubelet.name().to_owned(),
            Judge::Node | Judge::Serial => format!("{}-{}", self.name(), kubelet.name()),
        }
    }

    /// Fields of the node's configuration that this judge takes for granted.
    pub(super) fn configuration(self) -> Value {
        match self {
            Judge::Cluster => json!({}),
            // It asks on localhost, and looks for logs where they are by default.
            Judge::Node => json!({ "address": "0.0.0.0", "podLogsDir": "/var/log/pods" }),
            // And, as upstream has it for them, conditions that end soon.
            Judge::Serial => json!({
                "address": "0.0.0.0",
                "podLogsDir": "/var/log/pods",
                "cgroupRoot": "/",
                "volumeStatsAggPeriod": "10s",
                "serializeImagePulls": false,
                "fileCheckFrequency": "10s",
                "evictionPressureTransitionPeriod": "30s",
            }),
        }
    }

    /// The controllers beside the API server. Who has the node for himself expects nobody to taint it
    /// for the conditions that his tests bring about.
    pub(super) fn controllers(self) -> &'static str {
        match self {
            Judge::Cluster | Judge::Node => "*",
            Judge::Serial => "*,-node-lifecycle-controller",
        }
    }

    /// Whether a test has the node for itself.
    pub(super) fn is_serial(self) -> bool {
        self == Judge::Serial
    }

    /// The title of its chapter.
    pub(super) fn title(self) -> &'static str {
        match self {
            Judge::Cluster => "The cluster suite",
            Judge::Node => "The node suite",
            Judge::Serial => "The node suite, one by one",
        }
    }

    /// What its chapter begins with.
    pub(super) fn about(self) -> &'static str {
        match self {
            Judge::Cluster => {
                "The tests of upstream's `test/e2e` that judge a kubelet: every conformance test of `[sig-node]`, every one that is also\n\
                 marked `[NodeConformance]`, and every other test of `[sig-node]` with that mark that can pass here. What cannot is named in\n\
                 [list.txt](../tests/conformance/list.txt), with the reason."
            }
            Judge::Node => {
                "The tests of upstream's `test/e2e_node` that run beside others, and some of those that restart the kubelet, without what it\n\
                 shares with the cluster suite. What upstream's kubelet cannot pass here, and what is left out for another reason, is named in\n\
                 [node.txt](../tests/conformance/node.txt)."
            }
            Judge::Serial => {
                "Tests of upstream's `test/e2e_node` that want the node for themselves: they configure it anew, put it short of something, or let\n\
                 the machine go down, with a stand-in for logind. What is left out, and why, is named in\n\
                 [serial.txt](../tests/conformance/serial.txt)."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_kept_has_the_name_of_something_else() {
        let mut labels: Vec<String> = Judge::ALL
            .iter()
            .flat_map(|judge| Kubelet::ALL.map(|kubelet| judge.label(kubelet)))
            .collect();
        labels.sort();
        let n_labels = labels.len();
        labels.dedup();
        assert_eq!(labels.len(), n_labels);
    }

    #[test]
    fn a_judge_is_found_by_its_name() {
        for judge in Judge::ALL {
            assert_eq!(Judge::parse(judge.name()), Some(judge));
        }
        assert_eq!(Judge::parse("jury"), None);
    }
}
