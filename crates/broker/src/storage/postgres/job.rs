//! Work for the line: it runs in somebody else's transaction, maybe twice, and is answered after the commit.

use deadpool_postgres::Transaction;
use futures_util::future::BoxFuture;
use heddle_core::witness::Witness;
use tokio::sync::oneshot;

use super::super::error::StorageError;
use super::super::rows::{Accepted, NewMessage};
use super::error::JobError;

/// Answers whoever waits, once it is known whether the commit took place.
pub(super) trait Settle {
    fn settle(self: Box<Self>, committed: Result<(), StorageError>);
}

/// A write. It may be run again in another transaction after the first was undone, so it keeps its input.
pub(super) trait Job: Settle + Send {
    fn run<'t>(
        &'t mut self,
        transaction: &'t Transaction<'t>,
    ) -> BoxFuture<'t, Result<(), JobError>>;
}

pub(super) type Running<'t, T> = BoxFuture<'t, Result<T, JobError>>;

/// A write as a function over its input.
pub(super) struct Write<D, F, T> {
    pub(super) input: D,
    pub(super) run: F,
    pub(super) output: Option<Result<T, StorageError>>,
    pub(super) answer: oneshot::Sender<Result<T, StorageError>>,
}

impl<D, F, T> Settle for Write<D, F, T> {
    fn settle(self: Box<Self>, committed: Result<(), StorageError>) {
        let unanswered = || Err(StorageError::Unavailable("it was not run".to_owned()));
        let Self { output, answer, .. } = *self;
        // Whoever does not wait any more finds the answer in the tables.
        let _ = answer.send(committed.and_then(|()| output.unwrap_or_else(unanswered)));
    }
}

impl<D, F, T> Job for Write<D, F, T>
where
    D: Send + Sync,
    T: Send,
    F: for<'t> Fn(&'t Transaction<'t>, &'t D) -> Running<'t, T> + Send,
{
    fn run<'t>(
        &'t mut self,
        transaction: &'t Transaction<'t>,
    ) -> BoxFuture<'t, Result<(), JobError>> {
        let running = (self.run)(transaction, &self.input);
        let output = &mut self.output;
        Box::pin(async move {
            // A refusal of the contract's own wrote nothing, and is no reason to undo the others.
            let done = running.await;
            *output = Some(match done {
                Ok(answer) => Ok(answer),
                Err(error) if error.is_refusal() => Err(error.into()),
                Err(error) => return Err(error),
            });
            Ok(())
        })
    }
}

/// Messages that want to be accepted.
pub(super) struct AcceptJob {
    pub(super) messages: Vec<NewMessage>,
    pub(super) accepted: Vec<Accepted>,
    pub(super) answer: oneshot::Sender<Result<Vec<Accepted>, StorageError>>,
}

impl AcceptJob {
    /// Messages, and bytes of their envelopes.
    pub(super) fn size(&self) -> (usize, usize) {
        let bytes = self.messages.iter().map(|new| new.envelope.len()).sum();
        (self.messages.len(), bytes)
    }

    /// The last of those that were accepted, once they are committed.
    pub(super) fn newest(&self) -> Option<Witness> {
        let answered = self.messages.iter().zip(&self.accepted);
        let placed = answered.filter_map(|(new, answer)| match answer {
            Accepted::Created { history_id, .. } => Some(Witness {
                place: *history_id,
                id: new.id.key,
            }),
            _ => None,
        });
        placed.max_by_key(|one| one.place)
    }
}

impl Settle for AcceptJob {
    fn settle(self: Box<Self>, committed: Result<(), StorageError>) {
        let Self {
            accepted, answer, ..
        } = *self;
        let _ = answer.send(committed.map(|()| accepted));
    }
}
