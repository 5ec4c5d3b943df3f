use std::collections::BTreeMap;

use super::*;

struct Files(BTreeMap<&'static str, &'static str>);

impl ReadFile for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = self.0.get(path.to_str().unwrap_or_default());
        let text = text.ok_or(io::ErrorKind::NotFound)?;
        Ok(text.as_bytes().to_vec())
    }
}

fn files() -> Files {
    Files(BTreeMap::from([
        ("/etc/k/ca.crt", "AUTHORITY"),
        ("/etc/k/me.crt", "ME"),
        ("/abs/me.key", "KEY"),
        ("/etc/k/token", "secret"),
    ]))
}

fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://1.2.3.4:6443/', {cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

fn read(text: &str) -> Result<Access, KubeconfigError> {
    resolve("/etc/k/kubeconfig", text, Path::new("/etc/k"), &files())
}

#[test]
fn files_are_read_and_data_wins_over_them() {
    let check = |cluster: &str, user: &str, trust: Trust, credentials: Credentials| {
        let access = read(&config(cluster, user)).unwrap();
        assert_eq!(access.server, "https://1.2.3.4:6443");
        assert!(access.trust == trust, "{cluster}");
        assert!(access.credentials == credentials, "{user}");
    };
    let authority = |text: &str| Trust::Authorities(text.as_bytes().to_vec());
    check(
        "certificate-authority: ca.crt",
        "client-certificate: me.crt, client-key: /abs/me.key",
        authority("AUTHORITY"),
        Credentials::Certificate {
            certificate: b"ME".to_vec(),
            key: b"KEY".to_vec(),
            file: Some(PathBuf::from("/etc/k/me.crt")),
        },
    );
    check(
        "certificate-authority: nowhere.crt, certificate-authority-data: T1RIRVI=",
        "token: abc",
        authority("OTHER"),
        Credentials::Token("abc".to_owned()),
    );
    check(
        "insecure-skip-tls-verify: true",
        "token: abc, tokenFile: token",
        Trust::Anybody,
        Credentials::TokenFile(PathBuf::from("/etc/k/token")),
    );
    check("certificate-authority: ca.crt", "", authority("AUTHORITY"), Credentials::Anonymous);
}

#[test]
fn json_is_as_good_as_yaml() {
    let text = r#"{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k"}}],
        "clusters":[{"name":"k","cluster":{"server":"https://h","certificate-authority-data":"QQ==","tls-server-name":"n"}}]}"#;
    let access = read(text).unwrap();
    assert_eq!(access.server_name.as_deref(), Some("n"));
}

#[test]
fn errors_name_file_field_and_value() {
    let check = |text: &str, message: &str| {
        let error = read(text).err().expect(message);
        assert_eq!(error.to_string(), format!("/etc/k/kubeconfig: {message}"));
    };
    let certificate = "use a client certificate, a token or --bootstrap-kubeconfig";
    check(
        &config("proxy-url: 'http://p'", ""),
        r#"clusters[k].cluster.proxy-url: "http://p" is not supported; give an address that can be reached directly"#,
    );
    check(
        &config("certificate-authority: ca.crt", "exec: {command: aws}"),
        r#"users[u].user.exec.apiVersion: "": must be client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1"#,
    );
    check(
        &config("certificate-authority: ca.crt", "auth-provider: {name: gcp}"),
        &format!(r#"users[u].user.auth-provider: "gcp" is not supported; {certificate}"#),
    );
    check(
        &config("certificate-authority: gone.crt", ""),
        r#"clusters[k].cluster.certificate-authority: read "/etc/k/gone.crt""#,
    );
    check(
        &config("certificate-authority-data: '%'", ""),
        r#"clusters[k].cluster.certificate-authority-data: "<data>": Invalid symbol 37, offset 0."#,
    );
    check(
        &config("certificate-authority: ca.crt", "client-key: /abs/me.key"),
        r#"users[u].user.client-certificate: "": missing beside client-key"#,
    );
    check(
        "current-context: nobody",
        r#"current-context: "nobody": there is no entry of that name"#,
    );
    check(
        &config("certificate-authority: ca.crt", "").replace("https://1.2.3.4:6443/", "ftp://x"),
        r#"clusters[k].cluster.server: "ftp://x": expected https://HOST:PORT"#,
    );
}

#[test]
fn what_is_written_after_joining_can_be_read_again() {
    let bootstrap = read(&config("certificate-authority: ca.crt", "token: abc")).unwrap();
    let text = write_bootstrapped(&bootstrap, "/etc/k/me.crt");
    assert!(text.contains("current-context: default-context"), "{text}");
    assert!(text.contains("certificate-authority: /etc/k/ca.crt"), "{text}");
    assert!(!text.contains("token"), "{text}");
    let again = read(&text).unwrap();
    assert!(matches!(again.credentials, Credentials::Certificate { .. }));
    assert!(again.trust == bootstrap.trust);
}
