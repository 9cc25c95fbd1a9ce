//! Between a daemon and its broker: every id's first verdict is lost, and the connection with it.
//! It can be told to let nobody in again until the test has done what is to happen before the retry.
//!
//! It knows just enough of WebSocket to see where a frame ends and what its text says. Bytes pass as they
//! are.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

#[derive(Default)]
struct Seen {
    /// How often a verdict for this id came past and was swallowed.
    swallowed: BTreeMap<String, usize>,
    /// How often a verdict for this id was let through.
    passed: BTreeMap<String, usize>,
    cuts: usize,
    /// Whether a cut shuts the door.
    shuts: bool,
    is_shut: bool,
}

#[derive(Clone)]
pub struct LossyProxy {
    seen: Arc<Mutex<Seen>>,
    pub listen: String,
}

/// What becomes of a frame.
pub(super) enum Fate {
    Pass,
    Swallow,
    Cut,
}

/// What one connection is about.
#[derive(Default)]
struct Traffic {
    /// The ids of each batch without a verdict yet.
    unanswered: BTreeMap<u64, Vec<String>>,
    /// From the first lost verdict on nothing reaches the daemon any more.
    is_lost: bool,
}

type Shared = Arc<Mutex<Traffic>>;

impl LossyProxy {
    pub fn start(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            seen: Arc::default(),
            listen: listener.local_addr().unwrap().to_string(),
        };
        let serving = proxy.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for daemon in listener.incoming().flatten() {
                if serving.seen.lock().unwrap().is_shut {
                    continue;
                }
                if let Ok(upstream) = TcpStream::connect(&broker) {
                    serving.join(daemon, upstream);
                }
            }
        });
        proxy
    }

    /// From the next lost verdict on nobody gets in, until it is opened.
    pub fn shut_when_lost(&self) {
        self.seen.lock().unwrap().shuts = true;
    }

    pub fn open(&self) {
        let mut seen = self.seen.lock().unwrap();
        (seen.shuts, seen.is_shut) = (false, false);
    }

    pub fn cuts(&self) -> usize {
        self.seen.lock().unwrap().cuts
    }

    pub fn swallowed(&self) -> BTreeMap<String, usize> {
        self.seen.lock().unwrap().swallowed.clone()
    }

    pub fn passed(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().passed.keys().cloned().collect()
    }

    fn join(&self, daemon: TcpStream, broker: TcpStream) {
        let _ = (daemon.set_nodelay(true), broker.set_nodelay(true));
        let traffic = Shared::default();
        let out = (daemon.try_clone().unwrap(), broker.try_clone().unwrap());
        let noted = Arc::clone(&traffic);
        thread::spawn(move || pass(out.0, out.1, |frame| note_batch(&noted, frame)));
        let proxy = self.clone();
        thread::spawn(move || pass(broker, daemon, |frame| proxy.judge(&traffic, frame)));
    }

    /// The first verdict of an id is lost, whatever it says, and so are those of all that was on its way
    /// beside it; then the connection ends.
    fn judge(&self, traffic: &Shared, frame: &Value) -> Fate {
        let mut traffic = traffic.lock().unwrap();
        if frame["type"] != "verdicts" {
            return if traffic.is_lost {
                Fate::Swallow
            } else {
                Fate::Pass
            };
        }
        let batch = frame["batch"].as_u64().unwrap();
        let ids = traffic.unanswered.remove(&batch).unwrap();
        let mut seen = self.seen.lock().unwrap();
        traffic.is_lost |= ids.iter().any(|id| !seen.swallowed.contains_key(id));
        for id in ids {
            let counts = if traffic.is_lost {
                &mut seen.swallowed
            } else {
                &mut seen.passed
            };
            *counts.entry(id).or_insert(0) += 1;
        }
        match (traffic.is_lost, traffic.unanswered.is_empty()) {
            (false, _) => Fate::Pass,
            (true, false) => Fate::Swallow,
            (true, true) => {
                seen.cuts += 1;
                seen.is_shut = seen.shuts;
                Fate::Cut
            }
        }
    }
}

fn note_batch(traffic: &Shared, frame: &Value) -> Fate {
    if frame["type"] == "send" {
        let items = frame["items"].as_array().unwrap().iter();
        let ids = items.map(|item| item["client_message_id"].as_str().unwrap().to_owned());
        let batch = frame["batch"].as_u64().unwrap();
        let mut traffic = traffic.lock().unwrap();
        traffic.unanswered.insert(batch, ids.collect());
    }
    Fate::Pass
}

/// Head of the upgrade, then frame by frame, until one side ends or a frame ends both.
pub(super) fn pass(mut from: TcpStream, mut to: TcpStream, mut judge: impl FnMut(&Value) -> Fate) {
    let mut work = || -> io::Result<()> {
        to.write_all(&upgrade(&mut from)?)?;
        loop {
            let (raw, text) = frame(&mut from)?;
            let said = text.and_then(|text| serde_json::from_slice(&text).ok());
            match said.map_or(Fate::Pass, |said| judge(&said)) {
                Fate::Pass => to.write_all(&raw)?,
                Fate::Swallow => {}
                Fate::Cut => return Ok(()),
            }
        }
    };
    let _ = work();
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn upgrade(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(head)
}

/// One frame as it came, and its text where it is one (RFC 6455 §5.2).
fn frame(from: &mut TcpStream) -> io::Result<(Vec<u8>, Option<Vec<u8>>)> {
    const TEXT: u8 = 0x1;
    let mut raw = take(from, 2)?;
    let (opcode, masked) = (raw[0] & 0x0f, raw[1] & 0x80 != 0);
    let mut length = u64::from(raw[1] & 0x7f);
    let more = match length {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if more > 0 {
        let bytes = take(from, more)?;
        length = bytes
            .iter()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
        raw.extend(bytes);
    }
    let mask = take(from, if masked { 4 } else { 0 })?;
    let payload = take(from, usize::try_from(length).unwrap())?;
    raw.extend(&mask);
    raw.extend(&payload);
    let plain = |(at, byte): (usize, &u8)| byte ^ mask.get(at % 4).copied().unwrap_or(0);
    let text = (opcode == TEXT).then(|| payload.iter().enumerate().map(plain).collect());
    Ok((raw, text))
}

fn take(from: &mut TcpStream, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
