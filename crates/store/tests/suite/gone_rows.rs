//! Rows that a disk has lost as a whole: changes that were never sent, and rows of the data that must be there.

use heddle_core::clock::Ids as _;
use heddle_core::data::{DataKey, DataValue, Tags};
use heddle_core::file::FilePath;
use heddle_core::ids::{BrokerMessageId, HistoryId};
use heddle_core::names::MeshName;
use heddle_core::op::{NewMemory, NewVector, VectorContent};
use heddle_core::sync::OpMove;
use heddle_core::task::{Blockers, TaskText, TaskTitle};
use heddle_core::vector::{Embedding, ModelIdentity};
use heddle_store::{
    Applied, Blobs, DueOp, NewContent, NewFile, NewOp, NewTask, RepairHints, Repaired, StoryLeft,
    TaskStop, check_up, repair,
};
use serde_json::json;

use crate::changed_mended::dumped;
use crate::fixture::{NOW, at};
use crate::mended::hints;
use crate::sync_home::{Home, foreign, op_of};

/// A disk loses rows.
fn lose(home: &Home, sql: &str) {
    home.unguarded(|raw| raw.execute_batch(sql).unwrap());
}

fn doctor(home: &Home) -> String {
    let (path, blobs) = (
        home.folder.path().join("data.db"),
        home.folder.path().join("blobs"),
    );
    let looked = check_up(&path, &blobs, |_, _| true, false).unwrap();
    looked.senseless.join("; ")
}

fn mend(home: &mut Home) -> Repaired {
    home.store.stop();
    let path = home.folder.path().join("data.db");
    let blobs = Blobs::open(&home.folder.path().join("blobs")).unwrap();
    let hints = RepairHints {
        home: MeshName::parse("team").unwrap(),
        ..hints()
    };
    let mended = repair(&path, &blobs, &hints, NOW).unwrap();
    // What is told once is not told again.
    assert_eq!(repair(&path, &blobs, &hints, NOW).unwrap(), None);
    home.store = crate::fixture::open(&path).unwrap();
    mended.unwrap()
}

async fn missing(home: &Home) -> Vec<String> {
    let found = home.store.missing(home.mesh, u64::MAX).await.unwrap();
    found.into_iter().collect()
}

async fn unsent(home: &Home) -> Vec<String> {
    let found = home.store.look_through(home.mesh, u64::MAX).await.unwrap();
    assert_eq!(found.bad, []);
    found.unsent.iter().map(ToString::to_string).collect()
}

async fn left(home: &Home, id: &str) -> Option<StoryLeft> {
    let story = home.store.data_story(home.mesh, id.to_owned());
    story.await.unwrap().left
}

fn place(seq: u64) -> HistoryId {
    at(1, seq)
}

fn done(seq: u64, home: &Home) -> OpMove {
    OpMove::Done {
        broker_message_id: BrokerMessageId(home.ids.ulid()),
        history_id: place(seq),
    }
}

/// An own op as the log gives it back.
fn echo(home: &Home, due: &DueOp, seq: u64) -> NewOp {
    NewOp {
        history_id: place(seq),
        previous: place(seq - 1),
        sender: home.party(),
        client_message_id: due.client_message_id.clone(),
        op: Ok(op_of(due).to_bytes().unwrap()),
    }
}

#[tokio::test]
async fn lf_12_a_change_whose_row_of_the_outbox_is_lost_is_told_and_a_repair_sends_it() {
    let mut home = Home::shared(31).await;
    home.receive(vec![foreign(
        place(1),
        HistoryId::default(),
        1,
        "theirs",
        9,
    )])
    .await;
    home.apply().await;
    let one = home.set("one", json!(1)).await;
    home.set("two", json!(2)).await;
    assert_eq!(unsent(&home).await, Vec::<String>::new());
    assert_eq!(home.store.outbox_gone().await.unwrap(), 0);
    assert_eq!(doctor(&home), "");
    lose(&home, "DELETE FROM outbox WHERE arrival = 1");
    assert_eq!(unsent(&home).await, ["state \"one\""]);
    let told = doctor(&home);
    for words in [
        "a change of this home was never sent to the others, and its row of the outbox is gone: state \"one\"",
        "outbox: rows that are gone from it: 1",
    ] {
        assert!(told.contains(words), "{told}");
    }
    // What is gone is not done.
    assert_eq!(home.store.outbox_gone().await.unwrap(), 1);
    let figures = home.store.figures().await.unwrap();
    assert_eq!((figures.pending, figures.done), (1, 0));
    let mended = mend(&mut home);
    assert_eq!(mended.rows.sent, ["state \"one\""]);
    let due = home.due().await;
    assert_eq!(due.len(), 2);
    let said = op_of(&due[1]);
    assert_eq!((said.stamp, said.body.name()), (one.stamp, "state.set"));
    assert_eq!(
        due[1].client_message_id.to_string(),
        said_as(&home, &due[1])
    );
    assert_eq!(home.store.outbox_gone().await.unwrap(), 0);
    assert_eq!(home.store.figures().await.unwrap().done, 0);
    assert_eq!(unsent(&home).await, Vec::<String>::new());
}

/// The id that every receiver derives from the row.
fn said_as(home: &Home, due: &DueOp) -> String {
    op_of(due).published_id(home.mesh).to_string()
}

/// What came back through the log is everybody's, whatever became of its row of the outbox; and before a log was read nobody knows.
#[tokio::test]
async fn lf_12_what_the_log_has_was_sent() {
    let home = Home::shared(32).await;
    home.set("one", json!(1)).await;
    let due = home.due().await;
    lose(&home, "DELETE FROM outbox; DELETE FROM op_outbox");
    assert_eq!(
        unsent(&home).await,
        Vec::<String>::new(),
        "nothing was read"
    );
    home.receive(vec![echo(&home, &due[0], 1)]).await;
    home.apply().await;
    assert_eq!(unsent(&home).await, Vec::<String>::new());
}

#[tokio::test]
async fn lf_39_a_row_of_a_mesh_of_this_home_alone_that_is_gone_is_told_and_named_once() {
    let mut home = Home::new(33, None).await;
    let first = home.set("k", json!(1)).await;
    let last = home.set("k", json!(2)).await;
    let other = home.set("stays", json!(3)).await;
    assert_eq!(missing(&home).await, Vec::<String>::new());
    assert_eq!(left(&home, &other.stamp.op.to_string()).await, None);
    let older = first.stamp.op.to_string();
    assert_eq!(left(&home, &older).await, Some(StoryLeft::Younger));
    lose(&home, "DELETE FROM state_kv WHERE key = 'k'");
    assert_eq!(missing(&home).await, ["state \"k\""]);
    assert!(doctor(&home).contains("a row is gone: state \"k\""));
    let gone = Some(StoryLeft::Gone("state \"k\"".to_owned()));
    for id in [&older, &last.stamp.op.to_string(), "k"] {
        assert_eq!(left(&home, id).await, gone, "{id}");
    }
    let mended = mend(&mut home);
    assert_eq!(mended.rows.gone.iter().collect::<Vec<_>>(), ["state \"k\""]);
    assert_eq!(missing(&home).await, Vec::<String>::new());
    // Nobody says that something younger stands there.
    let unknown = Some(StoryLeft::Unknown);
    assert_eq!(left(&home, &older).await, unknown);
    home.set("k", json!(4)).await;
    assert_eq!(home.get("k").await.as_deref(), Some("4"));
    assert_eq!(missing(&home).await, Vec::<String>::new());
}

#[tokio::test]
async fn lf_39_a_task_that_is_gone_as_a_whole_is_told() {
    let mut home = Home::new(34, None).await;
    let key = home.change();
    let id = key.op.to_string();
    let new: Result<_, ()> = Ok(NewTask {
        title: TaskTitle::parse("t").unwrap(),
        description: TaskText::parse("").unwrap(),
        blocked_by: Blockers::new(Vec::new()).unwrap(),
    });
    let made: Applied<TaskStop<()>> = home.store.create_task(key, new).await.unwrap();
    assert!(matches!(made, Applied::Fresh(_)));
    lose(&home, "DELETE FROM tasks; DELETE FROM task_op");
    assert_eq!(missing(&home).await, [format!("task {id}")]);
    let gone = Some(StoryLeft::Gone(format!("task {id}")));
    assert_eq!(left(&home, &id).await, gone);
    assert_eq!(
        mend(&mut home).rows.gone.into_iter().collect::<Vec<_>>(),
        [format!("task {id}")]
    );
}

/// An answer of a Heddle of before does not say what it was about; the outbox does.
#[tokio::test]
async fn lf_39_what_is_gone_of_a_mesh_with_others_comes_back() {
    let mut home = Home::shared(35).await;
    let theirs = foreign(place(1), HistoryId::default(), 1, "theirs", 9);
    home.set("own", json!(1)).await;
    let due = home.due().await;
    home.settle(&due[0], done(2, &home)).await;
    let log = vec![theirs, echo(&home, &due[0], 2)];
    home.receive(log.clone()).await;
    home.apply().await;
    let everything =
        "DELETE FROM state_kv; UPDATE applied_request SET answer = json_remove(answer, '$.on')";
    lose(&home, everything);
    assert_eq!(missing(&home).await, ["state \"own\""]);
    // By the log alone, which a person asks for.
    home.store.read_log_anew(home.mesh).await.unwrap();
    assert_eq!(home.head().await.log, HistoryId::default());
    home.receive(log.clone()).await;
    home.apply().await;
    assert_eq!(home.get("theirs").await.as_deref(), Some("9"));
    assert_eq!(home.get("own").await.as_deref(), Some("1"));
    assert_eq!(missing(&home).await, Vec::<String>::new());
    // And by a repair, which has it from the outbox and asks the log for the rest.
    lose(&home, everything);
    let mended = mend(&mut home);
    assert_eq!(
        (mended.rows.brought_back.len(), mended.rows.gone.len()),
        (1, 0)
    );
    assert_eq!(home.get("own").await.as_deref(), Some("1"));
    let received = home.receive(log).await;
    assert_eq!((received.forgotten, received.incarnation), (0, None));
    home.apply().await;
    assert_eq!(home.get("theirs").await.as_deref(), Some("9"));
}

/// Every table takes what the outbox has, and all that is derived from its rows is right again.
#[tokio::test]
async fn lf_39_a_vector_a_memory_and_a_file_come_back_from_the_outbox() {
    let mut home = Home::shared(37).await;
    let key = |text| DataKey::parse(text).unwrap();
    let value = || DataValue::new(&json!({"n": 1})).unwrap();
    let model = ModelIdentity::new("test", "m", "1", 2, "float32").unwrap();
    let numbers = Embedding::new(vec![1.0, 2.0]).unwrap();
    let text = VectorContent::new("text".to_owned()).unwrap();
    let vector = NewVector::new(model, numbers, text, value()).unwrap();
    let stored: Applied<()> = home
        .store
        .store_vector(home.change(), key("v"), Ok(vector))
        .await
        .unwrap();
    assert!(matches!(stored, Applied::Fresh(_)));
    let note = NewMemory {
        value: value(),
        tags: Tags::parse::<&str>(&[]).unwrap(),
    };
    let kept: Applied<()> = home
        .store
        .remember(home.change(), key("m"), Ok(note))
        .await
        .unwrap();
    assert!(matches!(kept, Applied::Fresh(_)));
    let path = FilePath::parse("f").unwrap();
    let file = NewFile {
        content: NewContent::Inline(b"bytes".to_vec()),
        mime: None,
    };
    let shared: Applied<()> = home
        .store
        .share_file(home.change(), path, Ok(file))
        .await
        .unwrap();
    assert!(matches!(shared, Applied::Fresh(_)));
    let before = dumped(&home).await;
    lose(
        &home,
        "DELETE FROM vector_metadata; DELETE FROM memory; DELETE FROM files",
    );
    let names = ["file \"f\"", "memory \"m\"", "vector \"v\""];
    assert_eq!(missing(&home).await, names);
    let mended = mend(&mut home);
    assert_eq!(mended.rows.brought_back.iter().collect::<Vec<_>>(), names);
    assert_eq!(missing(&home).await, Vec::<String>::new());
    assert_eq!(dumped(&home).await, before);
    assert_eq!(doctor(&home), "");
}

#[tokio::test]
async fn lf_11_what_was_deleted_and_collected_is_not_missing() {
    let home = Home::new(36, None).await;
    home.set("k", json!(1)).await;
    let id = home.change();
    let key = DataKey::parse("k").unwrap();
    let op = id.op.to_string();
    let deleted: Applied<()> = home.store.delete_state(id, key).await.unwrap();
    assert!(matches!(deleted, Applied::Fresh(_)));
    let life = i64::try_from(heddle_core::limits::TOMBSTONE_LIFE.as_millis()).unwrap();
    let blobs = Blobs::open(&home.folder.path().join("blobs")).unwrap();
    let later = heddle_core::clock::WallMs(NOW.0 + life + 1);
    let grace = heddle_core::limits::SWEEP_GRACE;
    let swept = home
        .store
        .sweep_files(&blobs, later, grace, &|| false)
        .await;
    assert_eq!(swept.unwrap().tombstones, 1);
    assert_eq!(home.get("k").await, None);
    assert_eq!(left(&home, &op).await, Some(StoryLeft::Collected));
    assert_eq!(missing(&home).await, Vec::<String>::new());
    assert_eq!(doctor(&home), "");
}
