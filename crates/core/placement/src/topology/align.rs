//! A pod walked by the scope of its alignment: hints, one best hint, and everybody gives.

use super::{ProviderHints, TopologyHint, TopologyPolicy, TopologyRules, TopologyScope, merge};
use crate::{ContainerAsk, PodAsk, Refusal};

/// Somebody who has resources with a place: processors, memory, devices.
///
/// What was given to a container before is given again, and hints say where that is.
pub trait HintProvider {
    /// Where what this container asks for could come from.
    fn container_hints(&self, pod: &PodAsk, container: &ContainerAsk) -> ProviderHints;

    /// Where what all containers of the pod ask for together could come from.
    fn pod_hints(&self, pod: &PodAsk) -> ProviderHints;

    /// Gives a container what it asks for, near `hint`.
    fn allocate(
        &mut self,
        pod: &PodAsk,
        container: &ContainerAsk,
        hint: TopologyHint,
    ) -> Result<(), Refusal>;
}

/// Gives every container of a pod what it asks for. What was given before a refusal stays given,
/// until the pod is found not to live.
pub fn align(
    rules: &TopologyRules,
    providers: &mut [&mut dyn HintProvider],
    pod: &PodAsk,
) -> Result<(), Refusal> {
    let mut for_pod = TopologyHint::default();
    if rules.policy != TopologyPolicy::None && rules.scope == TopologyScope::Pod {
        let hints: Vec<ProviderHints> = providers.iter().map(|it| it.pod_hints(pod)).collect();
        for_pod = judge(rules, &hints)?;
    }
    for container in &pod.containers {
        let hint = match (rules.policy, rules.scope) {
            (TopologyPolicy::None, _) | (_, TopologyScope::Pod) => for_pod,
            (_, TopologyScope::Container) => {
                let hints = providers.iter().map(|it| it.container_hints(pod, container));
                judge(rules, &hints.collect::<Vec<_>>())?
            }
        };
        for provider in providers.iter_mut() {
            provider.allocate(pod, container, hint)?;
        }
    }
    Ok(())
}

fn judge(rules: &TopologyRules, hints: &[ProviderHints]) -> Result<TopologyHint, Refusal> {
    let (hint, is_taken) = merge(rules, hints);
    if is_taken { Ok(hint) } else { Err(Refusal::TopologyAffinity) }
}
