//! From a command line and the texts it names to a configuration that can be used.
//!
//! The order is upstream's: defaults, file, drop-ins, flags; the last one counts. The shell reads
//! the files and hands their texts over; nothing here touches the world.

use serde_json::{Value, json};

use crate::config::{EMBEDDED, PullConcurrency, Shutdown};
use crate::{
    CommandLine, Config, FeatureGates, FieldError, Flags, LoadError, RawConfig, doors, effect,
    gates, origins::Origins, raw::is_zero, yaml_text::yaml_text,
};

/// A text and the name to call it by: the absolute path of the file it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedText {
    /// The file's path. Relative paths inside a configuration file are meant from its directory.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Everything known at start.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What only the command line says.
    pub flags: Flags,
    /// The effective configuration, field by field.
    pub raw: RawConfig,
    /// What it means.
    pub config: Config,
    /// Where each value comes from.
    pub origins: Origins,
    /// Remarks for the log.
    pub warnings: Vec<String>,
}

/// Puts everything together, or lists every fault.
pub fn load(
    command_line: &CommandLine,
    main: Option<NamedText>,
    dropins: &[NamedText],
) -> Result<Loaded, LoadError> {
    let mut faults = Vec::new();
    let mut given = RawConfig::default();
    let mut origins = Origins::default();
    let file = main.map(|text| {
        let (file, found) = RawConfig::decode_rest(&text);
        faults.extend(found);
        origins.add(&text, &file);
        file
    });
    given.clone_from(file.as_ref().unwrap_or(&RawConfig::default()));
    for dropin in dropins {
        faults.extend(given.patch(dropin));
        origins.add_patch(dropin);
    }
    command_line.apply(&mut given);
    origins.add_command_line(command_line);
    let settings = given.gate_settings();
    let gates = FeatureGates::from_settings(&settings).unwrap_or_else(|found| {
        faults.extend(found.into_iter().map(|fault| origins.blame(fault)));
        FeatureGates::default()
    });
    // Rules are checked even so: one look is to find everything.
    let mut raw = effective(command_line, file, dropins, &gates);
    if stands_alone_unsaid(command_line, &given) {
        raw.set(ENDPOINT, json!(EMBEDDED));
    }
    let built = Config::from_raw(&raw, &gates);
    let broken = match &built {
        Ok((config, _)) => {
            let mut found = doors::check(config, &given);
            found.extend(shutdown_fault(&command_line.flags, config));
            found
        }
        Err(found) => found.clone(),
    };
    faults.extend(broken.into_iter().map(|fault| origins.blame(fault)));
    let (Ok((mut config, remarks)), true) = (built, faults.is_empty()) else {
        return Err(LoadError { faults });
    };
    if given.get("serializeImagePulls").is_none() && given.get("maxParallelImagePulls").is_none() {
        // Upstream's default value stays what it is; what it means when nobody gave it is ours to
        // say (docs/adr).
        config.images.concurrency = PullConcurrency::SerialPerRegistry;
    }
    let mut warnings = command_line.remarks();
    warnings.extend(remarks);
    warnings.extend(gates::remarks(&settings, &gates));
    warnings.extend(cgroup_remark(&config));
    warnings.extend(effect::remarks_on_fields(&given));
    Ok(Loaded { flags: command_line.flags.clone(), raw, config, origins, warnings })
}

/// A signal that ends pods needs to know how long they get.
fn shutdown_fault(flags: &Flags, config: &Config) -> Option<FieldError> {
    const FLAG: &str = "--shutdown-on-sigterm";
    let is_idle = flags.shutdown_on_sigterm && config.shutdown == Shutdown::Off;
    let message =
        "pods would get no time; set shutdownGracePeriod or shutdownGracePeriodByPodPriority";
    is_idle.then(|| FieldError::at(FLAG, true, message))
}

const ENDPOINT: &str = "containerRuntimeEndpoint";

/// Whether nobody said which runtime a node without a cluster has. In a cluster upstream's default stays: whoever
/// switches a node over has that runtime.
fn stands_alone_unsaid(command_line: &CommandLine, given: &RawConfig) -> bool {
    // In a file an empty text is nothing; on the command line somebody meant it.
    let is_unsaid = |path: &str| {
        given.get(path).is_none_or(is_zero)
            && !command_line.overrides().iter().any(|(given, _)| *given == path)
    };
    command_line.flags.kubeconfig.is_none()
        && is_unsaid(ENDPOINT)
        && is_unsaid("imageServiceEndpoint")
}

/// The layers in upstream's order. A drop-in falls on a configuration whose defaults are already
/// filled in.
fn effective(
    command_line: &CommandLine,
    file: Option<RawConfig>,
    dropins: &[NamedText],
    gates: &FeatureGates,
) -> RawConfig {
    let mut raw = match file {
        None => RawConfig::legacy_defaults(gates),
        Some(mut raw) => {
            raw.fill_defaults(gates);
            raw.fill_eviction_hard();
            raw
        }
    };
    for dropin in dropins {
        // Its faults were told when it was laid over what was given.
        let _ = raw.patch(dropin);
    }
    raw.fill_defaults(gates);
    command_line.apply(&mut raw);
    raw
}

fn cgroup_remark(config: &Config) -> Option<String> {
    let (kubelet, kube) =
        (config.cgroups.kubelet.as_deref()?, config.reservations.kube_cgroup.as_deref()?);
    (!kubelet.starts_with(kube))
        .then(|| format!("kubeletCgroups = {kubelet} is not inside kubeReservedCgroup = {kube}"))
}

/// [`effective_json`] as YAML, for the start-up log.
pub fn effective_yaml(raw: &RawConfig) -> String {
    yaml_text(&effective_json(raw))
}

/// The effective configuration, with the headers of the pod source masked.
/// [`RawConfig::to_json`] is the same without the mask.
pub fn effective_json(raw: &RawConfig) -> Value {
    let mut json = raw.to_json();
    if let Some(Value::Object(headers)) = json.get_mut("staticPodURLHeader") {
        headers.values_mut().for_each(|value| *value = serde_json::json!(["<masked>"]));
    }
    json
}
