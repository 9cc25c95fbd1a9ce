//! LISTEN and NOTIFY: one connection that hears the other brokers and speaks to them.
//!
//! It is apart from the accepts, because a notifying commit takes a lock that all of them would wait for; and
//! its own commits need no sync, because a hint may be lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use heddle_core::ids::MeshId;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Config, Notification};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::seen::Seen;
use super::super::wakes::{Hint, Wakes};
use super::PostgresStorage;
use super::error::words;
use super::hint_text::{decode, encode};
use super::tls::Tls;

/// Hints on their way out, and in. Beyond that they are dropped: everybody also looks by himself.
const HINTS_MAX: usize = 1024;
/// Between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a notification may take before the connection counts as dead.
const SAY_WAIT: Duration = Duration::from_secs(10);
/// Between two times that something is said. The first word goes at once; while many messages are accepted, what a few
/// milliseconds bring is one word, and wakes every other broker once.
const SAY_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Wires {
    out: mpsc::Sender<Hint>,
    heard: Mutex<mpsc::Receiver<Hint>>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Wires {
    /// Connects in the background, and again whenever the connection is lost.
    pub(super) fn start(mut config: Config, tls: Tls, channel: String) -> Arc<Self> {
        let told = config.get_options().unwrap_or_default().to_owned();
        config.options(format!("{told} -c synchronous_commit=off"));
        let (out, outgoing) = mpsc::channel(HINTS_MAX);
        let (incoming, heard) = mpsc::channel(HINTS_MAX);
        let line = Line {
            config,
            tls,
            channel,
            outgoing,
            incoming,
        };
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let stop = stopping.clone();
        tasks.spawn(async move {
            let _ = stop.run_until_cancelled(line.run()).await;
        });
        Arc::new(Self {
            out,
            heard: Mutex::new(heard),
            stopping,
            tasks,
        })
    }

    pub(super) async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl Wakes for PostgresStorage {
    fn is_shared(&self) -> bool {
        true
    }

    fn seen(&self) -> Option<&Seen> {
        Some(self.lines.seen())
    }

    fn tell(&self, hint: Hint) {
        // Full: the others look by themselves.
        let _ = self.wires.out.try_send(hint);
    }

    async fn heard(&self) -> Hint {
        match self.wires.heard.lock().await.recv().await {
            Some(hint) => hint,
            // It stops: nobody says anything any more.
            None => std::future::pending().await,
        }
    }
}

struct Line {
    config: Config,
    tls: Tls,
    channel: String,
    outgoing: mpsc::Receiver<Hint>,
    incoming: mpsc::Sender<Hint>,
}

impl Line {
    async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            match self.connected().await {
                Ok(()) => pause = PAUSE_MIN,
                Err(error) => {
                    tracing::warn!(%error, "the wake-ups of other brokers are not heard; looking by the clock");
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            sleep(pause).await;
        }
    }

    /// From a connection to its loss. `Ok` if there was one.
    async fn connected(&mut self) -> Result<(), String> {
        let said = |error: tokio_postgres::Error| words(&error);
        let (client, mut notes) = self.tls.listen(&self.config).await.map_err(said)?;
        let listen = format!("LISTEN {}", self.channel);
        client.batch_execute(&listen).await.map_err(said)?;
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
        let own: i32 = row.and_then(|row| row.try_get(0)).map_err(said)?;
        // What was said while nobody listened is lost.
        let _ = self.incoming.try_send(Hint::Missed);
        let mut pause = Box::pin(sleep(Duration::ZERO));
        loop {
            let outgoing = async {
                pause.as_mut().await;
                self.outgoing.recv().await
            };
            tokio::select! {
                note = notes.recv() => match note {
                    None => return Ok(()),
                    Some(note) if note.process_id() == own => {}
                    // Full: whoever reads has a look at everything in hand already.
                    Some(note) => drop(self.incoming.try_send(decode(note.payload()))),
                },
                hint = outgoing => match hint {
                    None => return Ok(()),
                    Some(hint) => {
                        if self.say(&client, hint).await.is_err() {
                            return Ok(());
                        }
                        pause.set(sleep(SAY_PAUSE));
                    }
                },
            }
        }
    }

    /// What waits is said at once, and what is about one mesh as one.
    async fn say(&mut self, client: &Client, first: Hint) -> Result<(), ()> {
        let mut others = Vec::new();
        let mut looks = HashMap::new();
        let mut next = Some(first);
        while let Some(hint) = next {
            gather(hint, &mut looks, &mut others);
            next = self.outgoing.try_recv().ok();
        }
        others.extend(looks.into_values().map(Hint::Look));
        let texts: Vec<String> = others.iter().map(encode).collect();
        let sql = "SELECT pg_notify($1, text) FROM unnest($2::text[]) AS text";
        let said = timeout(SAY_WAIT, client.query(sql, &[&self.channel, &texts])).await;
        match said {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(()),
        }
    }
}

fn gather(
    hint: Hint,
    looks: &mut HashMap<MeshId, super::super::wakes::Look>,
    others: &mut Vec<Hint>,
) {
    match hint {
        Hint::Look(look) => match looks.get_mut(&look.mesh) {
            Some(known) => known.join(look),
            None => drop(looks.insert(look.mesh, look)),
        },
        other => others.push(other),
    }
}

/// Carries a connection and hands on what it is told.
pub(super) fn carry<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
) -> mpsc::Receiver<Notification>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(HINTS_MAX);
    tokio::spawn(async move {
        let messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
        tokio::pin!(messages);
        // Ends when the client is dropped, or when the server goes.
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(note) = message {
                let _ = sender.try_send(note);
            }
        }
    });
    receiver
}
