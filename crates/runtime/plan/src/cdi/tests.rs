use ferrolet_runtime_protocol::launch::{Device, Mount, Process};

use super::*;

const GPU: &str = r#"
cdiVersion: "0.6.0"
kind: vendor.example/gpu
containerEdits:
  env: [DRIVER=7]
  mounts:
  - {hostPath: /opt/driver, containerPath: /usr/lib/driver/, options: [ro, nosuid, nodev, rbind]}
devices:
- name: "0"
  annotations: {note: first}
  containerEdits:
    env: ["GPU=0"]
    additionalGids: [44, 0]
    deviceNodes:
    - {path: /dev/gpu0, hostPath: /dev/dri/card0, fileMode: 0o660, gid: 44, permissions: rw}
- name: "1"
  containerEdits:
    env: ["GPU=1"]
"#;

fn catalogue(files: &[(&str, &str)]) -> Catalogue {
    let mut catalogue = Catalogue::default();
    let files: Vec<_> =
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
    catalogue.add_directory(&files);
    catalogue
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

fn before(edits: &Edits) -> Result<cri::ContainerConfig, Refusal> {
    let mut config = cri::ContainerConfig::default();
    edits.before(&mut config)?;
    Ok(config)
}

#[test]
fn a_container_gets_what_its_devices_say_and_what_their_file_says_once() {
    let both = names(&["vendor.example/gpu=0", "vendor.example/gpu=1"]);
    let edits = catalogue(&[("gpu.yaml", GPU)]).edits(&both).unwrap();
    let config = before(&edits).unwrap();
    let env: Vec<_> = config
        .envs
        .iter()
        .map(|it| format!("{}={}", it.key, String::from_utf8_lossy(&it.value)))
        .collect();
    assert_eq!(env, ["DRIVER=7", "GPU=0", "GPU=1"]);
    assert_eq!(config.mounts.len(), 1);
    assert!(config.mounts[0].readonly);
    let device = &config.devices[0];
    let shown = (&*device.container_path, &*device.host_path, &*device.permissions);
    assert_eq!(shown, ("/dev/gpu0", "/dev/dri/card0", "rw"));

    let mut launch = LaunchSpec {
        devices: vec![Device { path: "/dev/gpu0".to_owned(), mode: 0o600, ..Device::default() }],
        mounts: vec![Mount { target: "/usr/lib/driver".to_owned(), ..Mount::default() }],
        process: Some(Process::default()),
        ..LaunchSpec::default()
    };
    edits.after(&mut launch).unwrap();
    assert_eq!((launch.devices[0].mode, launch.devices[0].gid), (0o660, 44));
    assert!(launch.mounts[0].nosuid && launch.mounts[0].nodev && !launch.mounts[0].noexec);
    assert_eq!(launch.process.unwrap().user.unwrap().supplemental_groups, [44]);
}

#[test]
fn a_device_that_no_file_has_is_named_with_the_files_that_cannot_be_read() {
    let broken = "{\"cdiVersion\": \"0.6.0\", \"kind\": \"v/c\", \"surprise\": 1}";
    let catalogue = catalogue(&[("gpu.yaml", GPU), ("bad.json", broken)]);
    let error = catalogue.edits(&names(&["v/c=x", "vendor.example/gpu=0"])).unwrap_err();
    assert_eq!(error.names, ["v/c=x"]);
    let text = error.to_string();
    assert!(text.starts_with("unresolvable CDI devices v/c=x; bad.json: "), "{text}");
    assert!(text.contains("surprise"), "{text}");
}

#[test]
fn a_later_directory_counts_and_two_files_of_one_leave_it_open() {
    let file = |value: &str| {
        format!(
            "{{\"cdiVersion\": \"0.3.0\", \"kind\": \"v/c\", \"devices\": [{{\"name\": \"d\", \
             \"containerEdits\": {{\"env\": [\"A={value}\"]}}}}]}}"
        )
    };
    let bytes = |name: &str, value: &str| (name.to_owned(), file(value).into_bytes());
    let mut catalogue = Catalogue::default();
    catalogue.add_directory(&[bytes("a", "etc")]);
    catalogue.add_directory(&[bytes("b", "run")]);
    let edits = catalogue.edits(&names(&["v/c=d"])).unwrap();
    assert_eq!(before(&edits).unwrap().envs[0].value, b"run");
    catalogue.add_directory(&[bytes("c", "1"), bytes("d", "2")]);
    let error = catalogue.edits(&names(&["v/c=d"])).unwrap_err();
    assert!(error.to_string().contains("another file"), "{error}");
}

#[test]
fn what_is_not_done_for_devices_is_refused_in_words() {
    let with = |edits: &str| {
        let text = format!(
            "{{\"cdiVersion\": \"1\", \"kind\": \"v/c\", \"devices\": [{{\"name\": \"d\", \
             \"containerEdits\": {edits}}}]}}"
        );
        before(&catalogue(&[("f", &text)]).edits(&names(&["v/c=d"])).unwrap()).unwrap_err()
    };
    let mount = |rest: &str| {
        format!("{{\"mounts\": [{{\"hostPath\": \"/a\", \"containerPath\": \"/b\", {rest}}}]}}")
    };
    let cases = [
        ("{\"hooks\": [{\"path\": \"/bin/x\"}]}".to_owned(), "a hook of a CDI device"),
        ("{\"intelRdt\": {}}".to_owned(), "a network device or a class of RDT by CDI"),
        ("{\"env\": [\"NOTHING\"]}".to_owned(), "a variable without a value by CDI"),
        (mount("\"type\": \"tmpfs\""), "a mount by CDI that is no bind mount"),
        (mount("\"options\": [\"idmap\"]"), "an option of a mount by CDI"),
    ];
    for (edits, expected) in cases {
        assert_eq!(with(&edits), Refusal::Unsupported(expected), "{edits}");
    }
}

/// Every file cut at every place and with every byte changed is read or refused, and nothing else happens.
#[test]
fn no_file_however_broken_is_more_than_a_problem() {
    let bytes = GPU.as_bytes();
    let check = |bytes: &[u8]| {
        let mut catalogue = Catalogue::default();
        catalogue.add_directory(&[("f".to_owned(), bytes.to_vec())]);
        if let Ok(edits) = catalogue.edits(&names(&["vendor.example/gpu=0"])) {
            let _refused = before(&edits);
            let _refused = edits.after(&mut LaunchSpec::default());
        }
    };
    for end in 0..bytes.len() {
        check(&bytes[..end]);
    }
    for at in 0..bytes.len() {
        for byte in [b'{', b':', b'\n', b'&', b'*', 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] = byte;
            check(&changed);
        }
    }
    // Aliases that multiply, and nesting without end.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x]\n".to_owned();
    for n in 1..12 {
        let before = format!("*a{},", n - 1).repeat(9);
        bomb += &format!("a{n}: &a{n} [{before}]\n");
    }
    check(bomb.as_bytes());
    check("[".repeat(1 << 20).as_bytes());
}
