//! What people do with files, vectors and tasks; the judge's idea of their rows.

use std::convert::Infallible;
use std::time::Duration;

use heddle_core::data::{DataKey, DataValue};
use heddle_core::file::FilePath;
use heddle_core::lamport::PeerId;
use heddle_core::op::{DataOp, FileChange, NewVector, VectorChange, VectorContent};
use heddle_core::task::lease::Moment;
use heddle_core::task::{Blockers, LeaseMs, TaskId, TaskText, TaskTitle};
use heddle_core::vector::{Embedding, ModelIdentity};
use heddle_store::{
    Applied, ChangeKey, FileFind, NewContent, NewFile, NewTask, Receipt, Store, TaskWish,
};
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::world::NOW;

/// Few of each, so that they meet.
const KEYS: u64 = 12;
/// How many of the last tasks are worked on.
const TASKS: usize = 6;

fn fresh<R>(applied: Applied<R>) -> Option<Receipt> {
    match applied {
        Applied::Fresh(receipt) => Some(receipt),
        _ => None,
    }
}

/// One change to a file, a vector or a task; its receipt, if it was made.
pub(crate) async fn change(
    store: &Store,
    id: ChangeKey,
    dice: &mut Dice,
    tasks: &mut Vec<TaskId>,
) -> Option<Receipt> {
    match dice.roll(6) {
        0 | 1 => file(store, id, dice).await,
        2 => vector(store, id, dice).await,
        _ => task(store, id, dice, tasks).await,
    }
}

async fn file(store: &Store, id: ChangeKey, dice: &mut Dice) -> Option<Receipt> {
    let path = FilePath::parse(&format!("dir/{}", dice.roll(KEYS))).unwrap();
    if dice.one_in(4) {
        let find = FileFind::Path(PeerId::new(&id.peer.to_string()), path);
        let deleted = store.delete_file(id, find, |_| ());
        return fresh(deleted.await.unwrap());
    }
    let content = NewContent::Inline(dice.roll(1 << 30).to_string().into_bytes());
    let new: Result<_, Infallible> = Ok(NewFile {
        content,
        mime: None,
    });
    fresh(store.share_file(id, path, new).await.unwrap())
}

fn model(number: u64) -> ModelIdentity {
    ModelIdentity::new("test", &format!("m{number}"), "1", 3, "float32").unwrap()
}

async fn vector(store: &Store, id: ChangeKey, dice: &mut Dice) -> Option<Receipt> {
    let key = DataKey::parse(&format!("v{}", dice.roll(KEYS))).unwrap();
    if dice.one_in(4) {
        let deleted: Applied<Infallible> = store.delete_vector(id, key, None).await.unwrap();
        return fresh(deleted);
    }
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let numbers = vec![1.0, dice.roll(100) as f32, 0.5];
    let content = VectorContent::new(dice.roll(1 << 30).to_string()).unwrap();
    let metadata = DataValue::new(&json!({})).unwrap();
    let embedding = Embedding::new(numbers).unwrap();
    let new = NewVector::new(model(dice.roll(2)), embedding, content, metadata).unwrap();
    let stored: Applied<Infallible> = store.store_vector(id, key, Ok(new)).await.unwrap();
    fresh(stored)
}

async fn task(
    store: &Store,
    id: ChangeKey,
    dice: &mut Dice,
    tasks: &mut Vec<TaskId>,
) -> Option<Receipt> {
    if tasks.is_empty() || dice.one_in(6) {
        let task = id.op;
        let new: Result<_, Infallible> = Ok(NewTask {
            title: TaskTitle::parse("work").unwrap(),
            description: TaskText::parse("").unwrap(),
            blocked_by: Blockers::new(Vec::new()).unwrap(),
        });
        let receipt = fresh(store.create_task(id, new).await.unwrap());
        tasks.push(task);
        return receipt;
    }
    let from = tasks.len().saturating_sub(TASKS);
    let among = u64::try_from(tasks.len() - from).unwrap();
    let task = tasks[from + usize::try_from(dice.roll(among)).unwrap()];
    let lease = LeaseMs::new(60_000).unwrap();
    let wish = match dice.roll(8) {
        0 => TaskWish::Complete { fence: None },
        1 => TaskWish::Cancel,
        2 | 3 => TaskWish::Release { fence: None },
        _ => TaskWish::Claim { lease },
    };
    let now = Moment {
        boot: 1,
        since: Duration::from_millis(u64::try_from(NOW.0).unwrap()),
    };
    let room: Result<(), Infallible> = Ok(());
    fresh(store.step_task(id, task, wish, now, room).await.unwrap())
}

/// The place of a row in the judge's map, and the row without its stamp.
pub(crate) type Row = ((u8, String, String, String), Value);

pub(crate) fn file_row(op: &DataOp, change: &FileChange) -> Row {
    let peer = op.stamp.peer.as_str().to_owned();
    let path = change.path.as_str().to_owned();
    let write = change.write.as_ref();
    let hash = write.map(|content| content.hash().to_string());
    let row = json!({
        "table": "files", "peer": peer, "path": path, "tombstone": write.is_none(),
        "sha256": hash, "inline_sha256": hash, "mime": null,
        "size": write.map(heddle_core::file::FileContent::size),
    });
    ((2, peer, path, String::new()), row)
}

/// One op may concern several models.
pub(crate) fn vector_rows(op: &DataOp, change: &VectorChange) -> Vec<Row> {
    let peer = op.stamp.peer.as_str();
    let row = |key: &DataKey, model: String, new: Option<&NewVector>| {
        let row = json!({
            "table": "vector", "key": key.as_str(), "peer": peer, "model": model,
            "tombstone": new.is_none(), "content": new.map(NewVector::content),
            "metadata": new.map(|new| new.metadata().as_str()),
            "embedding": new.map(|new| new.embedding().to_base64()),
        });
        ((3, key.as_str().to_owned(), peer.to_owned(), model), row)
    };
    match change {
        VectorChange::Store { key, new, .. } => {
            let model = new.model().fingerprint().to_string();
            vec![row(key, model, Some(new))]
        }
        VectorChange::Delete { key, models } => {
            let models = models.iter().map(ToString::to_string);
            models.map(|model| row(key, model, None)).collect()
        }
    }
}
