//! Whom a critical pod costs its place: upstream's choice of victims.
//!
//! ```text
//!  what is missing ─► Guaranteed: what all others together cannot give
//!                     Burstable:  what BestEffort and those Guaranteed ones cannot give
//!                     BestEffort: the rest
//!  within a class the pod that comes nearest to what is missing goes first, then what is left is asked again
//! ```
//!
//! In: the pod, those that were taken, what is missing. Out: the victims, or the sentence that says
//! that no set of pods is enough. Refuses: ending anybody; pods that are as important as the one
//! that comes.

use ferrolet_types::{Qos, pod::PodView};
use k8s_openapi::api::core::v1::Pod;

use crate::{Amounts, InsufficientResource, amount, pod_qos, requests_for_ranking};

/// The pods that have to make room for `pod`, or why that would not help.
pub fn choose_victims<'a>(
    pod: &Pod,
    others: &[&'a Pod],
    missing: &[InsufficientResource],
) -> Result<Vec<&'a Pod>, String> {
    let of_class = |qos: Qos| -> Vec<Victim<'a>> {
        let those = others.iter().filter(|it| is_preemptable(pod, it) && pod_qos(it) == qos);
        those.map(|it| Victim::new(it)).collect()
    };
    let (best_effort, burstable) = (of_class(Qos::BestEffort), of_class(Qos::Burstable));
    let guaranteed = of_class(Qos::Guaranteed);
    let needs: Vec<Need> =
        missing.iter().map(|it| Need { name: it.name.clone(), amount: it.missing() }).collect();

    let rest = subtract(&needs, [&best_effort, &burstable, &guaranteed]);
    if !rest.is_empty() {
        return Err(impossible(&rest));
    }
    let guaranteed = nearest(guaranteed, subtract(&needs, [&best_effort, &burstable]))?;
    let burstable = nearest(burstable, subtract(&needs, [&best_effort, &guaranteed]))?;
    let best_effort = nearest(best_effort, subtract(&needs, [&burstable, &guaranteed]))?;
    let all = best_effort.into_iter().chain(burstable).chain(guaranteed);
    Ok(all.map(|it| it.pod).collect())
}

/// Critical pods may take the place of any other; beyond that the higher priority wins.
fn is_preemptable(pod: &Pod, other: &Pod) -> bool {
    if pod.is_critical() && !other.is_critical() {
        return true;
    }
    match (pod.spec_ref().priority, other.spec_ref().priority) {
        (Some(own), Some(of_other)) => own > of_other,
        _ => false,
    }
}

/// A pod that may have to go, with what it asked for.
struct Victim<'a> {
    pod: &'a Pod,
    requests: Amounts,
}

impl<'a> Victim<'a> {
    fn new(pod: &'a Pod) -> Self {
        Self { pod, requests: requests_for_ranking(pod) }
    }

    fn request(&self, name: &str) -> i64 {
        match name {
            "pods" => 1,
            "cpu" => amount(&self.requests, name).milli(),
            _ => amount(&self.requests, name).value(),
        }
    }

    /// Equals count as smaller: the later one of two is taken, as upstream does.
    fn is_smaller_than(&self, other: &Self) -> bool {
        for name in ["memory", "cpu"] {
            let (own, of_other) = (self.request(name), other.request(name));
            if own != of_other {
                return own < of_other;
            }
        }
        true
    }
}

/// What has to become free.
#[derive(Clone, Debug, PartialEq)]
struct Need {
    name: String,
    amount: i64,
}

/// What is still needed when all of these pods are gone.
fn subtract<'v, 'a: 'v>(
    needs: &[Need],
    victims: impl IntoIterator<Item = &'v Vec<Victim<'a>>>,
) -> Vec<Need> {
    let gone: Vec<&Victim<'_>> = victims.into_iter().flatten().collect();
    let left = needs.iter().map(|need| {
        let freed = gone.iter().map(|it| it.request(&need.name)).fold(0, i64::saturating_add);
        Need { amount: need.amount.saturating_sub(freed), ..need.clone() }
    });
    left.filter(|it| it.amount > 0).collect()
}

/// Takes the pod that comes nearest to what is needed, again and again until that is met.
fn nearest<'a>(mut from: Vec<Victim<'a>>, mut needs: Vec<Need>) -> Result<Vec<Victim<'a>>, String> {
    let mut taken = Vec::new();
    while !needs.is_empty() {
        let mut best: Option<(usize, f64)> = None;
        for (at, victim) in from.iter().enumerate() {
            let distance = distance(&needs, victim);
            let is_better = best.is_none_or(|(index, shortest)| {
                distance < shortest
                    || (distance == shortest && victim.is_smaller_than(&from[index]))
            });
            if is_better {
                best = Some((at, distance));
            }
        }
        let Some((at, _)) = best else {
            return Err(impossible(&needs));
        };
        // The last takes its place, as upstream does, which decides between later equals.
        let one = vec![from.swap_remove(at)];
        needs = subtract(&needs, [&one]);
        taken.extend(one);
    }
    Ok(taken)
}

/// How much of the needs a pod would leave open, each need weighing the same.
#[expect(clippy::cast_precision_loss, reason = "upstream's arithmetic: fractions in double")]
fn distance(needs: &[Need], victim: &Victim<'_>) -> f64 {
    let open = needs.iter().map(|need| {
        let left = need.amount.saturating_sub(victim.request(&need.name));
        if left > 0 { (left as f64 / need.amount as f64).powi(2) } else { 0.0 }
    });
    open.fold(0.0, |sum, it| sum + it)
}

fn impossible(needs: &[Need]) -> String {
    let all: String =
        needs.iter().map(|it| format!("(res: {}, q: {}), ", it.name, it.amount)).collect();
    format!("no set of running pods found to reclaim resources: [{all}]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, memory: &str, limit: bool, priority: i32) -> Pod {
        let mut resources = json!({});
        if memory != "0" {
            resources["requests"] = json!({"memory": memory, "cpu": "1m"});
        }
        if limit {
            resources["limits"] = resources["requests"].clone();
        }
        let pod = json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/config.source": "api"}},
            "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn check(others: &[Pod], missing: i64, expected: Result<&[&str], &str>) {
        let critical = pod("critical", "1Gi", false, 2_000_000_000);
        let missing = InsufficientResource {
            name: "memory".to_owned(),
            requested: missing << 20,
            used: 0,
            capacity: 0,
        };
        let others: Vec<&Pod> = others.iter().collect();
        let found = choose_victims(&critical, &others, &[missing]);
        let found = found.map(|them| {
            let names = them.iter().map(|it| it.metadata.name.clone().unwrap());
            names.collect::<Vec<String>>()
        });
        let expected = expected.map(|it| it.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn the_fewest_and_smallest_of_the_lowest_class_go() {
        let others = [
            pod("small", "100Mi", false, 0),
            pod("fitting", "300Mi", false, 0),
            pod("large", "900Mi", false, 0),
            pod("guaranteed", "400Mi", true, 0),
        ];
        check(&others, 250, Ok(&["fitting"]));
        check(&others, 100, Ok(&["small"]));
        check(&others, 1000, Ok(&["large", "small"]));
        check(&others, 1500, Ok(&["large", "fitting", "guaranteed"]));
    }

    #[test]
    fn pods_as_important_as_the_one_that_comes_stay() {
        let others = [pod("equal", "900Mi", false, 2_000_000_000), pod("low", "10Mi", false, 0)];
        check(&others, 10, Ok(&["low"]));
        let refused =
            "no set of running pods found to reclaim resources: [(res: memory, q: 10485760), ]";
        check(&others, 20, Err(refused));
        let lower = [pod("lower", "900Mi", false, 1_999_999_999)];
        check(&lower, 20, Ok(&["lower"]));
    }
}
