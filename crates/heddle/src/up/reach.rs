//! Where invited homes reach the embedded broker: one loopback port, the same after every restart.
//!
//! The port is kept in `broker.port` of the home, or fixed in the config. Links and the configs of those who
//! joined name it, so once somebody was invited it never changes by itself: where another process has taken
//! it, this one says so and tries again until it is free.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heddle_daemon::Home;
use heddle_daemon::home::{read_plain, write_private};
use tokio::net::TcpListener;

use crate::broker::door::{self, Door};

/// How often a port that is taken is asked for again.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// What others find at the port.
pub struct Reach {
    state: Mutex<State>,
    file: PathBuf,
}

#[derive(Clone)]
enum State {
    Listening(u16),
    /// Somebody else has it; 0 where any would do.
    Taken {
        port: u16,
        why: String,
    },
}

impl Reach {
    /// Binds the port if it can be had. Never fails: a home works without being reached.
    pub async fn open(home: &Home, was_shared: bool) -> (Arc<Self>, Option<TcpListener>) {
        let file = home.path().join("broker.port");
        let fixed = home.config.broker.port.map(std::num::NonZeroU16::get);
        let last = read_plain(&file).ok();
        let last = last.and_then(|text| text.trim().parse::<u16>().ok());
        let wanted = fixed.or(last).unwrap_or(0);
        let is_movable = fixed.is_none() && !was_shared;
        let mut bound = bind(wanted).await;
        if bound.is_err() && is_movable {
            bound = bind(0).await;
        }
        let (state, listener) = match bound {
            Ok((listener, port)) => (State::Listening(port), Some(listener)),
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(port = wanted, %why, "invited homes cannot reach the embedded broker");
                (State::Taken { port: wanted, why }, None)
            }
        };
        let reach = Self {
            state: Mutex::new(state),
            file,
        };
        reach.keep_port();
        (Arc::new(reach), listener)
    }

    /// Serves the port until the door is stopped; waits for it first where it is taken.
    pub async fn serve(self: Arc<Self>, door: Arc<Door>, listener: Option<TcpListener>) {
        let listener = match listener {
            Some(listener) => listener,
            None => tokio::select! {
                listener = self.wait_for_port() => listener,
                () = door.stopping.cancelled() => return,
            },
        };
        door::run(door, listener).await;
    }

    async fn wait_for_port(&self) -> TcpListener {
        let port = match self.state() {
            State::Listening(port) | State::Taken { port, .. } => port,
        };
        loop {
            tokio::time::sleep(TRY_EVERY).await;
            if let Ok((listener, port)) = bind(port).await {
                self.set(State::Listening(port));
                self.keep_port();
                tracing::info!(port, "invited homes reach the embedded broker again");
                return listener;
            }
        }
    }

    /// Remembers the port for the next start, before anybody is told of it.
    fn keep_port(&self) {
        let State::Listening(port) = self.state() else {
            return;
        };
        let text = port.to_string();
        if read_plain(&self.file).is_ok_and(|old| old == text) {
            return;
        }
        if let Err(error) = write_private(&self.file, &text) {
            let why = format!("{} cannot be written: {error}", self.file.display());
            tracing::warn!(%why, "invited homes cannot reach the embedded broker");
            self.set(State::Taken { port, why });
        }
    }

    pub fn url(&self) -> Option<String> {
        match self.state() {
            State::Listening(port) => Some(format!("ws://127.0.0.1:{port}/")),
            State::Taken { .. } => None,
        }
    }

    /// What its operator is to know.
    pub fn trouble(&self) -> Option<String> {
        match self.state() {
            State::Listening(_) => None,
            State::Taken { port, why } => Some(format!(
                "port {port}, at which invited homes reach this mesh, cannot be used ({why}); stop what has it, and it is taken again at once"
            )),
        }
    }

    fn state(&self) -> State {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

async fn bind(port: u16) -> std::io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}
