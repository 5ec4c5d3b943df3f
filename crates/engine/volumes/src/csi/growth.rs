//! Volumes of drivers that have become larger: their file systems are told, then their claims ([`crate::growth`]).

use ferrolet_ports::{CsiExpand, CsiFate};
use serde_json::Value;

use super::shell::{CsiShell, Job, lock};
use crate::{
    fault::{Fault, Step},
    growth::{begun, failed, finished, given_up, growth, say_grown, tell_claim},
};

impl CsiShell<'_> {
    /// Lets the volume use what it has become, and tells the claim.
    pub(super) async fn grow(
        &self,
        job: &Job<'_>,
        path: &str,
        staging_path: &str,
    ) -> Result<(), Fault> {
        let Some(size) = growth(job.provided).filter(|_| job.abilities.expands) else {
            return Ok(());
        };
        let key = (job.plan.uid.clone(), job.provided.spec_name.clone());
        if lock(&self.kept.unfit).contains(&key) {
            return Ok(());
        }
        if size.is_tracked {
            self.tell_claim(job, &begun()).await?;
        }
        let secrets = self.secrets(&job.volume.expand_secret, "NodeExpandSecretRef");
        let ask = CsiExpand {
            volume: job.handle.clone(),
            path: path.to_owned(),
            staging_path: staging_path.to_owned(),
            capability: self.capability(job),
            bytes: size.bytes,
            secrets: secrets.await?,
        };
        if let Err(error) = self.drivers.expand(&job.volume.driver, &ask).await {
            if error.is_final() && size.is_tracked {
                let now = self.clock.now().to_second_precision().to_string();
                let why = error.to_string();
                let patch = match error.fate {
                    CsiFate::Infeasible => given_up(&why, &now),
                    CsiFate::Open | CsiFate::Final | CsiFate::Unfit => failed(&why, &now),
                };
                self.tell_claim(job, &patch).await?;
            }
            if error.fate == CsiFate::Unfit {
                // No reason to keep the pod from its volume, nor to ask again while the pod is here.
                tracing::warn!(volume = job.provided.spec_name, %error, "Volume cannot grow here");
                lock(&self.kept.unfit).insert(key);
                return Ok(());
            }
            return Err(Fault::refused(error.message).at(Step::Expand));
        }
        say_grown(self.provider.events, job.plan, job.provided, self.node_name);
        self.tell_claim(job, &finished(&size)).await
    }

    async fn tell_claim(&self, job: &Job<'_>, patch: &Value) -> Result<(), Fault> {
        tell_claim(self.storage, job.plan, job.provided, patch).await
    }
}
