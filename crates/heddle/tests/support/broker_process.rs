//! `heddle broker serve` as a process of its own, and a raw client to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket, client};

use super::http::tcp;
use super::{Home, Ran};

/// A running broker; killed, with its own process id, when dropped.
pub struct BrokerProcess {
    pub child: Child,
    pub ready: Value,
    pub data: PathBuf,
}

impl BrokerProcess {
    pub fn start(home: &Home, data: &Path, listen: &str, more: &[&str]) -> Self {
        Self::try_start(home, data, listen, more).unwrap_or_else(|ran| panic!("{ran:?}"))
    }

    pub fn try_start(home: &Home, data: &Path, listen: &str, more: &[&str]) -> Result<Self, Ran> {
        let folder = data.to_str().unwrap();
        let mut args = vec![
            "broker", "serve", "--json", "--listen", listen, "--data", folder,
        ];
        args.extend(more);
        let mut child = home
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        match serde_json::from_str::<Value>(&line) {
            Ok(ready) if ready.get("listen").is_some() => Ok(Self {
                child,
                ready,
                data: data.to_owned(),
            }),
            _ => {
                let mut stderr = String::new();
                let _ = child.stderr.take().unwrap().read_to_string(&mut stderr);
                let status = child.wait().unwrap();
                Err(Ran {
                    code: status.code().unwrap_or(-1),
                    stdout: line,
                    stderr,
                })
            }
        }
    }

    pub fn listen(&self) -> String {
        self.ready["listen"].as_str().unwrap().to_owned()
    }

    /// The config.toml of a home that this broker hosts.
    pub fn config(&self) -> String {
        format!(
            "[broker]\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
            self.listen(),
            self.data.join("broker_token")
        )
    }

    pub fn token(&self) -> String {
        std::fs::read_to_string(self.data.join("broker_token")).unwrap()
    }

    /// One of the pages beside the WebSocket: its status, and what it says.
    pub fn page(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let mut stream = TcpStream::connect(self.listen()).unwrap();
        let bearer = token.map_or(String::new(), |t| format!("Authorization: Bearer {t}\r\n"));
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{bearer}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, body.to_owned())
    }

    /// A figure of its `/metrics`; one that was not counted yet is 0.
    pub fn metric(&self, series: &str) -> usize {
        let admin = std::fs::read_to_string(self.data.join("admin_token")).unwrap();
        let bearer = format!("Bearer {}", admin.trim());
        let port = self.listen().rsplit(':').next().unwrap().parse().unwrap();
        let page = tcp(port, "GET", "/metrics", &[("authorization", &bearer)], "").unwrap();
        assert_eq!(page.status, 200, "{page:?}");
        let mut lines = page.body.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// The lines of its log with this text.
    pub fn logged(&self, text: &str) -> Vec<Value> {
        let log = std::fs::read_to_string(self.data.join("logs/daemon.jsonl")).unwrap_or_default();
        let lines = log.lines().filter(|line| line.contains(text));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; its exit code.
    pub fn terminate(mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A connection that says what a test wants it to say.
pub struct RawLink(pub WebSocket<TcpStream>);

impl RawLink {
    /// Upgrades with this header, if any; the status where it is refused.
    pub fn open(listen: &str, header: Option<(&'static str, String)>) -> Result<Self, u16> {
        let stream = TcpStream::connect(listen).unwrap();
        let mut request = format!("ws://{listen}/").into_client_request().unwrap();
        if let Some((name, value)) = header {
            let value = HeaderValue::try_from(value).unwrap();
            request.headers_mut().insert(name, value);
        }
        match client(request, stream) {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response))) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Admitted by the token, greeted, and said hello.
    pub fn enter(broker: &BrokerProcess, mesh: &str, member: &str) -> Self {
        let bearer = format!("Bearer {}", broker.token());
        let mut link = Self::open(&broker.listen(), Some(("authorization", bearer))).unwrap();
        assert_eq!(link.next()["type"], "challenge");
        link.say(&json!({
            "type": "hello", "protocol": 1, "mesh": mesh, "member": member, "member_name": "raw",
            "agents": ["one"], "seen": "0.0",
        }));
        link
    }

    pub fn say(&mut self, frame: &Value) {
        self.0.send(Message::text(frame.to_string())).unwrap();
    }

    /// The next frame, or `{"closed": code, "reason": …}`.
    pub fn next(&mut self) -> Value {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return serde_json::from_str(&text).unwrap(),
                Ok(Message::Close(frame)) => {
                    let frame = frame.unwrap();
                    let reason: Value = serde_json::from_str(&frame.reason).unwrap();
                    return json!({"closed": u16::from(frame.code), "reason": reason["reason"]});
                }
                Ok(_) => {}
                Err(error) => return json!({"lost": error.to_string()}),
            }
        }
    }

    /// Closes; the code and the whole text that the broker's own close frame carries.
    pub fn close(mut self, code: u16, reason: &str) -> (u16, String) {
        let (code, reason) = (code.into(), reason.to_owned().into());
        self.0.close(Some(CloseFrame { code, reason })).unwrap();
        self.closed()
    }

    /// Reads up to the broker's close frame: its code and its whole text.
    pub fn closed(&mut self) -> (u16, String) {
        loop {
            if let Message::Close(frame) = self.0.read().unwrap() {
                let frame = frame.unwrap();
                return (frame.code.into(), frame.reason.to_string());
            }
        }
    }

    /// The next frame of a type, or the end.
    pub fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next();
            if frame["type"] == kind || frame.get("type").is_none() {
                return frame;
            }
        }
    }
}
