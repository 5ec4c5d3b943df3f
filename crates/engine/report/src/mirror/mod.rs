//! The API's copies of static pods: they exist as long as their pod does, say what it is, and carry
//! its status.
//!
//! [`plan`](plan_mirrors) compares three views (static pods, the API's mirror pods, the node) and
//! answers with what to create and delete; [`run`] does it and publishes which identity in the API
//! stands for which pod here. Refuses: running anything, and touching a pod that is not a mirror.

mod plan;
mod run;
mod statics;
#[cfg(test)]
mod tests;

pub use plan::{
    MirrorAction, StaticPods, Translations, mirror_pod, plan_mirrors, plan_translations,
};
pub use run::{MirrorDoors, run};
pub use statics::{Statics, TranslatedPods};
