//! Between a home and its broker: lets only so many bytes through to the home, and counts them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

#[derive(Clone)]
pub struct GateProxy {
    gate: Arc<(Mutex<Gate>, Condvar)>,
    pub listen: String,
}

struct Gate {
    allowed: u64,
    passed: u64,
    connections: usize,
}

impl GateProxy {
    /// Lets `allowed` bytes through from the broker to the home.
    pub fn start(broker: String, allowed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Gate {
            allowed,
            passed: 0,
            connections: 0,
        };
        let proxy = Self {
            gate: Arc::new((Mutex::new(gate), Condvar::new())),
            listen: listener.local_addr().unwrap().to_string(),
        };
        let serving = proxy.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for home in listener.incoming().flatten() {
                if let Ok(upstream) = TcpStream::connect(&broker) {
                    serving.join(home, upstream);
                }
            }
        });
        proxy
    }

    /// Bytes that reached the home.
    pub fn passed(&self) -> u64 {
        self.gate.0.lock().unwrap().passed
    }

    /// From now on so many in all.
    pub fn allow(&self, allowed: u64) {
        self.gate.0.lock().unwrap().allowed = allowed;
        self.gate.1.notify_all();
    }

    /// How often the home came.
    pub fn connections(&self) -> usize {
        self.gate.0.lock().unwrap().connections
    }

    fn join(&self, home: TcpStream, broker: TcpStream) {
        self.gate.0.lock().unwrap().connections += 1;
        let (from_home, to_home) = (home.try_clone().unwrap(), home);
        let (from_broker, to_broker) = (broker.try_clone().unwrap(), broker);
        thread::spawn(move || pump(from_home, to_broker, |_| {}));
        let gate = Arc::clone(&self.gate);
        thread::spawn(move || {
            pump(from_broker, to_home, |bytes| {
                let mut state = gate.0.lock().unwrap();
                while state.passed + bytes > state.allowed {
                    state = gate.1.wait(state).unwrap();
                }
                state.passed += bytes;
            });
        });
    }
}

pub(super) fn pump(mut from: TcpStream, mut to: TcpStream, before: impl Fn(u64)) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        before(read as u64);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
