//! A profile as people write it: JSON of the OCI's and of Docker's form.
//!
//! Fields that are not known are passed over, as everybody does; a value that makes no sense is
//! refused with its place. Names of system calls that no architecture here has are passed over too:
//! profiles list those of all.

use serde::Deserialize;
use thiserror::Error;

use crate::profile::{Action, Comparison, Condition, Node, Profile, Rule};
use crate::syscalls::Arch;

/// The largest profile that is read, in bytes.
pub const MAX_DOCUMENT: usize = 1024 * 1024;
/// The most conditions of one rule.
const MAX_CONDITIONS: usize = 32;
/// The greatest number that a system call can fail with.
const MAX_ERRNO: u32 = 4095;
const EPERM: u16 = 1;

const LOG: u32 = 2;
const SPEC_ALLOW: u32 = 4;

/// Why something is no profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// More bytes than are read.
    #[error("larger than {MAX_DOCUMENT} bytes")]
    TooLarge,
    /// Not JSON, or not of the form of a profile.
    #[error("{field}: {problem}")]
    Form {
        /// The place in the document.
        field: String,
        /// What is the matter.
        problem: String,
    },
    /// A value that makes no sense, or asks for what is not done.
    #[error("{field}: {problem} {value:?}")]
    Value {
        /// The place in the document.
        field: String,
        /// What is the matter.
        problem: &'static str,
        /// The value.
        value: String,
    },
}

/// A profile as it was written.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Vec<String>,
    #[serde(default)]
    arch_map: Vec<ArchMap>,
    flags: Option<Vec<String>>,
    #[serde(default)]
    listener_path: String,
    #[serde(default)]
    syscalls: Vec<Syscalls>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchMap {
    architecture: String,
    #[serde(default, deserialize_with = "maybe_null")]
    sub_architectures: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Syscalls {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "maybe_null")]
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default, deserialize_with = "maybe_null")]
    args: Vec<Argument>,
    #[serde(default)]
    includes: Where,
    #[serde(default)]
    excludes: Where,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Where {
    #[serde(deserialize_with = "maybe_null")]
    caps: Vec<String>,
    #[serde(deserialize_with = "maybe_null")]
    arches: Vec<String>,
    min_kernel: Option<String>,
}

/// Docker's own profile says `null` for lists that are empty.
fn maybe_null<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

impl Document {
    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// When it is too large, no JSON, or not of this form.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        if bytes.len() > MAX_DOCUMENT {
            return Err(DocumentError::TooLarge);
        }
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let field = error.path().to_string();
            DocumentError::Form { field, problem: error.inner().to_string() }
        })?;
        json.end()
            .map_err(|it| DocumentError::Form { field: ".".to_owned(), problem: it.to_string() })?;
        Ok(parsed)
    }

    /// What it means on a node. `capability` finds the bit of a capability's name.
    ///
    /// # Errors
    ///
    /// When a value makes no sense, or asks for what is not done.
    pub fn resolve(
        &self,
        node: Node,
        capability: impl Fn(&str) -> Option<u64>,
    ) -> Result<Profile, DocumentError> {
        if !self.listener_path.is_empty() {
            let path = self.listener_path.as_str();
            return Err(value("listenerPath", "notification is not supported:", path));
        }
        let mut rules = Vec::new();
        for (at, syscalls) in self.syscalls.iter().enumerate() {
            let place = format!("syscalls[{at}]");
            rules.extend(syscalls.rule(&place, node, &capability)?);
        }
        Ok(Profile {
            default: action("defaultAction", &self.default_action, self.default_errno_ret)?,
            arches: self.arches(node.arch)?,
            rules,
            flags: self.flags()?,
        })
    }

    /// The kernel's own architecture is always among them.
    fn arches(&self, native: Arch) -> Result<Vec<Arch>, DocumentError> {
        if !self.arch_map.is_empty() && !self.architectures.is_empty() {
            let both = self.architectures.join(" ");
            return Err(value("architectures", "given beside archMap:", &both));
        }
        let named = |place: String, name: &String| {
            // Those of other machines mean nothing here.
            let is_name = name.starts_with("SCMP_ARCH_");
            if is_name {
                Ok(Arch::named(name))
            } else {
                Err(value(&place, "no architecture:", name))
            }
        };
        let mut arches = vec![native];
        let mut add = |arch: Option<Arch>| {
            arches.extend(arch.filter(|it| native.with_others().contains(it)));
        };
        for (at, name) in self.architectures.iter().enumerate() {
            add(named(format!("architectures[{at}]"), name)?);
        }
        for (at, map) in self.arch_map.iter().enumerate() {
            let own = named(format!("archMap[{at}].architecture"), &map.architecture)?;
            for (below, name) in map.sub_architectures.iter().enumerate() {
                let place = format!("archMap[{at}].subArchitectures[{below}]");
                let arch = named(place, name)?;
                if own == Some(native) {
                    add(arch);
                }
            }
        }
        Ok(arches)
    }

    /// Without a word about them, mitigations that cost much and help little stay off, as with runc.
    fn flags(&self) -> Result<u32, DocumentError> {
        let Some(flags) = &self.flags else { return Ok(SPEC_ALLOW) };
        let mut all = 0;
        for (at, flag) in flags.iter().enumerate() {
            all |= match flag.as_str() {
                "SECCOMP_FILTER_FLAG_LOG" => LOG,
                "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => SPEC_ALLOW,
                // There is one thread; nobody is notified.
                "SECCOMP_FILTER_FLAG_TSYNC" | "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV" => 0,
                _ => return Err(value(&format!("flags[{at}]"), "unknown flag", flag)),
            };
        }
        Ok(all)
    }
}

impl Syscalls {
    /// None: it is not for this node.
    fn rule(
        &self,
        place: &str,
        node: Node,
        capability: &impl Fn(&str) -> Option<u64>,
    ) -> Result<Option<Rule>, DocumentError> {
        let action = action(&format!("{place}.action"), &self.action, self.errno_ret)?;
        let mut names = self.names.clone();
        if !self.name.is_empty() {
            if !names.is_empty() {
                return Err(value(&format!("{place}.name"), "given beside names:", &self.name));
            }
            names.push(self.name.clone());
        }
        if self.args.len() > MAX_CONDITIONS {
            let n_args = self.args.len().to_string();
            return Err(value(&format!("{place}.args"), "too many conditions:", &n_args));
        }
        let conditions = self.args.iter().enumerate();
        let conditions = conditions
            .map(|(at, argument)| argument.condition(&format!("{place}.args[{at}]")))
            .collect::<Result<_, _>>()?;
        let includes = self.includes.facts(&format!("{place}.includes"), node, capability)?;
        let excludes = self.excludes.facts(&format!("{place}.excludes"), node, capability)?;
        let is_here = includes.iter().all(|it| *it) && !excludes.iter().any(|it| *it);
        Ok(is_here.then_some(Rule { names, action, conditions }))
    }
}

impl Where {
    /// What it says about the node: capabilities, architecture, kernel. A capability that nobody
    /// has heard of is one that the container does not have.
    fn facts(
        &self,
        place: &str,
        node: Node,
        capability: &impl Fn(&str) -> Option<u64>,
    ) -> Result<Vec<bool>, DocumentError> {
        let mut facts = Vec::new();
        for name in &self.caps {
            facts.push(capability(name).is_some_and(|bit| node.capabilities & bit != 0));
        }
        if !self.arches.is_empty() {
            facts.push(self.arches.iter().any(|it| node.arch.is_called(it)));
        }
        if let Some(text) = &self.min_kernel {
            let mut parts = text.split('.').map(|it| it.parse::<u32>().ok());
            let (major, minor) = (parts.next().flatten(), parts.next().flatten());
            let (Some(major), Some(minor), None) = (major, minor, parts.next()) else {
                return Err(value(&format!("{place}.minKernel"), "no version of a kernel:", text));
            };
            facts.push(node.kernel >= (major, minor));
        }
        Ok(facts)
    }
}

impl Argument {
    fn condition(&self, place: &str) -> Result<Condition, DocumentError> {
        let argument = u8::try_from(self.index).ok().filter(|it| *it < 6).ok_or_else(|| {
            value(&format!("{place}.index"), "no argument:", &self.index.to_string())
        })?;
        let comparison = match self.op.as_str() {
            "SCMP_CMP_NE" => Comparison::NotEqual(self.value),
            "SCMP_CMP_LT" => Comparison::Less(self.value),
            "SCMP_CMP_LE" => Comparison::LessOrEqual(self.value),
            "SCMP_CMP_EQ" => Comparison::Equal(self.value),
            "SCMP_CMP_GE" => Comparison::GreaterOrEqual(self.value),
            "SCMP_CMP_GT" => Comparison::Greater(self.value),
            "SCMP_CMP_MASKED_EQ" => {
                Comparison::MaskedEqual { mask: self.value, value: self.value_two }
            }
            _ => return Err(value(&format!("{place}.op"), "unknown comparison", &self.op)),
        };
        Ok(Condition { argument, comparison })
    }
}

fn action(place: &str, name: &str, number: Option<u32>) -> Result<Action, DocumentError> {
    let number = match number {
        None => EPERM,
        Some(it) => u16::try_from(it)
            .ok()
            .filter(|it| u32::from(*it) <= MAX_ERRNO)
            .ok_or_else(|| value(place, "no error number:", &it.to_string()))?,
    };
    Ok(match name {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Action::KillThread,
        "SCMP_ACT_KILL_PROCESS" => Action::KillProcess,
        "SCMP_ACT_TRAP" => Action::Trap,
        "SCMP_ACT_ERRNO" => Action::Errno(number),
        "SCMP_ACT_TRACE" => Action::Trace(number),
        "SCMP_ACT_LOG" => Action::Log,
        "SCMP_ACT_ALLOW" => Action::Allow,
        "SCMP_ACT_NOTIFY" => return Err(value(place, "not supported:", name)),
        _ => return Err(value(place, "unknown action", name)),
    })
}

fn value(field: &str, problem: &'static str, value: &str) -> DocumentError {
    DocumentError::Value { field: field.to_owned(), problem, value: value.to_owned() }
}

#[cfg(test)]
mod tests;
