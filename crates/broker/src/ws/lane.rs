//! The lane of a connection: work is begun in the order in which it came.
//!
//! A batch passes B0 and B1, then takes its place in the store's line, and the next one is begun while
//! it waits for its commit. So one connection fills a group commit, and its messages still keep their
//! order.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use heddle_core::ids::MemberId;
use heddle_core::negotiate::ConnectionPolicy;
use heddle_wire::broker::{AckItem, BlobPlace, ReplyResult, Request, SendItem, ServerFrame};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::Shared;
use super::config::{EFFECTS_IN_FLIGHT_MAX, WORK_IN_FLIGHT_MAX};
use super::hub::Session;
use super::reader::Work;
use super::requests;
use super::window::Window;
use super::writer::Outbox;
use crate::accept::{Decided, Refusal, refused};
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{Ack, Storage, StorageError};

/// What came out of the store's line.
enum Done {
    Decided {
        batch: u64,
        decided: Decided,
        epoch: Option<u64>,
    },
    Acked(Result<usize, StorageError>),
    /// What whoever decides about effects says.
    Answered {
        request: u64,
        result: ReplyResult,
    },
}

type Waiting = Pin<Box<dyn Future<Output = Done> + Send>>;

pub(super) struct Lane<S, L> {
    pub(super) shared: Arc<Shared<S, L>>,
    pub(super) session: Arc<Session>,
    pub(super) principal: Principal,
    pub(super) window: Arc<Window>,
    pub(super) outbox: Outbox,
}

impl<S: Storage, L: Limiter> Lane<S, L> {
    /// Runs until `inbox` is closed and everything begun is done.
    pub(super) async fn run(self, mut inbox: mpsc::Receiver<Work>) {
        let mut in_flight: FuturesUnordered<Waiting> = FuturesUnordered::new();
        let mut asked: FuturesUnordered<Waiting> = FuturesUnordered::new();
        loop {
            let has_room =
                in_flight.len() < WORK_IN_FLIGHT_MAX && asked.len() < EFFECTS_IN_FLIGHT_MAX;
            tokio::select! {
                Some(done) = in_flight.next() => self.finish(done).await,
                Some(done) = asked.next() => self.finish(done).await,
                work = inbox.recv(), if has_room => match work {
                    None => break,
                    // A newer connection has taken over: what is not begun, it will send again.
                    Some(_) if self.session.replaced.is_cancelled() => {}
                    Some(Work::Request {
                        request,
                        body: body @ Request::Effect { .. },
                    }) => asked.push(self.ask(request, body)),
                    Some(work) => self.begin(work, &mut in_flight).await,
                },
            }
        }
        while let Some(done) = in_flight.next().await {
            self.finish(done).await;
        }
        while let Some(done) = asked.next().await {
            self.finish(done).await;
        }
    }

    async fn begin(&self, work: Work, in_flight: &mut FuturesUnordered<Waiting>) {
        let mut waiting = match work {
            Work::Send { batch, items } => self.send(batch, items).await,
            Work::Ack(items) => self.ack(items),
            Work::Request {
                request,
                body: Request::BlobRead { member, part },
            } => return self.relay(request, member, part).await,
            Work::Request { request, body } => return self.answer(request, body).await,
            Work::Part { ask, data } => {
                let errand = self.shared.relays.answer(&self.session, ask, data);
                if let Some(errand) = errand {
                    self.shared.run_errand(errand).await;
                }
                return;
            }
        };
        // IMPORTANT: polled here and now, because the first poll takes the place in line. The set
        // below polls in any order it likes.
        match (&mut waiting).now_or_never() {
            Some(done) => self.finish(done).await,
            None => in_flight.push(waiting),
        }
    }

    /// B0 and B1 now; B2 and B3 when the returned future is polled.
    async fn send(&self, batch: u64, items: Vec<SendItem>) -> Waiting {
        let has_ops = items.iter().any(|item| item.epoch.is_some());
        let replaces = self.shared.config.policy == ConnectionPolicy::PreferNewest;
        let generation = replaces.then_some(self.session.generation);
        let admitted = self.shared.accept.admit(&self.principal, items).await;
        let admitted = admitted.of_session(generation);
        let shared = Arc::clone(&self.shared);
        let mesh = self.principal.mesh;
        Box::pin(async move {
            let decided = shared.accept.commit(admitted).await;
            // Every answer to an op carries the epoch of now, not the one that it was accepted under.
            let epoch = if has_ops {
                shared.storage().epoch(mesh).await.ok()
            } else {
                None
            };
            Done::Decided {
                batch,
                decided,
                epoch,
            }
        })
    }

    fn ack(&self, items: Vec<AckItem>) -> Waiting {
        let items: Vec<Ack> = items
            .into_iter()
            .map(|AckItem { history_id, agent }| Ack { history_id, agent })
            .collect();
        self.window.acked(&items);
        let shared = Arc::clone(&self.shared);
        let (mesh, member) = (self.principal.mesh, self.principal.member);
        Box::pin(async move {
            let at = shared.accept.clock.wall();
            Done::Acked(shared.storage().ack(mesh, member, items, at).await)
        })
    }

    /// About an effect. Who decides may take long, and holds rows of a database meanwhile: that goes on by itself, while this
    /// lane does what comes next. A home that wants two of them in their order waits for the first answer.
    fn ask(&self, request: u64, body: Request) -> Waiting {
        let (shared, principal) = (Arc::clone(&self.shared), self.principal.clone());
        let asked = async move { requests::answer(&shared, &principal, body).await };
        let asked = AbortOnDropHandle::new(tokio::spawn(asked));
        Box::pin(async move {
            let result = asked.await.unwrap_or_else(|_| {
                let detail = "the call was not answered".to_owned();
                ReplyResult::Refused(refused(Refusal::from(StorageError::Unavailable(detail))))
            });
            Done::Answered { request, result }
        })
    }

    /// Bytes of a file from another member. The answer is not waited for: it comes when it comes.
    async fn relay(&self, request: u64, member: MemberId, part: BlobPlace) {
        let shared = &self.shared;
        let holder = shared.find_holder(self.principal.mesh, member).await;
        let now = shared.accept.clock.mono();
        let to = (request, self.outbox.weak());
        if let Some(ask) = shared.relays.ask(&self.session, to, holder, part, now) {
            shared.ask_elsewhere(ask, member, part);
        }
    }

    async fn answer(&self, request: u64, body: Request) {
        if matches!(body, Request::LogRead { .. }) {
            self.session.follow_log();
        }
        if let Request::Receipts { items } = &body {
            // What was shown is held: it leaves the window though its ack may have been lost.
            let held: Vec<Ack> = items
                .iter()
                .map(|item| Ack {
                    history_id: item.history_id,
                    agent: item.agent.clone(),
                })
                .collect();
            self.window.acked(&held);
        }
        let (awaited, released) = match &body {
            Request::QueueTake {
                queue, wake: true, ..
            } => (Some(queue.clone()), None),
            Request::QueueRelease { queue, .. } => (None, Some(queue.clone())),
            _ => (None, None),
        };
        if let Some(queue) = &awaited {
            self.session.waits.begin(queue);
        }
        let result = requests::answer(&self.shared, &self.principal, body).await;
        let found_none = matches!(&result, ReplyResult::Taken { items } if items.is_empty());
        if let Some(queue) = awaited.filter(|_| !found_none) {
            self.session.waits.end(&queue);
        }
        if let Some(queue) = released {
            self.shared.work_came(self.principal.mesh, &queue);
        }
        self.say(&ServerFrame::Reply { request, result }).await;
    }

    async fn finish(&self, done: Done) {
        match done {
            Done::Decided {
                batch,
                decided,
                epoch,
            } => {
                self.shared.run(&decided.effects);
                let items = decided.verdicts;
                self.say(&ServerFrame::Verdicts {
                    batch,
                    items,
                    epoch,
                })
                .await;
            }
            Done::Answered { request, result } => {
                self.say(&ServerFrame::Reply { request, result }).await;
            }
            Done::Acked(Ok(_)) => {}
            // The rows still wait, and are pushed again to the next connection.
            Done::Acked(Err(error)) => tracing::warn!(%error, "an ack was not kept"),
        }
    }

    /// Where nobody listens any more the work is still done; its answer is in the tables.
    async fn say(&self, frame: &ServerFrame) {
        let _ = self.outbox.send(frame).await;
    }
}
