//! B2 and B3 in SQL, for a set: a fixed number of statements looks, a pure function decides, a fixed number
//! of statements writes, however many messages there are.

mod decide;
mod facts;
mod write;

use deadpool_postgres::{GenericClient, Object, Transaction};
use heddle_core::ids::MeshId;

use super::super::rows::{Accepted, NewMessage};
use super::acks::{self, AckJob};
use super::error::JobError;

/// How far a failed write is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undo {
    /// With everything that is in its transaction.
    Group,
    /// Alone. That takes a savepoint for each message, for a fault that next to never happens: only when
    /// the set has failed.
    Message,
}

/// Decides and writes, in order. The mesh's row is locked by the caller's transaction.
pub(super) async fn accept(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    messages: &[&NewMessage],
    undo: Undo,
) -> Result<Vec<Accepted>, JobError> {
    if undo == Undo::Group {
        return set(transaction, mesh, messages).await;
    }
    let mut answers = Vec::with_capacity(messages.len());
    for message in messages {
        transaction
            .batch_execute("SAVEPOINT heddle_message")
            .await?;
        match set(transaction, mesh, &[message]).await {
            Ok(answer) => answers.extend(answer),
            Err(error) if error.is_violation() => {
                transaction
                    .batch_execute("ROLLBACK TO SAVEPOINT heddle_message")
                    .await?;
                answers.push(Accepted::Failed(error.to_string()));
            }
            Err(error) => return Err(error),
        }
        transaction
            .batch_execute("RELEASE SAVEPOINT heddle_message")
            .await?;
    }
    Ok(answers)
}

/// The same for a whole transaction of its own, with the acknowledgements that stand beside it, in two trips to the
/// server: what stands in line behind it waits for trips more than for work. After an error the connection may be in the
/// middle of a transaction: the caller undoes it.
pub(super) async fn at_once(
    client: &Object,
    mesh: MeshId,
    messages: &[&NewMessage],
    acked: &[&AckJob],
) -> Result<(Vec<Accepted>, Vec<usize>), JobError> {
    prepare(client).await?;
    let facts = facts::begin(client, mesh, messages).await?;
    let decided = decide::decide(messages, facts);
    let changed = write::write_and_commit(client, mesh, &decided, acked).await?;
    Ok((decided.answers, changed))
}

/// Everything that a group may run.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    let writes = write::STATEMENTS.into_iter().chain([acks::DELIVERED]);
    facts::STATEMENTS.into_iter().chain(writes)
}

/// IMPORTANT: before any of them is sent. A statement that is prepared is sent when its future is first polled, so all
/// keep their order; one that is not waits for its own preparation while others overtake it.
async fn prepare<C: GenericClient>(client: &C) -> Result<(), JobError> {
    for sql in statements() {
        client.prepare_cached(sql).await?;
    }
    Ok(())
}

async fn set(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    messages: &[&NewMessage],
) -> Result<Vec<Accepted>, JobError> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    prepare(transaction).await?;
    let facts = facts::look(transaction, mesh, messages).await?;
    let decided = decide::decide(messages, facts);
    write::write(transaction, mesh, &decided).await?;
    Ok(decided.answers)
}
