//! One address in front of several brokers: each connection goes to the next one that answers, without stickiness.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::gate_proxy::pump;

pub struct Balancer {
    pub listen: String,
    /// Connections that each of them has got.
    given: Arc<Vec<AtomicUsize>>,
}

impl Balancer {
    pub fn start(brokers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = listener.local_addr().unwrap().to_string();
        let given: Arc<Vec<AtomicUsize>> =
            Arc::new(brokers.iter().map(|_| AtomicUsize::new(0)).collect());
        let counts = Arc::clone(&given);
        // Ends with the test's process.
        thread::spawn(move || {
            for (turn, home) in listener.incoming().flatten().enumerate() {
                let found = (0..brokers.len())
                    .map(|n| (turn + n) % brokers.len())
                    .find_map(|n| Some((n, TcpStream::connect(&brokers[n]).ok()?)));
                if let Some((n, broker)) = found {
                    counts[n].fetch_add(1, Ordering::SeqCst);
                    join(&home, &broker);
                }
            }
        });
        Self { listen, given }
    }

    pub fn given(&self) -> Vec<usize> {
        let counts = self.given.iter();
        counts.map(|count| count.load(Ordering::SeqCst)).collect()
    }
}

fn join(home: &TcpStream, broker: &TcpStream) {
    for (from, to) in [(home, broker), (broker, home)] {
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || pump(from, to, |_| {}));
    }
}
