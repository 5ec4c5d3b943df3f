//! The cases as data: files of `cases/`, one group each, in a short form that is expanded here to
//! whole API objects.
//!
//! ```yaml
//! about: what the group is about
//! cases:
//!   - name: deleted-while-running      # also the namespace, behind a prefix
//!     seconds: 10                      # how long to watch
//!     quick: true                      # part of `cargo xtask test`
//!     pod: {containers: [{sh: sleep 3600}]}         # the spec of a pod named p; or `pods: {name: spec}`
//!     objects: [{kind: ConfigMap, …}]               # whole objects, created before the pods
//!     steps: [{at: 4, delete: p}]                   # what happens, and in which second
//! ```
//!
//! In a pod's spec `metadata` is lifted out; a container's `sh` becomes a shell command, its name
//! is `c` unless given, its image busybox; pods end within two seconds unless told otherwise. Pure;
//! unknown words are errors that name the case.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ferrolet_lab::image::BUSYBOX;
use serde_json::{Map, Value, json};

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The file that it is in.
    pub(crate) group: String,
    pub(crate) watch: Duration,
    pub(crate) is_quick: bool,
    /// What exists from the start, in the order of creation; without namespace and node.
    pub(crate) objects: Vec<Value>,
    /// In the order of their time.
    pub(crate) steps: Vec<Step>,
}

/// Something that happens while the pods are watched.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Creates an object, or changes it if it is there.
    Apply(Value),
    /// Deletes a pod, with a grace period of the step's own if it names one.
    Delete {
        pod: String,
        grace: Option<u64>,
    },
    /// Deletes another object, as `configmaps/name`.
    Remove(String),
    /// Changes a pod or one of its subresources.
    Patch {
        pod: String,
        /// Empty for the pod itself.
        subresource: &'static str,
        change: Value,
    },
    /// Puts a manifest in place, or another in its place.
    PutStatic(Value),
    RemoveStatic(String),
    /// `kill -9` of the agent; concerns every case that runs at this time.
    KillAgent,
    StartAgent,
}

impl Case {
    /// When the agent is killed and started: cases of the same schedule can run side by side.
    pub(crate) fn agent_schedule(&self) -> Vec<Step> {
        let is_agents =
            |step: &&Step| matches!(step.action, Action::KillAgent | Action::StartAgent);
        self.steps.iter().filter(is_agents).cloned().collect()
    }
}

/// All cases of a directory, by group and in the order of their files.
pub(crate) fn read_all(directory: &Path) -> Result<Vec<Case>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry?.path());
    }
    files.sort();
    let mut cases: Vec<Case> = Vec::new();
    for path in files {
        let group = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path)?;
        let found = parse(&group, &text).with_context(|| format!("cases of {}", path.display()))?;
        for case in found {
            let is_new = cases.iter().all(|it| it.name != case.name);
            ensure!(is_new, "two cases are called {}", case.name);
            cases.push(case);
        }
    }
    Ok(cases)
}

/// The cases of one group.
pub(crate) fn parse(group: &str, text: &str) -> Result<Vec<Case>> {
    let file: Value = serde_saphyr::from_str(text).context("YAML")?;
    let mut file = Fields::of(file)?;
    file.take("about");
    let listed = file.take("cases").context("there is no list `cases`")?;
    file.end()?;
    let listed = listed.as_array().context("`cases` is no list")?;
    listed.iter().map(|case| parse_case(group, case)).collect()
}

fn parse_case(group: &str, value: &Value) -> Result<Case> {
    let mut fields = Fields::of(value.clone())?;
    let name = fields.text("name")?;
    let parsed = parse_named(group, &name, fields);
    parsed.with_context(|| format!("case {name}"))
}

fn parse_named(group: &str, name: &str, mut fields: Fields) -> Result<Case> {
    let is_name = !name.is_empty()
        && name.len() <= 50
        && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-');
    ensure!(is_name, "a name is lower case, with digits and hyphens");
    fields.take("about");
    let watch = seconds(&fields.take("seconds").context("`seconds` is missing")?)?;
    let is_quick = fields.take("quick") == Some(Value::Bool(true));
    let mut objects = Vec::new();
    for object in list(fields.take("objects"))? {
        objects.push(with_version(object));
    }
    if let Some(spec) = fields.take("pod") {
        objects.push(expand_pod("p", spec)?);
    }
    if let Some(pods) = fields.take("pods") {
        for (name, spec) in pods.as_object().context("`pods` is no map")? {
            objects.push(expand_pod(name, spec.clone())?);
        }
    }
    let mut steps = Vec::new();
    for step in list(fields.take("steps"))? {
        steps.push(parse_step(step)?);
    }
    ensure!(steps.is_sorted_by_key(|step| step.at), "steps are not in the order of time");
    ensure!(!objects.is_empty() || !steps.is_empty(), "nothing happens");
    fields.end()?;
    Ok(Case { name: name.to_owned(), group: group.to_owned(), watch, is_quick, objects, steps })
}

fn parse_step(value: Value) -> Result<Step> {
    let mut fields = Fields::of(value)?;
    let at = seconds(&fields.take("at").context("a step without `at`")?)?;
    let action = parse_action(&mut fields)?;
    fields.end()?;
    Ok(Step { at, action })
}

fn parse_action(fields: &mut Fields) -> Result<Action> {
    for (word, subresource) in [
        ("patch", ""),
        ("resize", "resize"),
        ("ephemeral", "ephemeralcontainers"),
        ("status", "status"),
    ] {
        if let Some(pod) = fields.take_text(word)? {
            let mut change = fields.take("with").context("`with` is missing")?;
            if subresource == "ephemeralcontainers" {
                let containers = change.as_array_mut().context("`with` is no list")?;
                containers.iter_mut().try_for_each(expand_container)?;
                change = json!({"spec": {"ephemeralContainers": containers}});
            }
            return Ok(Action::Patch { pod, subresource, change });
        }
    }
    if let Some(object) = fields.take("apply") {
        return Ok(Action::Apply(with_version(object)));
    }
    if let Some(pod) = fields.take_text("delete")? {
        let grace = fields.take("grace").and_then(|it| it.as_u64());
        return Ok(Action::Delete { pod, grace });
    }
    if let Some(path) = fields.take_text("remove")? {
        return Ok(Action::Remove(path));
    }
    if let Some(name) = fields.take_text("static")? {
        let spec = fields.take("pod").context("`pod` is missing")?;
        return Ok(Action::PutStatic(expand_pod(&name, spec)?));
    }
    if let Some(name) = fields.take_text("remove-static")? {
        return Ok(Action::RemoveStatic(name));
    }
    match fields.take_text("agent")?.as_deref() {
        Some("kill") => Ok(Action::KillAgent),
        Some("start") => Ok(Action::StartAgent),
        Some(other) => bail!("an agent cannot {other}"),
        None => bail!("a step that does nothing"),
    }
}

/// A whole pod from its short form.
fn expand_pod(name: &str, spec: Value) -> Result<Value> {
    let mut fields = Fields::of(spec)?;
    let mut metadata = fields.take("metadata").unwrap_or_else(|| json!({}));
    metadata["name"] = json!(name);
    let mut spec = Value::Object(fields.0);
    spec.as_object_mut()
        .context("a pod's spec is no map")?
        .entry("terminationGracePeriodSeconds")
        .or_insert(json!(2));
    for kind in ["initContainers", "containers"] {
        if let Some(containers) = spec[kind].as_array_mut() {
            containers.iter_mut().try_for_each(expand_container)?;
        }
    }
    // Looking for a list that is not there leaves a null.
    let all = spec.as_object_mut().context("a pod's spec is no map")?;
    all.retain(|_, value| !value.is_null());
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

fn expand_container(container: &mut Value) -> Result<()> {
    let fields = container.as_object_mut().context("a container is no map")?;
    if let Some(script) = fields.remove("sh") {
        fields.insert("command".to_owned(), json!(["sh", "-c", script]));
    }
    for (key, value) in [("name", "c"), ("image", BUSYBOX), ("imagePullPolicy", "IfNotPresent")] {
        fields.entry(key).or_insert(json!(value));
    }
    Ok(())
}

fn with_version(mut object: Value) -> Value {
    if object["apiVersion"].is_null() {
        object["apiVersion"] = json!("v1");
    }
    object
}

fn seconds(value: &Value) -> Result<Duration> {
    let number = value.as_f64().with_context(|| format!("{value} is no number of seconds"))?;
    Duration::try_from_secs_f64(number).context("seconds")
}

fn list(value: Option<Value>) -> Result<Vec<Value>> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(all)) => Ok(all),
        Some(other) => bail!("{other} is no list"),
    }
}

/// The fields of a map, taken one by one, so that what nobody takes is found out.
struct Fields(Map<String, Value>);

impl Fields {
    fn of(value: Value) -> Result<Fields> {
        match value {
            Value::Object(map) => Ok(Fields(map)),
            other => bail!("{other} is no map"),
        }
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    fn take_text(&mut self, key: &str) -> Result<Option<String>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => bail!("`{key}` is {other} and no text"),
        }
    }

    fn text(&mut self, key: &str) -> Result<String> {
        self.take_text(key)?.with_context(|| format!("`{key}` is missing"))
    }

    fn end(self) -> Result<()> {
        let left: Vec<&String> = self.0.keys().collect();
        ensure!(left.is_empty(), "unknown fields {left:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_form_becomes_whole_objects() {
        let text = "cases:\n- name: one\n  seconds: 3\n  pod: {metadata: {labels: {a: b}}, containers: [{sh: exit 1}]}\n  \
                    steps: [{at: 1.5, delete: p, grace: 0}, {at: 2, agent: kill}]\n";
        let cases = parse("group", text).unwrap();
        let pod = &cases[0].objects[0];
        assert_eq!(pod["metadata"], json!({"name": "p", "labels": {"a": "b"}}));
        assert_eq!(
            pod["spec"],
            json!({
                "terminationGracePeriodSeconds": 2,
                "containers": [{
                    "name": "c", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", "exit 1"],
                }],
            })
        );
        assert_eq!(cases[0].steps[0].at, Duration::from_millis(1500));
        assert_eq!(cases[0].agent_schedule().len(), 1);
    }

    #[test]
    fn what_nobody_knows_is_refused_with_the_name_of_its_case() {
        let cases = [
            ("seconds: 3\n  pod: {}\n  stepps: []", "unknown fields [\"stepps\"]"),
            ("pod: {}", "`seconds` is missing"),
            ("seconds: 3", "nothing happens"),
            ("seconds: 3\n  steps: [{at: 1, agent: dance}]", "an agent cannot dance"),
            (
                "seconds: 3\n  steps: [{at: 2, delete: p}, {at: 1, delete: p}]",
                "not in the order of time",
            ),
        ];
        for (rest, expected) in cases {
            let error = parse("g", &format!("cases:\n- name: odd\n  {rest}\n")).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.starts_with("case odd: ") && text.contains(expected), "{text}");
        }
    }

    #[test]
    fn every_case_of_the_repository_can_be_read() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
        assert!(read_all(&directory).unwrap().len() >= 47);
    }
}
