//! What follows when the runtime will not let go of something that nobody needs any more.
//!
//! In: how it refused, and whether anybody wants the pod that the thing belongs to. Out: go on
//! without it, or ask again. Refuses: knowing what the thing is; putting it aside is the worker's
//! business. ADR 0021 tells why such a thing must not hold up its pod.

/// How a runtime refused to remove something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It says that it cannot be done in the state the thing is in, a task that never ends for
    /// instance: asking again soon changes nothing.
    Standing,
    /// It failed, did not answer, or said nothing that would last.
    Passing,
}

/// Whether somebody asked for the pod whose remains are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The pod has a specification: its start or its end waits behind this.
    Wanted,
    /// Nobody knows it; to remove what is left of it is all there is to do.
    Unclaimed,
}

/// What to do after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRefusal {
    /// The pod goes on without it; what is left is found again when the pod is gone.
    GoOn,
    /// The removal counts as failed and is repeated after a pause.
    TryAgain,
}

/// What a refused removal means for the pod.
pub fn after_refusal(refusal: Refusal, claim: Claim) -> AfterRefusal {
    match (refusal, claim) {
        // A pod does not wait for what the runtime will not let go of.
        (Refusal::Standing, Claim::Wanted) => AfterRefusal::GoOn,
        // What nobody asked for has nothing else to do than to wait, and nobody would come back for
        // it.
        (Refusal::Standing, Claim::Unclaimed)
        | (Refusal::Passing, Claim::Wanted | Claim::Unclaimed) => AfterRefusal::TryAgain,
    }
}
