//! A plain HTTP/1.1 client of our own, so that the tests do not trust the one under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

#[derive(Debug, Clone)]
pub struct Http {
    socket: PathBuf,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }
}

impl Http {
    pub fn new(home: &Path) -> Self {
        Self {
            socket: home.join("daemon.sock"),
        }
    }

    pub fn get(&self, target: &str) -> Answer {
        self.request("GET", target, &[], "").unwrap()
    }

    pub fn post(&self, target: &str, body: &Value) -> Answer {
        self.request("POST", target, &[], &body.to_string())
            .unwrap()
    }

    pub fn post_with(&self, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.request("POST", target, headers, body).unwrap()
    }

    /// `None` when the connection broke before the whole answer was there.
    pub fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Answer> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .ok()?;
        stream
            .write_all(&render(method, target, headers, body))
            .ok()?;
        read_answer(stream)
    }

    /// A connection that is kept for many requests.
    pub fn keep(&self) -> Option<Kept> {
        let stream = UnixStream::connect(&self.socket).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .ok()?;
        Some(Kept {
            reader: BufReader::new(stream),
        })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

pub struct Kept {
    reader: BufReader<UnixStream>,
}

impl Kept {
    pub fn post(&mut self, target: &str, body: &Value) -> Option<Answer> {
        let body = body.to_string();
        let text = format!(
            "POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.reader.get_mut().write_all(text.as_bytes()).ok()?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        })?;
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).ok()?;
        Some(Answer {
            status: status_of(&head)?,
            head,
            body: String::from_utf8(body).ok()?,
        })
    }
}

fn render(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n");
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        text.push_str("host: localhost\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if method == "POST" {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    format!("{text}\r\n{body}").into_bytes()
}

fn status_of(head: &str) -> Option<u16> {
    head.split(' ').nth(1)?.parse().ok()
}

fn read_answer(mut stream: impl Read) -> Option<Answer> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let announced = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse::<usize>()
            .ok()
    });
    if announced.is_some_and(|length| length != body.len()) {
        return None;
    }
    Some(Answer {
        status: status_of(head)?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// Writes these bytes to a TCP port and reads whatever comes back.
pub fn raw_tcp(port: u16, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .ok()?;
    stream.write_all(bytes).ok()?;
    read_answer(stream)
}

/// A request over TCP with these headers and nothing else.
pub fn tcp(
    port: u16,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    raw_tcp(port, &render(method, target, headers, body))
}
