//! A broker that does what the test says: holds answers, refuses, forgets, or advertises nonsense.
//!
//! It speaks the real protocol over a real socket; only its decisions are scripted. The daemon's
//! state machine is what puts rows into `inflight`, `dead` and `aborted`.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, WebSocket, accept_hdr};

/// What to do with the envelopes that come in.
#[derive(Debug, Clone, PartialEq)]
pub enum Script {
    Commit,
    /// Never answer.
    Hold,
    Refuse {
        code: &'static str,
    },
    Conflict,
    /// Commit, but hang up instead of answering.
    CommitAndHangUp,
    /// Keep nothing, and say that an id was committed that nobody asked for.
    CommitAnother,
    /// Say that it was there before, and whether its body still is.
    Duplicate {
        history_available: bool,
    },
}

#[derive(Debug)]
struct State {
    script: Script,
    features: Value,
    /// What it says in place of the challenge and of the welcome.
    greeting: [Option<String>; 2],
    /// Every transmission: client id and the envelope's exact text.
    sends: Vec<(String, String)>,
    committed: BTreeMap<String, (String, u64, String)>,
    close_codes: Vec<u16>,
    /// What stood beside the codes, as it came.
    close_reasons: Vec<String>,
    /// Closes with this code and reason in place of a welcome.
    closes: Option<(u16, String)>,
    /// The members that said hello.
    members: Vec<String>,
    /// Whether it knows another member, `guest`, with an agent `away`.
    has_guest: bool,
    /// Whether a look for an id is answered only once the next envelope is on its way.
    looks_wait: bool,
    /// When each transmission came.
    sent_at: Vec<Instant>,
    /// The `Authorization` headers that came with connections.
    authorizations: Vec<String>,
}

#[derive(Clone)]
pub struct StubBroker {
    state: Arc<Mutex<State>>,
    port: u16,
}

pub fn good_features() -> Value {
    features(
        json!({"mode": "retention_scoped", "dedupe_retention_days": 30, "request_fingerprint": true}),
    )
}

pub fn features(dedupe: Value) -> Value {
    json!({
        "client_message_id_dedupe": {"version": 2, "params": dedupe},
        "concurrent_connection_policy": {"version": 1, "params": {}},
    })
}

impl StubBroker {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let broker = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::new(Mutex::new(State {
                script: Script::Commit,
                features: good_features(),
                has_guest: false,
                looks_wait: false,
                sent_at: Vec::new(),
                greeting: [None, None],
                sends: Vec::new(),
                committed: BTreeMap::new(),
                close_codes: Vec::new(),
                close_reasons: Vec::new(),
                closes: None,
                members: Vec::new(),
                authorizations: Vec::new(),
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

    /// The config.toml of a home that this broker hosts.
    pub fn config(&self) -> String {
        format!("[broker]\nurl = \"ws://127.0.0.1:{}/\"\n", self.port)
    }

    /// A mesh of the config that this broker hosts.
    pub fn mesh_config(&self, name: &str) -> String {
        format!(
            "[[mesh]]\nname = \"{name}\"\nurl = \"ws://127.0.0.1:{}/\"\n",
            self.port
        )
    }

    pub fn members(&self) -> Vec<String> {
        self.state.lock().unwrap().members.clone()
    }

    pub fn authorizations(&self) -> Vec<String> {
        self.state.lock().unwrap().authorizations.clone()
    }

    /// Every id that came in, in order.
    pub fn sent_ids(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.sends.iter().map(|(id, _)| id.clone()).collect()
    }

    pub fn script(&self, script: Script) {
        self.state.lock().unwrap().script = script;
    }

    /// From now on its roster has `@guest/away`.
    pub fn takes_a_guest(&self) {
        self.state.lock().unwrap().has_guest = true;
    }

    /// From now on a look for an id waits for the next envelope, which then gets no verdict.
    pub fn holds_looks(&self) {
        self.state.lock().unwrap().looks_wait = true;
    }

    pub fn sent_at(&self) -> Vec<Instant> {
        self.state.lock().unwrap().sent_at.clone()
    }

    pub fn features(&self, features: Value) {
        self.state.lock().unwrap().features = features;
    }

    /// Says this in place of its challenge, or of its welcome.
    pub fn greets(&self, challenge: Option<&str>, welcome: Option<&str>) {
        self.state.lock().unwrap().greeting =
            [challenge, welcome].map(|text| text.map(str::to_owned));
    }

    /// The envelopes that came in under this id, in order.
    pub fn sends_of(&self, id: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let of_id = state.sends.iter().filter(|(sent, _)| sent == id);
        of_id.map(|(_, envelope)| envelope.clone()).collect()
    }

    pub fn send_count(&self) -> usize {
        self.state.lock().unwrap().sends.len()
    }

    /// Closes every connection in place of a welcome.
    pub fn closes_with(&self, code: u16, reason: &str) {
        self.state.lock().unwrap().closes = Some((code, reason.to_owned()));
    }

    pub fn close_reasons(&self) -> Vec<String> {
        self.state.lock().unwrap().close_reasons.clone()
    }

    pub fn close_codes(&self) -> Vec<u16> {
        self.state.lock().unwrap().close_codes.clone()
    }

    fn serve(&self, stream: TcpStream) {
        let note = |request: &Request, response: Response| {
            if let Some(value) = request.headers().get("authorization") {
                let text = value.to_str().unwrap_or_default().to_owned();
                self.state.lock().unwrap().authorizations.push(text);
            }
            Ok(response)
        };
        #[allow(
            clippy::result_large_err,
            reason = "the callback's type is the library's"
        )]
        let Ok(mut ws) = accept_hdr(stream, note) else {
            return;
        };
        let challenge = json!({"type": "challenge", "protocol": 1, "nonce": "n"});
        self.greet(&mut ws, 0, &challenge);
        let mut looks = Vec::new();
        while let Ok(message) = ws.read() {
            match message {
                Message::Text(text) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    if !self.answer(&mut ws, &frame, &text, &mut looks) {
                        return;
                    }
                }
                Message::Close(frame) => {
                    let (code, reason) = frame.map_or((0, String::new()), |frame| {
                        (u16::from(frame.code), frame.reason.to_string())
                    });
                    let mut state = self.state.lock().unwrap();
                    state.close_codes.push(code);
                    state.close_reasons.push(reason);
                }
                _ => {}
            }
        }
    }

    fn answer(
        &self,
        ws: &mut WebSocket<TcpStream>,
        frame: &Value,
        text: &str,
        looks: &mut Vec<Value>,
    ) -> bool {
        match frame["type"].as_str().unwrap() {
            "hello" => {
                let member = frame["member"].as_str().unwrap().to_owned();
                self.state.lock().unwrap().members.push(member);
                let closes = self.state.lock().unwrap().closes.clone();
                if let Some((code, reason)) = closes {
                    let (code, reason) = (code.into(), reason.into());
                    let _ = ws.close(Some(CloseFrame { code, reason }));
                    return true;
                }
                let welcome = json!({
                    "type": "welcome", "epoch": 1, "generation": 1,
                    "features": self.state.lock().unwrap().features, "roster": self.roster(frame),
                });
                self.greet(ws, 1, &welcome);
            }
            "send" if !looks.is_empty() => {
                self.note_sends(frame, text);
                looks.drain(..).for_each(|look| self.reply_to(ws, &look));
            }
            "send" => return self.take_batch(ws, frame, text),
            "request" if self.is_held(frame) => looks.push(frame.clone()),
            "request" => self.reply_to(ws, frame),
            _ => {}
        }
        true
    }

    fn is_held(&self, frame: &Value) -> bool {
        self.state.lock().unwrap().looks_wait && frame["body"]["what"] == "message_status"
    }

    fn reply_to(&self, ws: &mut WebSocket<TcpStream>, frame: &Value) {
        let mut reply = self.reply(&frame["body"]);
        reply["type"] = json!("reply");
        reply["request"] = frame["request"].clone();
        say(ws, &reply);
    }

    fn note_sends(&self, frame: &Value, text: &str) -> Script {
        let mut state = self.state.lock().unwrap();
        for item in frame["items"].as_array().unwrap() {
            let id = item["client_message_id"].as_str().unwrap().to_owned();
            state.sends.push((id, envelope_text(text)));
            state.sent_at.push(Instant::now());
        }
        state.script.clone()
    }

    fn roster(&self, hello: &Value) -> Value {
        let mut roster = roster(hello);
        if self.state.lock().unwrap().has_guest {
            let guest = "01M7GQ6XPD50MRZAF482W1CBTV";
            let member = json!({"member": guest, "name": "guest", "online": false});
            roster["members"].as_array_mut().unwrap().push(member);
            let agent = json!({"member": guest, "agent": "away"});
            roster["agents"].as_array_mut().unwrap().push(agent);
        }
        roster
    }

    /// The frame, or what the test says in its place.
    fn greet(&self, ws: &mut WebSocket<TcpStream>, step: usize, frame: &Value) {
        match self.state.lock().unwrap().greeting[step].clone() {
            Some(text) => drop(ws.send(Message::text(text))),
            None => say(ws, frame),
        }
    }

    fn take_batch(&self, ws: &mut WebSocket<TcpStream>, frame: &Value, text: &str) -> bool {
        let script = self.note_sends(frame, text);
        let items = frame["items"].as_array().unwrap();
        let verdicts: Vec<Value> = match script {
            Script::Hold => return true,
            Script::Refuse { code } => items
                .iter()
                .map(|_| json!({"verdict": "refused", "code": code, "detail": "as scripted"}))
                .collect(),
            Script::Conflict => items
                .iter()
                .map(|_| json!({"verdict": "conflict", "broker_fingerprint_prefix": "0011223344556677"}))
                .collect(),
            Script::Duplicate { history_available } => items
                .iter()
                .map(|item| {
                    let mut verdict = self.commit(item);
                    verdict["verdict"] = json!("duplicate");
                    verdict["history_available"] = json!(history_available);
                    verdict["first_seen_at"] = json!(0);
                    verdict
                })
                .collect(),
            Script::CommitAnother => items
                .iter()
                .map(|_| {
                    json!({"verdict": "created", "client_message_id": "of-somebody-else", "duplicate": false,
                           "broker_message_id": "01HZX000000000000000000777", "history_id": "1.777"})
                })
                .collect(),
            Script::Commit | Script::CommitAndHangUp => items.iter().map(|item| self.commit(item)).collect(),
        };
        if script == Script::CommitAndHangUp {
            return false;
        }
        say(
            ws,
            &json!({"type": "verdicts", "batch": frame["batch"], "items": verdicts}),
        );
        true
    }

    fn commit(&self, item: &Value) -> Value {
        let mut state = self.state.lock().unwrap();
        let id = item["client_message_id"].as_str().unwrap().to_owned();
        let fingerprint =
            heddle_wire::broker::Envelope::parse(item["envelope"].to_string().as_bytes())
                .unwrap()
                .wire_fingerprint()
                .unwrap()
                .to_hex();
        let seq = state.committed.len() as u64 + 1;
        let duplicate = state.committed.contains_key(&id);
        let entry = state
            .committed
            .entry(id)
            .or_insert_with(|| (format!("01HZX000000000000000000{seq:03}"), seq, fingerprint));
        let (message, seq, _) = entry.clone();
        if duplicate {
            json!({"verdict": "duplicate", "broker_message_id": message, "history_id": format!("1.{seq}"),
                   "history_available": true, "first_seen_at": 0})
        } else {
            json!({"verdict": "created", "broker_message_id": message, "history_id": format!("1.{seq}")})
        }
    }

    fn reply(&self, body: &Value) -> Value {
        match body["what"].as_str().unwrap() {
            "message_status" => {
                let state = self.state.lock().unwrap();
                match state
                    .committed
                    .get(body["client_message_id"].as_str().unwrap())
                {
                    Some((message, seq, fingerprint)) => json!({
                        "result": "committed", "broker_message_id": message,
                        "history_id": format!("1.{seq}"), "wire_fingerprint": fingerprint,
                    }),
                    None => json!({"result": "absent"}),
                }
            }
            _ => json!({"result": "ok", "changed": true}),
        }
    }
}

fn say(ws: &mut WebSocket<TcpStream>, frame: &Value) {
    let _ = ws.send(Message::text(frame.to_string()));
}

fn roster(hello: &Value) -> Value {
    let agents: Vec<Value> = hello["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| json!({"member": hello["member"], "agent": agent}))
        .collect();
    json!({
        "members": [{"member": hello["member"], "name": hello["member_name"], "online": true}],
        "agents": agents,
        "topics": [{"topic": "ops", "subscribers": []}],
    })
}

/// The first envelope of a send frame, byte for byte as it came.
fn envelope_text(frame: &str) -> String {
    let start = frame
        .find("\"envelope\":")
        .map_or(0, |at| at + "\"envelope\":".len());
    let mut depth = 0;
    let mut in_string = false;
    let mut escaped = false;
    for (index, byte) in frame.as_bytes()[start..].iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return frame[start..=start + index].to_owned();
                }
            }
            _ => {}
        }
    }
    String::new()
}
