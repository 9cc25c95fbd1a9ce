//! A reader of server-sent events of our own, over the Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Http;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sse {
    pub id: Option<String>,
    pub event: String,
    pub data: String,
}

pub struct SseReader {
    reader: BufReader<UnixStream>,
}

impl SseReader {
    pub fn open(http: &Http, target: &str, last_event_id: Option<&str>) -> Self {
        let mut stream = UnixStream::connect(http.socket()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let resume = last_event_id.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{resume}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains(" 200 "), "{line}");
        let mut sse = Self { reader };
        // The greeting: from here on nothing is missed.
        while sse.line().is_some_and(|line| !line.starts_with(": hello")) {}
        sse
    }

    /// The next event; `None` when the stream ended.
    pub fn next(&mut self) -> Option<Sse> {
        let mut event = Sse::default();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", value)) => event.id = Some(value.to_owned()),
                Some(("event", value)) => value.clone_into(&mut event.event),
                // Ours is always one line.
                Some(("data", value)) => {
                    value.clone_into(&mut event.data);
                    return Some(event);
                }
                // Chunk sizes, blank lines, comments.
                _ => {}
            }
        }
    }

    /// The next event of this name.
    pub fn next_named(&mut self, name: &str) -> Option<Sse> {
        loop {
            let event = self.next()?;
            if event.event == name {
                return Some(event);
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }
}
