use proptest::prelude::*;

use super::*;

const NODE: Node = Node { arch: Arch::X8664, kernel: (6, 1), capabilities: 1 << 21 };

fn capability(name: &str) -> Option<u64> {
    match name {
        "CAP_SYS_ADMIN" => Some(1 << 21),
        "CAP_BPF" => Some(1 << 39),
        _ => None,
    }
}

fn read(text: &str) -> Result<Profile, String> {
    let read = Document::parse(text.as_bytes()).and_then(|it| it.resolve(NODE, capability));
    read.map_err(|it| it.to_string())
}

#[test]
fn a_profile_of_dockers_form_is_read() {
    let text = r#"{
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "comment": "passed over",
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]},
            {"architecture": "SCMP_ARCH_S390X", "subArchitectures": null}
        ],
        "syscalls": [
            {"names": ["read", "riscv_flush_icache"], "action": "SCMP_ACT_ALLOW", "args": null,
             "includes": {}, "excludes": {}},
            {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}},
            {"names": ["new"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "6.2"}},
            {"names": ["arm"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["arm64"]}},
            {"name": "clone", "action": "SCMP_ACT_ALLOW", "args": [
                {"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"},
                {"index": 0, "value": 7, "op": "SCMP_CMP_NE"}]}
        ]}"#;
    let profile = read(text).unwrap();
    assert_eq!(profile.default, Action::Errno(38));
    assert_eq!(profile.arches, [Arch::X8664, Arch::X86, Arch::X32]);
    assert_eq!(profile.flags, 4);
    let names: Vec<&str> = profile.rules.iter().map(|it| it.names[0].as_str()).collect();
    assert_eq!(names, ["read", "mount", "ptrace", "clone"]);
    let condition = |comparison| Condition { argument: 0, comparison };
    let both = [
        condition(Comparison::MaskedEqual { mask: 0x7e02_0000, value: 0 }),
        condition(Comparison::NotEqual(7)),
    ];
    assert_eq!(profile.rules[3].conditions, both);
}

#[test]
fn a_profile_of_the_ocis_form_is_read() {
    let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86"],
        "flags": ["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_TSYNC"],
        "syscalls": [{"names": ["chmod"], "action": "SCMP_ACT_KILL_PROCESS"}]}"#;
    let profile = read(text).unwrap();
    assert_eq!(profile.arches, [Arch::X8664, Arch::X86]);
    assert_eq!((profile.flags, profile.rules[0].action), (2, Action::KillProcess));
    let none = read(r#"{"defaultAction": "SCMP_ACT_LOG", "flags": []}"#).unwrap();
    assert_eq!((none.flags, none.arches), (0, vec![Arch::X8664]));
}

#[test]
fn an_error_names_field_and_value() {
    let cases = [
        ("", ".: EOF while parsing a value at line 1 column 0"),
        ("{}", ".: missing field `defaultAction` at line 1 column 2"),
        (r#"{"defaultAction": "SCMP_ACT_ALLOW"} x"#, ".: trailing characters at line 1 column 37"),
        (r#"{"defaultAction": "ALLOW"}"#, "defaultAction: unknown action \"ALLOW\""),
        (
            r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 4096}"#,
            "defaultAction: no error number: \"4096\"",
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#,
            "defaultAction: not supported: \"SCMP_ACT_NOTIFY\"",
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/x"}"#,
            "listenerPath: notification is not supported: \"/x\"",
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["X86"]}"#,
            "architectures[0]: no architecture: \"X86\"",
        ),
        (r#"{"defaultAction": "SCMP_ACT_ALLOW", "flags": ["X"]}"#, "flags[0]: unknown flag \"X\""),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["a"], "action": 7}]}"#,
            "syscalls[0].action: invalid type: integer `7`, expected a string at line 1 column 77",
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": [], "action": "SCMP_ACT_LOG",
                "args": [{"index": 6, "value": 1, "op": "SCMP_CMP_EQ"}]}]}"#,
            "syscalls[0].args[0].index: no argument: \"6\"",
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": [], "action": "SCMP_ACT_LOG",
                "args": [{"index": 5, "value": 1, "op": "=="}]}]}"#,
            "syscalls[0].args[0].op: unknown comparison \"==\"",
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": [], "action": "SCMP_ACT_LOG",
                "includes": {"minKernel": "6"}}]}"#,
            "syscalls[0].includes.minKernel: no version of a kernel: \"6\"",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text).unwrap_err(), expected, "{text}");
    }
    let large = vec![b' '; MAX_DOCUMENT + 1];
    assert_eq!(Document::parse(&large).unwrap_err(), DocumentError::TooLarge);
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_read_or_refused(bytes: Vec<u8>) {
        let _whatever = Document::parse(&bytes).map(|it| it.resolve(NODE, capability));
    }

    /// Pieces of profiles in any order: what is read can be compiled, or says that it is too large.
    #[test]
    fn pieces_of_profiles_are_read_or_refused(pieces in proptest::collection::vec(
        proptest::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"defaultAction\"", "\"SCMP_ACT_ERRNO\"", "\"syscalls\"",
            "\"names\"", "\"read\"", "\"action\"", "\"args\"", "\"index\"", "0", "\"value\"",
            "18446744073709551615", "-1", "1e99", "\"op\"", "\"SCMP_CMP_GT\"", "null", "\"includes\"",
            "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[",
            "{\"names\":[\"read\"],\"action\":\"SCMP_ACT_ALLOW\"}", "]}",
        ]), 0..12)) {
        let text = pieces.concat();
        if let Ok(profile) = read(&text) {
            prop_assert!(profile.compile().is_ok());
        }
    }
}
