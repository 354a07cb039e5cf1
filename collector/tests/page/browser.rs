//! A headless Chromium, driven over two pipes.
//!
//! Problem: what a person does on a page (keys, clicks, sizes, themes) cannot be tested from outside of a browser.
//! Approach: Chromium serves its DevTools protocol on descriptors 3 and 4, JSON texts that end in a zero byte; a
//! shell puts our two pipes there. One thread reads; replies go to the caller of the command, events are kept by page.
//! Invariant: no step waits for a fixed time. Conditions are looked at inside the page every 10 ms until they are true,
//! and one that is not within 20 s fails the test with what the page shows.
//!
//! Source: https://chromedevtools.github.io/devtools-protocol/ (Target, Page, Runtime, Input, Emulation, Network, Log).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a reply may take: far beyond a busy machine, so that only a page that hangs fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Replies that are waited for, by the number of the call, and events by session.
#[derive(Default)]
struct Mail {
    replies: HashMap<u64, Sender<Value>>,
    events: HashMap<String, Vec<Value>>,
}

/// A running browser; dropping it ends it.
pub struct Browser {
    child: Child,
    to: Mutex<(ChildStdin, u64)>,
    mail: Arc<Mutex<Mail>>,
    reader: Option<JoinHandle<()>>,
    _profile: TempDir,
}

impl Browser {
    /// Returns the browser's path: `TICKWALK_CHROMIUM`, or a known name on the path.
    pub fn find() -> Option<PathBuf> {
        if let Some(path) = std::env::var_os("TICKWALK_CHROMIUM") {
            return Some(path.into());
        }
        let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .find(|candidate| candidate.is_file())
    }

    pub fn start(program: &Path) -> Browser {
        let profile = tempfile::tempdir().expect("temporary folder");
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "sh"])
            .arg(program)
            // Tests run as root in containers, where Chromium's own sandbox does not work; pages are ours alone.
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            // No request leaves the machine, and the test sees all requests of a page.
            .args(["--disable-quic", "--disable-background-networking", "--disable-component-update"])
            .args([
                "--disable-sync",
                "--disable-extensions",
                "--disable-default-apps",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let to = child.stdin.take().expect("piped");
        let from = child.stdout.take().expect("piped");
        let mail = Arc::new(Mutex::new(Mail::default()));
        let sorted = Arc::clone(&mail);
        let reader = std::thread::spawn(move || read(from, &sorted));
        Browser { child, to: Mutex::new((to, 0)), mail, reader: Some(reader), _profile: profile }
    }

    /// The reply to a call, be it a result or an error.
    fn ask(&self, session: Option<&str>, method: &str, parameters: &Value) -> Value {
        let (sender, receiver) = channel();
        {
            let mut to = self.to.lock();
            to.1 += 1;
            self.mail.lock().replies.insert(to.1, sender);
            let mut message = json!({ "id": to.1, "method": method, "params": parameters });
            if let Some(session) = session {
                message["sessionId"] = session.into();
            }
            let mut bytes = message.to_string().into_bytes();
            bytes.push(0);
            to.0.write_all(&bytes).unwrap_or_else(|error| panic!("the browser is gone at {method}: {error}"));
        }
        receiver
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("no reply to {method}: {error}; asked {}", short(parameters)))
    }

    fn call(&self, session: Option<&str>, method: &str, parameters: &Value) -> Value {
        let reply = self.ask(session, method, parameters);
        assert!(reply["error"].is_null(), "{method}: {}", reply["error"]);
        reply["result"].clone()
    }

    /// An empty page of a size in pixels.
    pub fn page(&self, width: u32, height: u32) -> Page<'_> {
        let target = self.call(None, "Target.createTarget", &json!({ "url": "about:blank" }));
        let target = target["targetId"].as_str().expect("a target").to_owned();
        let attached =
            self.call(None, "Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        let page = Page { browser: self, session, target };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page.resize(width, height);
        page
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked first, so that its children end as well; it may be gone already.
        let _ = self.to.lock().0.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(from: ChildStdout, mail: &Mutex<Mail>) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while from.read_until(0, &mut bytes).is_ok_and(|length| length > 0) {
        let message: Value =
            serde_json::from_slice(bytes.strip_suffix(b"\0").unwrap_or(&bytes)).unwrap_or_default();
        bytes.clear();
        let mut mail = mail.lock();
        if let Some(id) = message["id"].as_u64() {
            if let Some(sender) = mail.replies.remove(&id) {
                // The receiver is gone if the test has failed meanwhile.
                let _ = sender.send(message);
            }
        } else if let Some(session) = message["sessionId"].as_str() {
            mail.events.entry(session.to_owned()).or_default().push(message);
        }
    }
    // Wakes all waiting callers.
    mail.lock().replies.clear();
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(2000).collect()
}

/// A page of a [`Browser`]; dropping it closes it.
pub struct Page<'b> {
    browser: &'b Browser,
    session: String,
    target: String,
}

impl Page<'_> {
    fn call(&self, method: &str, parameters: Value) -> Value {
        self.browser.call(Some(&self.session), method, &parameters)
    }

    /// Makes it the page in front: one behind another draws no frames, and its mouse waits for them for seconds.
    pub fn to_front(&self) {
        self.call("Page.bringToFront", json!({}));
    }

    pub fn resize(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Makes the person prefer light or dark.
    pub fn prefer(&self, theme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Opens an address as if it were typed, also where only what is behind `#` changes.
    pub fn open(&self, url: &str) {
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.until("location.href === 'about:blank' && document.readyState === 'complete'");
        self.call("Page.navigate", json!({ "url": url }));
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'");
    }

    /// Returns the value of an expression, or the result of its promise.
    pub fn value(&self, expression: &str) -> Value {
        let reply = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true }),
        );
        let exception = &reply["exceptionDetails"];
        assert!(exception.is_null(), "{expression}: {}", short(&exception["exception"]["description"]));
        reply["result"]["value"].clone()
    }

    pub fn text(&self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}, no text")).to_owned()
    }

    pub fn number(&self, expression: &str) -> f64 {
        let value = self.value(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}, no number"))
    }

    pub fn holds(&self, expression: &str) -> bool {
        self.value(&format!("Boolean({expression})")) == true
    }

    /// Waits until an expression is true.
    pub fn until(&self, expression: &str) {
        // In the page, so that no reply is on its way meanwhile; a navigation in the middle answers with an error,
        // hence the loop.
        let wait = format!(
            "new Promise((done) => {{ const end = performance.now() + 20000; const look = () => {{ let is = false; \
             try {{ is = Boolean({expression}); }} catch {{ }} if (is) done('yes'); \
             else if (performance.now() > end) done('late'); else setTimeout(look, 10); }}; look(); }})"
        );
        let parameters = json!({ "expression": wait, "awaitPromise": true, "returnByValue": true });
        for _ in 0..3 {
            let reply = self.browser.ask(Some(&self.session), "Runtime.evaluate", &parameters);
            match reply["result"]["result"]["value"].as_str() {
                Some("yes") => return,
                Some(_) => break,
                None => {}
            }
        }
        panic!("never true: {expression}\nthe page says:\n{}", self.text("document.body.innerText"));
    }

    /// Presses a key; its name is that of `KeyboardEvent.key`.
    pub fn key(&self, key: &str) {
        self.press(key, 0);
    }

    /// Presses a key while Shift is held.
    pub fn shift_key(&self, key: &str) {
        self.press(key, 8);
    }

    fn press(&self, key: &str, modifiers: u32) {
        let code = match key {
            "Escape" => 27,
            "Enter" => 13,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "Tab" => 9,
            _ => 0,
        };
        let mut event =
            json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers });
        if code == 0 || code == 13 {
            event["text"] = (if code == 13 { "\r" } else { key }).into();
        }
        self.call("Input.dispatchKeyEvent", event);
        self.call(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Types into what has the focus.
    pub fn write(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    fn mouse(&self, kind: &str, x: f64, y: f64) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        self.call(
            "Input.dispatchMouseEvent",
            json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": i32::from(kind != "mouseMoved") }),
        );
    }

    pub fn hover(&self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y);
    }

    pub fn click(&self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y);
        self.mouse("mousePressed", x, y);
        self.mouse("mouseReleased", x, y);
    }

    /// Presses the mouse at one place and releases it at another.
    pub fn drag(&self, from: (f64, f64), to: (f64, f64)) {
        self.mouse("mouseMoved", from.0, from.1);
        self.mouse("mousePressed", from.0, from.1);
        self.call(
            "Input.dispatchMouseEvent",
            json!({ "type": "mouseMoved", "x": to.0, "y": to.1, "button": "left", "buttons": 1 }),
        );
        self.mouse("mouseReleased", to.0, to.1);
    }

    /// Turns the wheel at a place; down is positive.
    pub fn wheel(&self, x: f64, y: f64, pixels: f64) {
        let event = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": pixels });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// Clicks the middle of an element.
    pub fn click_on(&self, element: &str) {
        let place = self.value(&format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{ block: 'nearest' }}); const r = e.getBoundingClientRect(); \
             return [r.left + r.width / 2, r.top + r.height / 2]; }})()"
        ));
        self.click(place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
    }

    /// Leaves a picture in Cargo's folder for test output, for people to look at.
    pub fn picture(&self, name: &str) {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = from_base64(picture["data"].as_str().expect("a picture"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(name).with_extension("png"), bytes).expect("written");
    }

    /// Whatever the browser had to complain about, and requests to anywhere but `origin`.
    pub fn complaints(&self, origin: &str) -> Vec<String> {
        let mail = self.browser.mail.lock();
        let events = mail.events.get(&self.session).map_or(&[][..], Vec::as_slice);
        events.iter().filter_map(|event| complaint(event, origin)).collect()
    }
}

fn complaint(event: &Value, origin: &str) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => {
            Some(format!("exception: {}", short(&parameters["exceptionDetails"]["exception"]["description"])))
        }
        "Runtime.consoleAPICalled" => {
            let kind = parameters["type"].as_str().unwrap_or_default();
            matches!(kind, "error" | "warning" | "assert").then(|| format!("console: {}", short(parameters)))
        }
        "Log.entryAdded" => {
            let level = parameters["entry"]["level"].as_str().unwrap_or_default();
            matches!(level, "error" | "warning").then(|| format!("log: {}", short(&parameters["entry"])))
        }
        "Network.requestWillBeSent" => {
            let url = parameters["request"]["url"].as_str().unwrap_or_default();
            let is_ours = url.starts_with(origin) || url.starts_with("about:") || url.starts_with("data:");
            (!is_ours).then(|| format!("request: {url}"))
        }
        _ => None,
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.browser.call(None, "Target.closeTarget", &json!({ "targetId": self.target }));
        }
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
