//! Between a home and the broker that decides about its effects: the answer to one call is lost, and the connection with
//! it. The broker has heard the call by then, and has committed what came of it.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::Value;

use super::lossy_proxy::{Fate, pass};

#[derive(Default)]
struct State {
    /// The verb whose next answer is lost.
    loses: Option<&'static str>,
    /// Whether nobody gets in again after that.
    shuts: bool,
    is_shut: bool,
    /// The verbs that the home has sent, in their order.
    verbs: Vec<String>,
    cuts: usize,
}

#[derive(Clone)]
pub struct CutProxy {
    state: Arc<Mutex<State>>,
    opened: Arc<Condvar>,
    pub listen: String,
}

impl CutProxy {
    pub fn start(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            state: Arc::default(),
            opened: Arc::default(),
            listen: listener.local_addr().unwrap().to_string(),
        };
        let serving = proxy.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for home in listener.incoming().flatten() {
                let (waiting, broker) = (serving.clone(), broker.clone());
                thread::spawn(move || {
                    waiting.wait_open();
                    if let Ok(upstream) = TcpStream::connect(&broker) {
                        waiting.join(home, upstream);
                    }
                });
            }
        });
        proxy
    }

    /// The next answer to this verb is lost, and the connection with it; it comes back by itself.
    pub fn lose(&self, verb: &'static str) {
        let mut state = self.state.lock().unwrap();
        (state.loses, state.shuts) = (Some(verb), false);
    }

    /// The same, and nobody gets in until it is opened.
    pub fn lose_and_shut(&self, verb: &'static str) {
        let mut state = self.state.lock().unwrap();
        (state.loses, state.shuts) = (Some(verb), true);
    }

    pub fn open(&self) {
        self.state.lock().unwrap().is_shut = false;
        self.opened.notify_all();
    }

    /// Who comes while it is shut is kept waiting and not sent away: a home that was sent away comes back more and more rarely.
    fn wait_open(&self) {
        let state = self.state.lock().unwrap();
        let open = self.opened.wait_while(state, |state| state.is_shut);
        drop(open.unwrap());
    }

    pub fn cuts(&self) -> usize {
        self.state.lock().unwrap().cuts
    }

    /// What the home has asked so far.
    pub fn verbs(&self) -> Vec<String> {
        self.state.lock().unwrap().verbs.clone()
    }

    fn join(&self, home: TcpStream, broker: TcpStream) {
        let _ = (home.set_nodelay(true), broker.set_nodelay(true));
        let (from_home, to_broker) = (home.try_clone().unwrap(), broker.try_clone().unwrap());
        // The request of this connection whose answer is to be lost.
        let doomed = Arc::new(Mutex::new(None));
        let (proxy, noted) = (self.clone(), Arc::clone(&doomed));
        thread::spawn(move || pass(from_home, to_broker, |frame| proxy.note(&noted, frame)));
        let proxy = self.clone();
        thread::spawn(move || pass(broker, home, |frame| proxy.judge(&doomed, frame)));
    }

    fn note(&self, doomed: &Mutex<Option<u64>>, frame: &Value) -> Fate {
        let Some(verb) = verb(frame) else {
            return Fate::Pass;
        };
        let mut state = self.state.lock().unwrap();
        state.verbs.push(verb.to_owned());
        if state.loses.is_some_and(|loses| loses == verb) {
            state.loses = None;
            *doomed.lock().unwrap() = frame["request"].as_u64();
        }
        Fate::Pass
    }

    fn judge(&self, doomed: &Mutex<Option<u64>>, frame: &Value) -> Fate {
        let doomed = *doomed.lock().unwrap();
        if doomed.is_none() || frame["type"] != "reply" || frame["request"].as_u64() != doomed {
            return Fate::Pass;
        }
        let mut state = self.state.lock().unwrap();
        state.cuts += 1;
        state.is_shut = state.shuts;
        Fate::Cut
    }
}

/// The verb of a call about an effect; none of anything else.
fn verb(frame: &Value) -> Option<&str> {
    frame["body"]["call"]["verb"].as_str()
}
