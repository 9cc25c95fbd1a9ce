//! A server with the interface of OpenAI, on loopback, that answers as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the next answers are like.
#[derive(Debug, Clone, PartialEq)]
pub enum Mood {
    /// Numbers that follow from the text.
    Good,
    Says(u16, String),
    /// Takes the request and never answers.
    Hangs,
    /// Closes in the middle of the answer.
    BreaksOff,
}

pub struct EmbeddingServer {
    pub url: String,
    mood: Arc<Mutex<Mood>>,
    /// The head and the body of every request.
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl EmbeddingServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let mood = Arc::new(Mutex::new(Mood::Good));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (its_mood, its_asked) = (Arc::clone(&mood), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (mood, asked) = (its_mood.lock().unwrap().clone(), Arc::clone(&its_asked));
                std::thread::spawn(move || answer(stream, &mood, &asked));
            }
        });
        Self { url, mood, asked }
    }

    pub fn is_now(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, mood: &Mood, asked: &Mutex<Vec<(String, String)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    let body = String::from_utf8_lossy(&body).into_owned();
    asked.lock().unwrap().push((head, body.clone()));
    let (status, text) = match mood {
        Mood::Good => (200, good(&body)),
        Mood::Says(status, text) => (*status, text.clone()),
        Mood::Hangs => {
            // Until the other side has had enough.
            let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
            let _ = stream.read(&mut [0; 1]);
            return;
        }
        Mood::BreaksOff => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"data\":");
            return;
        }
    };
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
}

/// Four numbers: how many of the letters a, b and c the text has, and one.
fn good(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let text = body["input"].as_str().unwrap();
    let count = |letter| text.matches(letter).count();
    let numbers = serde_json::json!([count('a'), count('b'), count('c'), 1]);
    serde_json::json!({"object": "list", "data": [{"index": 0, "embedding": numbers}]}).to_string()
}
