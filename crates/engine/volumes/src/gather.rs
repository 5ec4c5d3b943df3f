//! Reading what a pod's volumes refer to: every object and token once, all at the same time.

use std::collections::BTreeSet;

use ferrolet_ports::{ApiError, ClusterObjects, ObjectKind, TokenAsk};
use futures::future::join_all;

use crate::{
    payload::{Gathered, Got, Missing},
    plan::{Desired, PlannedVolume, Source},
};

/// What upstream says about objects on a node without a cluster.
const STANDALONE: &str = "not supported due to running kubelet in standalone mode";

/// What volumes refer to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) objects: BTreeSet<(ObjectKind, String)>,
    pub(crate) tokens: BTreeSet<TokenAsk>,
}

/// What the volumes refer to, each thing once.
pub(crate) fn needs_of<'a>(volumes: impl IntoIterator<Item = &'a PlannedVolume>) -> Needs {
    let mut needs = Needs::default();
    for volume in volumes {
        let Desired::Files { sources, .. } = &volume.desired else {
            continue;
        };
        for source in sources {
            match source {
                Source::Object { kind, name, .. } => {
                    needs.objects.insert((*kind, name.clone()));
                }
                Source::Token { ask, .. } => {
                    needs.tokens.insert(ask.clone());
                }
                Source::Known(_) => {}
            }
        }
    }
    needs
}

/// Reads it all; what cannot be read is kept as the reason why.
pub(crate) async fn gather(
    objects: Option<&dyn ClusterObjects>,
    namespace: &str,
    needs: &Needs,
) -> Gathered {
    let names = |wanted: ObjectKind| {
        let names = needs
            .objects
            .iter()
            .filter(move |(kind, _)| *kind == wanted);
        names.map(|(_, name)| name)
    };
    let config_maps = names(ObjectKind::ConfigMap).map(async |name| {
        let got = match objects {
            Some(objects) => objects.get_config_map(namespace, name).await,
            None => return (name.clone(), standalone()),
        };
        (
            name.clone(),
            got.map_err(|error| missing("configmap", name, error)),
        )
    });
    let secrets = names(ObjectKind::Secret).map(async |name| {
        let got = match objects {
            Some(objects) => objects.get_secret(namespace, name).await,
            None => return (name.clone(), standalone()),
        };
        (
            name.clone(),
            got.map_err(|error| missing("secret", name, error)),
        )
    });
    let tokens = needs.tokens.iter().map(async |ask| {
        let got = match objects {
            Some(objects) => objects.get_token(ask).await,
            None => return (ask.clone(), standalone()),
        };
        let got = got.map_err(|error| Missing {
            // An account that is missing now is not announced when it appears: ask again.
            is_absent: false,
            message: format!("failed to fetch token: {}", error.message),
        });
        (ask.clone(), got)
    });
    let (config_maps, secrets, tokens) =
        futures::join!(join_all(config_maps), join_all(secrets), join_all(tokens));
    Gathered {
        config_maps: config_maps.into_iter().collect(),
        secrets: secrets.into_iter().collect(),
        tokens: tokens.into_iter().collect(),
    }
}

fn standalone<T>() -> Got<T> {
    Err(Missing {
        is_absent: false,
        message: STANDALONE.to_owned(),
    })
}

fn missing(kind: &str, name: &str, error: ApiError) -> Missing {
    let message = if error.is_not_found() {
        format!("{kind} {name:?} not found")
    } else {
        error.message
    };
    Missing::new(error.kind, message)
}
