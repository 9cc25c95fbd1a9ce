//! B2 and B3 in SQL, for a set: a fixed number of statements looks, a pure function decides, a fixed number
//! of statements writes, however many messages there are.

mod asked;
mod decide;
mod facts;
mod kept;
mod swift;
mod write;

use deadpool_postgres::{GenericClient, Object, Transaction};
use heddle_core::ids::MeshId;

use super::super::rows::{Accepted, NewMessage};
use super::super::seen::Seen;
use super::acks::{self, AckJob};
use super::error::JobError;
pub(super) use kept::Kept;

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

/// The same for a whole transaction of its own, with the acknowledgements that stand beside it. In one trip to the server
/// where everything that it asks was read before (`swift`); else in two, because what stands in line behind it waits for
/// trips more than for work. After an error the connection may be in the middle of a transaction: the caller undoes it.
pub(super) async fn at_once(
    client: &Object,
    mesh: MeshId,
    messages: &[&NewMessage],
    acked: &[&AckJob],
    (kept, seen): (&Kept, &Seen),
) -> Result<(Vec<Accepted>, Vec<usize>), JobError> {
    let mut acked = acked;
    let mut acks_changed = None;
    if let Some((mark, found)) = kept.of(mesh, messages)
        && let Some(plan) = swift::plan(messages, (mark, seen.newest(mesh)), &found)
    {
        match plan.run(client, mesh, acked, kept).await {
            Ok(swift::Ran {
                answers: Some(answers),
                changed,
            }) => return Ok((answers, changed)),
            Ok(ran) => {
                acked = &[];
                acks_changed = Some(ran.changed);
            }
            // Nothing of it was written, and behind the lock it can be told why.
            Err(error) if error.is_violation() => {}
            Err(error) => return Err(error),
        }
    }
    let known = (kept, seen);
    let (answers, changed) = behind_the_lock(client, mesh, messages, acked, known).await?;
    Ok((answers, acks_changed.unwrap_or(changed)))
}

async fn behind_the_lock(
    client: &Object,
    mesh: MeshId,
    messages: &[&NewMessage],
    acked: &[&AckJob],
    (kept, seen): (&Kept, &Seen),
) -> Result<(Vec<Accepted>, Vec<usize>), JobError> {
    prepare(client).await?;
    let (facts, mark) = facts::begin(client, mesh, messages).await?;
    seen.check(mesh, facts.next).map_err(JobError::Older)?;
    kept.learn(mesh, mark, &facts.found);
    let decided = decide::decide(messages, facts);
    let changed = write::write_and_commit(client, mesh, &decided, acked).await?;
    let placed = decided.placed.iter();
    kept.wrote(mesh, placed.map(|placed| placed.new.id.key));
    Ok((decided.answers, changed))
}

/// Everything that a group may run.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    let writes = write::STATEMENTS
        .into_iter()
        .chain([acks::DELIVERED, swift::SWIFT]);
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
    let (facts, _) = facts::look(transaction, mesh, messages).await?;
    let decided = decide::decide(messages, facts);
    write::write(transaction, mesh, &decided).await?;
    Ok(decided.answers)
}
