//! One kubelet on a node of its own, ready to play cases: its containerd, its watch on pods, the
//! doors to the API server.
//!
//! Both kubelets get the same configuration, images and network. What a stage leaves behind goes
//! with the run.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferrolet_lab::cluster::{Access, Api, Watch};
use ferrolet_lab::image::{self, ImageSpec};
use ferrolet_lab::{Bench, Cluster, ClusterNode, Containerd, NodeOptions, Toolbox};
use serde_json::{Value, json};

use crate::case::{Action, Case};
use crate::normalise::Names;

/// What every stage stands on.
pub(crate) struct Scene<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) tools: &'a Toolbox,
    pub(crate) cluster: &'a Cluster,
    pub(crate) api: Api,
}

/// A Ready node.
pub(crate) struct Stage<'a> {
    pub(crate) scene: &'a Scene<'a>,
    pub(crate) node: ClusterNode,
    pub(crate) pods: Watch,
    containerd: Containerd,
}

const PATIENCE: Duration = Duration::from_secs(60);
/// A second image of the same program, for pods whose image is changed.
const OTHER_PAUSE: &str = "registry.k8s.io/pause:3.10.1";
/// Images with users, for pods that must not run as root.
const USERS: [(&str, &str); 2] =
    [("lab.local/user-number:1", "1000"), ("lab.local/user-name:1", "nobody")];

impl<'a> Stage<'a> {
    /// Starts `agent` as a node of this name and waits until it is Ready.
    pub(crate) fn start(scene: &'a Scene<'a>, name: &str, agent: &Path) -> Result<Stage<'a>> {
        let (bench, tools) = (scene.bench, scene.tools);
        let containerd = Containerd::start(bench, tools, &format!("containerd-{name}"))?;
        let mut images =
            vec![ImageSpec { name: OTHER_PAUSE.to_owned(), ..image::pause(&tools.pause)? }];
        for (name, user) in USERS {
            images.push(ImageSpec {
                name: name.to_owned(),
                user: user.to_owned(),
                ..image::busybox(&tools.busybox)?
            });
        }
        containerd.import(&images)?;
        let resolver = bench.directory("differential")?.join("resolv.conf");
        fs::write(&resolver, "nameserver 192.0.2.53\n")?;
        let mut options = NodeOptions::new(name, agent);
        options.configuration = json!({
            "clusterDNS": ["10.96.0.10"],
            "resolvConf": resolver,
            "maxPods": 500,
        });
        let access = Access::Certificate;
        let node = ClusterNode::prepare(bench, &containerd, scene.cluster, options, &access)?;
        let selector = format!("spec.nodeName={name}");
        let pods = Watch::open(scene.api, "/api/v1/pods", &selector)?;
        let mut stage = Stage { scene, node, pods, containerd };
        stage.node.node.launch()?;
        stage.node.wait_ready(scene.cluster)?;
        Ok(stage)
    }

    /// Ends the node and takes it out of the cluster.
    pub(crate) fn end(self, log: &Path) -> Result<()> {
        drop(self.pods);
        ferrolet_lab::process::keep(&self.node.node.log(), log)?;
        let path = self.node.path();
        self.containerd.destroy()?;
        self.node.node.destroy()?;
        self.scene.api.delete(&path)
    }

    /// What belongs to this run of a case in this namespace.
    pub(crate) fn names(&self, namespace: &str) -> Names {
        let node = &self.node.node;
        let place = |path: &Path, word: &str| (path.display().to_string(), word.to_owned());
        Names {
            node: node.name().to_owned(),
            node_ip: self.scene.bench.node_ip(),
            namespace: namespace.to_owned(),
            pod_network: format!("{}.", self.containerd.subnet()),
            places: vec![
                place(&node.root(), "ROOT"),
                place(node.directory(), "NODE_DIRECTORY"),
                place(self.containerd.directory(), "CONTAINERD"),
                (node.cgroup_root().to_owned(), String::new()),
            ],
        }
    }

    /// Makes namespaces that pods can be created in.
    pub(crate) fn create_namespaces(&self, names: &[String]) -> Result<()> {
        for name in names {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.scene.api.create("/api/v1/namespaces", &object)?;
        }
        for name in names {
            for part in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
                let path = format!("/api/v1/namespaces/{name}/{part}");
                self.scene.cluster.wait(&path, PATIENCE, |it| it.find(&path))?;
            }
        }
        Ok(())
    }

    /// Creates what a case begins with; gives what the API server refused.
    pub(crate) fn begin(&self, case: &Case, namespace: &str) -> Result<Vec<String>> {
        let mut said = Vec::new();
        for object in &case.objects {
            said.extend(self.create(namespace, object)?);
        }
        Ok(said)
    }

    /// Performs one step of a case; gives what the API server refused.
    pub(crate) fn act(
        &mut self,
        case: &Case,
        namespace: &str,
        action: &Action,
    ) -> Result<Option<String>> {
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        match action {
            Action::Apply(object) => self.apply(namespace, object),
            Action::Delete { pod, grace } => {
                let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace});
                let pod = pod.replace("NODE", self.node.node.name());
                self.ask("DELETE", &format!("{pods}/{pod}"), &options)
            }
            Action::Remove(path) => {
                let path = format!("/api/v1/namespaces/{namespace}/{path}");
                self.ask("DELETE", &path, &json!({}))
            }
            Action::Patch { pod, subresource, change } => {
                let path = format!("{pods}/{pod}/{subresource}");
                self.ask("PATCH", path.trim_end_matches('/'), change)
            }
            Action::PutStatic(pod) => {
                let mut pod = pod.clone();
                pod["metadata"]["namespace"] = json!(namespace);
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let file = manifest_file(case, name);
                self.node.node.put_manifest(&file, &serde_json::to_string_pretty(&pod)?)?;
                Ok(None)
            }
            Action::RemoveStatic(name) => {
                self.node.node.remove_manifest(&manifest_file(case, name))?;
                Ok(None)
            }
            // The whole round's business.
            Action::KillAgent | Action::StartAgent => Ok(None),
        }
    }

    /// Takes away what a case has on the node; the API server's objects stay in their namespace.
    pub(crate) fn clear(&mut self, case: &Case, namespace: &str) -> Result<()> {
        for step in &case.steps {
            if let Action::PutStatic(pod) = &step.action {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let file = manifest_file(case, name);
                if self.node.node.manifest_path(&file).exists() {
                    self.node.node.remove_manifest(&file)?;
                }
            }
        }
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        self.ask("DELETE", &format!("/api/v1/namespaces/{namespace}/pods"), &options)?;
        Ok(())
    }

    /// Events of a namespace that a kubelet sent.
    pub(crate) fn kubelet_events(&self, namespace: &str) -> Result<Vec<Value>> {
        let list = self.scene.cluster.get(&format!("/api/v1/namespaces/{namespace}/events"))?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let is_kubelets = |it: &Value| {
            it["source"]["component"] == "kubelet" || it["reportingComponent"] == "kubelet"
        };
        Ok(all.into_iter().filter(is_kubelets).collect())
    }

    fn create(&self, namespace: &str, object: &Value) -> Result<Option<String>> {
        let mut object = object.clone();
        let collection = collection(&object, namespace)?;
        object["metadata"]["namespace"] = json!(namespace);
        // Past the scheduler: what the kubelet itself refuses is part of the cases.
        if object["kind"] == "Pod" && object["spec"]["nodeName"].is_null() {
            object["spec"]["nodeName"] = json!(self.node.node.name());
        }
        self.ask("POST", &collection, &object)
    }

    fn apply(&self, namespace: &str, object: &Value) -> Result<Option<String>> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{}/{name}", collection(object, namespace)?);
        match self.scene.cluster.find(&path)? {
            None => self.create(namespace, object),
            Some(_) => self.ask("PATCH", &path, object),
        }
    }

    /// A request; a refusal is part of the answer.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Option<String>> {
        let answer = self.scene.api.ask(method, path, &body.to_string())?;
        ensure!(answer.status < 500, "{method} {path}: {} {:.400}", answer.status, answer.body);
        if answer.status < 300 {
            return Ok(None);
        }
        let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let message = said["message"].as_str().unwrap_or(&answer.body);
        Ok(Some(format!("{method} {}: {message}", answer.status)))
    }
}

fn manifest_file(case: &Case, name: &str) -> String {
    format!("{}-{name}.yaml", case.name)
}

/// Where objects of a kind are created.
fn collection(object: &Value, namespace: &str) -> Result<String> {
    let kind = object["kind"].as_str().context("an object without kind")?;
    let plural = match kind {
        "Pod" => "pods",
        "ConfigMap" => "configmaps",
        "Secret" => "secrets",
        "Service" => "services",
        "ServiceAccount" => "serviceaccounts",
        "PersistentVolumeClaim" => "persistentvolumeclaims",
        other => anyhow::bail!("cases know no objects of kind {other}"),
    };
    Ok(format!("/api/v1/namespaces/{namespace}/{plural}"))
}
