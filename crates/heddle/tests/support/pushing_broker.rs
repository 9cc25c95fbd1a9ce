//! A broker that pushes what the test says, goes away and comes back, and keeps the receipts it gets.

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket, accept};

/// How it takes a report of receipts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OnReceipts {
    Confirm,
    Refuse,
    /// As a broker that does not know the frame at all.
    HangUp,
}

#[derive(Debug)]
struct State {
    away: bool,
    /// Frames that wait to be pushed, as text.
    frames: VecDeque<String>,
    acks: Vec<String>,
    receipts: Vec<Value>,
    reports: usize,
    on_receipts: OnReceipts,
    hellos: Vec<Value>,
    requests: Vec<String>,
}

#[derive(Clone)]
pub struct PushingBroker {
    state: Arc<Mutex<State>>,
    port: u16,
}

impl PushingBroker {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let broker = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::new(Mutex::new(State {
                away: false,
                frames: VecDeque::new(),
                acks: Vec::new(),
                receipts: Vec::new(),
                reports: 0,
                on_receipts: OnReceipts::Confirm,
                hellos: Vec::new(),
                requests: Vec::new(),
            })),
        };
        let serving = broker.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let broker = serving.clone();
                thread::spawn(move || broker.serve(stream));
            }
        });
        broker
    }

    pub fn config(&self) -> String {
        format!("[broker]\nurl = \"ws://127.0.0.1:{}/\"\n", self.port)
    }

    /// Hangs up and answers nobody until it is told otherwise.
    /// The same for a mesh beside the home's own.
    pub fn mesh_config(&self, name: &str) -> String {
        let url = self.config().replace("[broker]\n", "");
        format!("[[mesh]]\nname = \"{name}\"\n{url}")
    }

    pub fn away(&self, away: bool) {
        self.state.lock().unwrap().away = away;
    }

    pub fn on_receipts(&self, what: OnReceipts) {
        self.state.lock().unwrap().on_receipts = what;
    }

    pub fn push_text(&self, frame: impl Into<String>) {
        self.state.lock().unwrap().frames.push_back(frame.into());
    }

    /// Pushes a message for an agent under this place of the history.
    pub fn deliver(&self, history_id: &str, id: &str, agent: &str, body: &str) {
        self.push_text(delivery(history_id, id, agent, body).to_string());
    }

    /// History ids that were acknowledged, in order.
    pub fn acks(&self) -> Vec<String> {
        self.state.lock().unwrap().acks.clone()
    }

    /// `history_id level` of every receipt, in order of arrival.
    pub fn receipts(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let text = |item: &Value| {
            let field = |name: &str| item[name].as_str().unwrap().to_owned();
            format!("{} {}", field("history_id"), field("level"))
        };
        state.receipts.iter().map(text).collect()
    }

    /// Reports that came, answered or not.
    pub fn reports(&self) -> usize {
        self.state.lock().unwrap().reports
    }

    pub fn hellos(&self) -> Vec<Value> {
        self.state.lock().unwrap().hellos.clone()
    }

    fn serve(&self, stream: TcpStream) {
        if self.state.lock().unwrap().away {
            return;
        }
        let Ok(mut ws) = accept(stream) else { return };
        say(
            &mut ws,
            &json!({"type": "challenge", "protocol": 1, "nonce": "n"}).to_string(),
        );
        ws.get_ref()
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        let mut welcomed = false;
        loop {
            match ws.read() {
                Ok(Message::Text(text)) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    welcomed |= frame["type"] == "hello";
                    if !self.answer(&mut ws, &frame) {
                        return;
                    }
                }
                Ok(_) => {}
                Err(tungstenite::Error::Io(error))
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => return,
            }
            let mut state = self.state.lock().unwrap();
            if state.away {
                return;
            }
            while let Some(frame) = welcomed.then(|| state.frames.pop_front()).flatten() {
                say(&mut ws, &frame);
            }
        }
    }

    fn answer(&self, ws: &mut WebSocket<TcpStream>, frame: &Value) -> bool {
        let mut state = self.state.lock().unwrap();
        match frame["type"].as_str().unwrap() {
            "hello" => {
                state.hellos.push(frame.clone());
                let welcome = json!({
                    "type": "welcome", "epoch": 1, "generation": 1,
                    "features": super::stub_broker::good_features(),
                    "roster": {"members": [], "agents": [], "topics": []},
                });
                say(ws, &welcome.to_string());
            }
            "ack" => {
                let items = frame["items"].as_array().unwrap();
                let ids = items
                    .iter()
                    .map(|item| item["history_id"].as_str().unwrap().to_owned());
                state.acks.extend(ids);
            }
            "request" => {
                let body = &frame["body"];
                state
                    .requests
                    .push(body["what"].as_str().unwrap().to_owned());
                let mut reply = json!({"result": "ok", "changed": true});
                if body["what"] == "receipts" {
                    state.reports += 1;
                    match state.on_receipts {
                        OnReceipts::HangUp => return false,
                        OnReceipts::Refuse => {
                            reply = json!({"result": "refused", "code": "invalid_request", "detail": "no"});
                        }
                        OnReceipts::Confirm => {
                            let items = body["items"].as_array().unwrap().clone();
                            state.receipts.extend(items);
                        }
                    }
                }
                reply["type"] = json!("reply");
                reply["request"] = frame["request"].clone();
                say(ws, &reply.to_string());
            }
            _ => {}
        }
        true
    }
}

pub fn delivery(history_id: &str, id: &str, agent: &str, body: &str) -> Value {
    json!({"type": "deliver", "items": [{
        "history_id": history_id, "agent": agent,
        "from": {"member": "01HZX000000000000000000001", "agent": "planner", "member_name": "ann"},
        "client_message_id": id, "broker_message_id": "01HZX000000000000000000002",
        "destination_kind": "dm", "destination_ref": "01HZX000000000000000000001/tester",
        "accepted_at": 5,
        "envelope": {"v": 1, "kind": "message", "priority": "next", "body": body,
            "destination": {"kind": "dm", "ref": "01HZX000000000000000000001/tester"}},
    }]})
}

fn say(ws: &mut WebSocket<TcpStream>, frame: &str) {
    let _ = ws.send(Message::text(frame));
}
