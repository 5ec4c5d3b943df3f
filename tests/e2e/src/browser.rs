//! A headless browser that is driven: pages are opened at a size and in a colour scheme, keys are
//! pressed, and the page is asked what it shows.
//!
//! Speaks Chromium's own protocol over the two pipes of `--remote-debugging-pipe`: JSON messages,
//! each ended by a zero byte. In: a program, and a directory for its profile. Out: values of
//! expressions, and pictures. Refuses: outliving its owner.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrolet_lab::wait_until;
use serde_json::{Value, json};

use crate::cases::SOON;

/// How long the browser may take for one answer. Its first one takes a start, which on a busy
/// machine is long.
const PATIENCE: Duration = Duration::from_secs(120);

/// What somebody looks with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) is_phone: bool,
    pub(crate) is_dark: bool,
}

impl View {
    pub(crate) const DESK: View =
        View { width: 1280, height: 1300, is_phone: false, is_dark: false };
    pub(crate) const PHONE: View = View { width: 360, height: 780, is_phone: true, is_dark: false };

    pub(crate) fn dark(self) -> View {
        View { is_dark: true, ..self }
    }
}

/// A key that is no letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Tab,
    Enter,
    Escape,
    Slash,
}

/// One browser with one page.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    heard: Receiver<Value>,
    n_asked: u64,
    /// The page's name in messages; none before there is a page.
    page: Option<String>,
}

impl Browser {
    pub(crate) fn start(program: &Path, profile: &Path) -> Result<Browser> {
        // The protocol's pipes are descriptors 3 and 4, which only a shell can give it.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" 3<&0 4>&1 >/dev/null", "sh"])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking"])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().context("start the browser")?;
        let input = child.stdin.take().context("its input is piped")?;
        let output = child.stdout.take().context("its output is piped")?;
        let (say, heard) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice::<Value>(&message) else {
                    continue;
                };
                if say.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser { child, input, heard, n_asked: 0, page: None };
        let made = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let wanted = json!({"targetId": made["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", wanted)?;
        let page = attached["sessionId"].as_str().context("there is no page")?;
        browser.page = Some(page.to_owned());
        Ok(browser)
    }

    /// Opens an address afresh.
    pub(crate) fn open(&mut self, view: View, address: &str) -> Result<()> {
        let size = json!({
            "width": view.width,
            "height": view.height,
            "deviceScaleFactor": 1,
            "mobile": view.is_phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        // Nobody else has the keyboard.
        let focus = json!({"enabled": true});
        self.call("Emulation.setFocusEmulationEnabled", focus)?;
        let scheme = if view.is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}))?;
        for url in ["about:blank", address] {
            let gone = self.call("Page.navigate", json!({"url": url}))?;
            ensure!(gone["errorText"].is_null(), "{url}: {}", gone["errorText"]);
        }
        let place = address.split('#').next().unwrap_or_default();
        self.wait(&format!(
            "location.href.startsWith('{place}') && document.readyState === 'complete'"
        ))
    }

    /// What an expression is.
    pub(crate) fn ask(&mut self, expression: &str) -> Result<Value> {
        let wanted = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", wanted)?;
        let thrown = &answer["exceptionDetails"];
        ensure!(thrown.is_null(), "{expression}: {thrown}");
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) -> Result<()> {
        wait_until(expression, SOON, || {
            let is_true = self.ask(expression)? == Value::Bool(true);
            Ok(is_true.then_some(()))
        })
        .with_context(|| match self.ask("document.body.innerText") {
            Ok(text) => format!("the page shows {text}"),
            Err(error) => format!("{error:#}"),
        })
    }

    /// Fails unless an expression is true now: for what must hold at every moment, and nothing has
    /// to become.
    pub(crate) fn expect(&mut self, expression: &str) -> Result<()> {
        let is = self.ask(expression)?;
        ensure!(is == Value::Bool(true), "{expression} is {is}");
        Ok(())
    }

    /// Presses a key and lets it go.
    pub(crate) fn press(&mut self, key: Key) -> Result<()> {
        let (name, code, number, text) = match key {
            Key::Tab => ("Tab", "Tab", 9, ""),
            Key::Enter => ("Enter", "Enter", 13, "\r"),
            Key::Escape => ("Escape", "Escape", 27, ""),
            Key::Slash => ("/", "Slash", 191, "/"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({"type": kind, "key": name, "code": code, "windowsVirtualKeyCode": number});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Writes a text where the cursor is.
    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({"text": text}))?;
        Ok(())
    }

    /// Puts a picture of what is seen into a file.
    pub(crate) fn shoot(&mut self, file: &Path) -> Result<()> {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        let data = picture["data"].as_str().context("there is no picture")?;
        let bytes = STANDARD.decode(data).context("read the picture")?;
        ensure!(
            bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000,
            "it is a picture of nothing"
        );
        std::fs::write(file, bytes).with_context(|| format!("write {}", file.display()))
    }

    fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.n_asked += 1;
        let id = self.n_asked;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(page) = &self.page {
            message["sessionId"] = page.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).context("ask the browser")?;
        self.input.flush()?;
        loop {
            let heard = self.heard.recv_timeout(PATIENCE);
            let mut heard = heard.with_context(|| format!("the browser's answer to {method}"))?;
            // Others are news that nobody asked for.
            if heard["id"] == id {
                if heard["error"].is_object() {
                    bail!("{method}: {}", heard["error"]);
                }
                return Ok(heard["result"].take());
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It is ours and must not outlive us; one that has ended already is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
