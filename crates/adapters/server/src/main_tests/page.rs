//! The node's page on the main listener: what it sends, and that it costs nothing while nobody
//! looks.

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::rig::{Rig, Wish, read_all, split};

#[tokio::test]
async fn nothing_is_read_while_nobody_looks() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    for path in ["/page/", "/pods", "/healthz"] {
        let (status, _) = rig.ask(Some(&admin), "GET", path, "").await;
        assert_eq!(status, 200, "{path}");
    }
    assert_eq!(rig.usage.n_readings(), 0, "nobody has asked for figures");
    let (status, text) = rig.ask(Some(&admin), "GET", "/page/data", "").await;
    assert_eq!(status, 200);
    assert!(rig.usage.n_readings() > 0, "now somebody has");
    let data: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(data["pods"][0]["name"], "web");
    assert_eq!(data["stats"], Value::Null, "figures that cannot be read");
}

#[tokio::test]
async fn the_page_may_reach_nothing_but_the_node() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
    let request = "GET /page/ HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let (status, head, body) = split(&read_all(&mut stream).await);
    assert_eq!(status, 200);
    let head = head.to_ascii_lowercase();
    for part in [
        "content-security-policy: default-src 'none'; connect-src 'self'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(head.contains(part), "{part} is not in {head}");
    }
    assert!(body.contains("<script>") && !body.contains(" src="));
    // Somebody without rights sees neither the page nor what it shows.
    let nobody = rig.authority.client("nobody", &[]);
    for path in ["/page/", "/page/data", "/page/logs/default/web/main"] {
        assert_eq!(rig.ask(Some(&nobody), "GET", path, "").await.0, 403, "{path}");
        assert_eq!(rig.ask(None, "GET", path, "").await.0, 401, "{path}");
    }
}
