//! Plugins that are small scripts: what they were told is what they write down.

use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::attachment::HostPort;

struct Bench {
    root: tempfile::TempDir,
    cni: Cni,
}

const ID: &str = "0123456789abcdef";

fn bench() -> Bench {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for name in ["net.d", "bin"] {
        fs::create_dir(at(name)).unwrap();
    }
    let cni = Cni::new(CniSettings {
        config_dir: at("net.d"),
        plugin_dirs: vec![at("bin")],
        cache_dir: at("cache"),
        namespace_dir: at("netns"),
        patience: Duration::from_secs(20),
    });
    Bench { root, cni }
}

impl Bench {
    fn plugin(&self, name: &str, script: &str) {
        let path = self.root.path().join("bin").join(name);
        let log = self.root.path().join("log");
        let script = format!(
            "#!/bin/sh\nread input\necho \"{name} $CNI_COMMAND $CNI_IFNAME $CNI_ARGS $input\" >> {}\n{script}\n",
            log.display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn config(&self, text: &str) {
        fs::write(self.root.path().join("net.d/10-pods.conflist"), text).unwrap();
    }

    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn add(&self) -> Result<Attachment, SetupError> {
        let namespace = fs::File::open("/proc/self/ns/net").unwrap();
        let port = HostPort { container_port: 80, host_port: 8080, ..HostPort::default() };
        let request = SetupRequest {
            sandbox: ID.to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "1-2".to_owned(),
            ports: vec![port],
            annotations: Default::default(),
        };
        self.cni.add(&request, namespace.as_fd())
    }

    fn files(&self, directory: &str) -> usize {
        fs::read_dir(self.root.path().join(directory)).map_or(0, Iterator::count)
    }
}

const LIST: &str = r#"{"cniVersion":"1.0.0","name":"pods","plugins":[
    {"type":"first"},{"type":"second","capabilities":{"portMappings":true}}]}"#;
const RESULT: &str =
    r#"echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/16"},{"address":"fd00::5/64"}]}'"#;

/// Binding a namespace needs root.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: binding a namespace needs root");
    }
    is_root
}

#[test]
fn plugins_add_in_order_and_delete_in_reverse() {
    if !is_root() {
        return;
    }
    let bench = bench();
    bench.config(LIST);
    bench.plugin("first", RESULT);
    bench.plugin("second", RESULT);
    let attachment = bench.add().unwrap();
    assert_eq!(attachment.addresses, ["10.1.0.5", "fd00::5"]);
    assert_eq!(attachment.maker(), Maker::Cni);
    assert_eq!((bench.files("netns"), bench.files("cache")), (1, 1));
    bench.cni.check(ID).unwrap();
    // What made it counts, not what is configured now.
    bench.config("{}");
    bench.cni.delete(ID).unwrap();
    bench.cni.delete(ID).unwrap();
    assert_eq!((bench.files("netns"), bench.files("cache")), (0, 0));
    let log = bench.log();
    let commands: Vec<String> =
        log.iter().map(|it| it.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "first ADD eth0",
        "second ADD eth0",
        "first CHECK eth0",
        "second CHECK eth0",
        "second DEL eth0",
        "first DEL eth0",
    ];
    assert_eq!(commands, expected);
    assert!(log[0].contains("K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=0123456789abcdef"));
    assert!(!log[0].contains("prevResult") && !log[0].contains("runtimeConfig"), "{}", log[0]);
    assert!(log[1].contains(r#""prevResult":{"#) && log[1].contains(r#""hostPort":8080"#));
    assert!(log[5].contains(r#""prevResult":{"#), "{}", log[5]);
}

#[test]
fn a_plugin_that_refuses_is_quoted_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    let bench = bench();
    bench.config(LIST);
    bench.plugin("first", RESULT);
    let refusal = r#"[ "$CNI_COMMAND" = DEL ] || { echo '{"code":7,"msg":"no room","details":"in 10.1.0.0/16"}'; exit 1; }"#;
    bench.plugin("second", refusal);
    let error = bench.add().unwrap_err();
    let words = crate::network::chain(&error);
    assert_eq!(words, "connect pod by CNI: ADD by plugin second: no room; in 10.1.0.0/16");
    assert_eq!((bench.files("netns"), bench.files("cache")), (0, 0));
    assert!(bench.log().iter().any(|it| it.starts_with("first DEL")));
}

#[test]
fn what_no_record_names_is_deleted() {
    if !is_root() {
        return;
    }
    let bench = bench();
    bench.config(LIST);
    bench.plugin("first", RESULT);
    bench.plugin("second", RESULT);
    bench.add().unwrap();
    assert!(bench.cni.collect(&BTreeSet::from([ID.to_owned()])).unwrap().is_empty());
    // After a reboot the namespace is gone, and the plugins' notes are not.
    cache::unbind(&cache::place(&bench.root.path().join("netns"), ID)).unwrap();
    assert_eq!(bench.cni.collect(&BTreeSet::new()).unwrap(), [ID]);
    assert_eq!(bench.files("cache"), 0);
    fs::write(bench.root.path().join("cache/broken.json"), "{").unwrap();
    assert_eq!(bench.cni.collect(&BTreeSet::new()).unwrap(), ["broken"]);
    assert_eq!(bench.files("cache"), 0);
}

#[test]
fn the_first_configuration_by_name_counts() {
    let bench = bench();
    assert_eq!(bench.cni.configuration().unwrap(), None);
    let write = |name: &str, text: &str| {
        fs::write(bench.root.path().join("net.d").join(name), text).unwrap();
    };
    write("README.txt", "no configuration");
    assert_eq!(bench.cni.configuration().unwrap(), None);
    write("20-b.conf", r#"{"name":"b","type":"x"}"#);
    write("10-a.json", "{");
    assert_eq!(bench.cni.configuration().unwrap().unwrap().name, "b");
    write("20-b.conf", "[]");
    let error = bench.cni.configuration().unwrap_err().to_string();
    assert!(error.contains("10-a.json"), "{error}");
}
