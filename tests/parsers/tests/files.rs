//! Files that others write, or that an earlier life wrote: state, logins, tables of the kernel.

use std::{io, path::Path};

use ferrolet_cluster::kubeconfig;
use ferrolet_config::{NamedText, RawConfig};
use ferrolet_devices::Checkpoint;
use ferrolet_images::{DockerConfig, ImageName, provider, record};
use ferrolet_linux::mountinfo;
use ferrolet_parsers_tests::survive;
use ferrolet_placement::{
    checkpoint::{decode_cpus, decode_memory, encode_no_cpus, encode_no_memory},
    cpu::CpuSet,
};
use ferrolet_ports::ReadFile;
use ferrolet_spec::parse_resolv_conf;
use ferrolet_types::{Quantity, format_go_duration, parse_go_duration};
use serde_json::Value;

const TABLE: &[u8] = b"22 28 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n\
    28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
    95 28 0:44 /a\\040b /var/lib/kubelet/pods/u/volumes/x\\134y rw - tmpfs tmpfs rw,size=64k\n";

#[test]
fn a_damaged_line_of_the_table_of_mounts_costs_no_other() {
    let whole = mountinfo::parse(TABLE);
    assert_eq!(whole.len(), 3);
    survive("mountinfo", &[TABLE], |text| {
        let n_lines = text.split(|it| *it == b'\n').count();
        assert!(mountinfo::parse(text).len() <= n_lines);
        let together = [text, b"\n", TABLE].concat();
        assert!(mountinfo::parse(&together).ends_with(&whole));
    });
}

/// Files of before there were sums have none, and upstream takes them as they are.
fn has_sum(text: &[u8]) -> bool {
    let file: Value = serde_json::from_slice(text).unwrap_or_default();
    file["checksum"].as_u64().is_some_and(|sum| sum != 0)
}

/// Whoever has been damaged is refused: what is taken says what was written.
#[test]
fn damaged_state_is_refused_or_says_what_it_said() {
    let devices = br#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"example.com/a":["1","2"]}},"Checksum":0}"#;
    let refused = Checkpoint::decode(devices);
    assert!(refused.is_err(), "the sum is wrong");
    let written = Checkpoint::default().encode();
    survive("devices", &[&written, devices], |text| {
        if let Ok(taken) = Checkpoint::decode(text) {
            assert_eq!(Checkpoint::decode(&taken.encode()).as_ref(), Ok(&taken));
        }
    });
    let (cpus, memory) = (encode_no_cpus(), encode_no_memory());
    let (no_cpus, no_memory) = (decode_cpus(&cpus).unwrap(), decode_memory(&memory).unwrap());
    survive("cpu_manager_state", &[&cpus], |text| match decode_cpus(text) {
        Ok(taken) if has_sum(text) => assert_eq!(taken, no_cpus),
        _either_way => {}
    });
    survive("memory_manager_state", &[&memory], |text| match decode_memory(text) {
        Ok(taken) if has_sum(text) => assert_eq!(taken, no_memory),
        _either_way => {}
    });
}

#[test]
fn logins_and_plugins_answers_are_read_or_refused() {
    let login = br#"{"auths":{"https://a.test/v1/":{"auth":"dXNlcjpwYXNz"},"b.test":{"username":"u","password":"p"}}}"#;
    assert!(DockerConfig::parse_json(login).is_ok());
    survive("config.json", &[login], |text| {
        let _either_way = (DockerConfig::parse_json(text), DockerConfig::parse_old(text));
    });
    let config = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: p\n  \
        matchImages: [\"*.test/*\"]\n  defaultCacheDuration: 1h0m\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n";
    let known = provider::parse_config(config).unwrap().remove(0);
    survive("credential providers", &[config.as_bytes()], |text| {
        let _either_way = provider::parse_config(&String::from_utf8_lossy(text));
    });
    let answer = br#"{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType":"Image","cacheDuration":"6h0m0s","auth":{"a.test/x":{"username":"u","password":"p"}}}"#;
    let request = provider::Request { image: "a.test/x".to_owned(), account: None };
    assert!(provider::parse_answer(&known, &request, answer).is_ok());
    survive("a plugin's answer", &[answer], |text| {
        let _either_way = provider::parse_answer(&known, &request, text);
    });
    survive("pull records", &[br#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"a"}"#], |text| {
        let _either_way = (record::decode_intent(text), record::decode_record(text));
    });
}

/// Whatever a kubeconfig names is there, and is nonsense.
struct Nonsense;

impl ReadFile for Nonsense {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(b"nonsense".to_vec())
    }
}

#[test]
fn kubeconfigs_and_configurations_are_read_or_refused() {
    let config = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster: {server: \"https://10.0.0.1:6443\"}\n\
        contexts:\n- name: c\n  context: {cluster: k, user: u}\nusers:\n- name: u\n  user: {token: secret}\n";
    let read = |text: &str| kubeconfig::resolve("k", text, Path::new("/"), &Nonsense);
    assert!(read(config).is_ok());
    survive("kubeconfig", &[config.as_bytes()], |text| {
        let _either_way = read(&String::from_utf8_lossy(text));
    });
    let config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\n\
        evictionHard: {memory.available: 5%}\nfeatureGates: {SwapSupport: true}\nstaticPodPath: ../m\n";
    let read = |text: &str| {
        RawConfig::decode(&NamedText { name: "/etc/c.yaml".to_owned(), text: text.to_owned() })
    };
    read(config).unwrap();
    survive("configuration", &[config.as_bytes()], |text| {
        let text = String::from_utf8_lossy(text);
        assert_eq!(read(&text).is_ok(), read(&text).is_ok());
    });
}

#[test]
fn small_words_mean_the_same_once_written() {
    let quantities: [&[u8]; 6] = [b"1", b"250m", b"1.5Gi", b"12e6", b"-3k", b"9223372036854775807"];
    survive("quantities", &quantities, |text| {
        let text = String::from_utf8_lossy(text);
        if let Ok(taken) = Quantity::parse(&text) {
            // The amount; what is too large for its unit is written in another one.
            let again = Quantity::parse(&taken.to_string()).expect("what was written is read");
            assert!(again.minus(taken).is_zero(), "{text:?}: {taken} and {again}");
        }
    });
    let durations: [&[u8]; 4] = [b"1h2m3.5s", b"100ms", b"0", b"1.5us"];
    survive("durations", &durations, |text| {
        let text = String::from_utf8_lossy(text);
        if let Ok(taken) = parse_go_duration(&text) {
            let again = parse_go_duration(&format_go_duration(taken));
            assert_eq!(again, Ok(taken), "{text:?}");
        }
    });
    survive("lists of processors", &[b"0-3,5,7-9", b"", b"12"], |text| {
        let text = String::from_utf8_lossy(text);
        if let Ok(taken) = CpuSet::parse(&text) {
            assert_eq!(CpuSet::parse(&taken.to_string()), Ok(taken), "{text:?}");
        }
    });
    let names: [&[u8]; 3] = [
        b"nginx",
        b"a.test:5000/b/c:v1",
        b"a/b@sha256:0123456789012345678901234567890123456789012345678901234567890123",
    ];
    survive("names of images", &names, |text| {
        let _either_way = ImageName::parse(&String::from_utf8_lossy(text));
    });
    let resolv = b"nameserver 10.0.0.1\nsearch a.test b.test\noptions ndots:5 edns0\n";
    survive("resolv.conf", &[resolv], |text| {
        let _either_way = parse_resolv_conf(&String::from_utf8_lossy(text));
    });
}
