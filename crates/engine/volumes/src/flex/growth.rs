//! Volumes of drivers of the old kind that have become larger: the driver is told, or the file system's own program, then the
//! claim ([`crate::growth`]).

use std::path::Path;

use ferrolet_ports::{FlexCommand, FlexError};
use serde_json::Value;

use super::{
    rules::{Extra, options},
    shell::{FlexShell, refused},
};
use crate::{
    fault::{Fault, Step},
    growth::{begun, failed, finished, growth, say_grown, tell_claim},
    plan::PodPlan,
    provided::{FlexVolume, Provided},
};

impl FlexShell<'_> {
    /// Lets the volume use what it has become, and tells the claim.
    pub(super) async fn grow(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        volume: &FlexVolume,
        (device, path): (&str, &Path),
    ) -> Result<(), Fault> {
        let (Some(size), Some(storage)) = (growth(provided), self.storage) else {
            return Ok(());
        };
        let tell = async |patch: Value| tell_claim(storage, plan, provided, &patch).await;
        if size.is_tracked {
            tell(begun()).await?;
        }
        let path = path.display().to_string();
        let words = [
            options(volume, provided, &Extra::new()),
            device.to_owned(),
            path.clone(),
            size.bytes.to_string(),
            size.before.to_string(),
        ];
        let grown = match self.call(&volume.driver, FlexCommand::ExpandFs, words).await {
            Ok(_) => Ok(()),
            Err(FlexError::NotSupported) => {
                let grown = self.provider.mounts.grow_files(device, &path).await;
                grown.map_err(Fault::from)
            }
            Err(error) => Err(refused(&error)),
        };
        if let Err(fault) = grown {
            if size.is_tracked {
                let now = self.clock.now().to_second_precision().to_string();
                tell(failed(&fault.message, &now)).await?;
            }
            return Err(Fault { wants_pause: true, ..fault.at(Step::Expand) });
        }
        say_grown(self.provider.events, plan, provided, self.node_name);
        tell(finished(&size)).await
    }
}
