//! A disk changes one cell of one row of the data, whichever it is: no door serves it, everything else goes on, it is named, and
//! writing it anew or a repair mends it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::Path;

use heddle_core::task::{TaskId, TaskStatus};
use heddle_store::{
    Applied, FileFilter, FileFind, MemoryFilter, MemoryMatch, NewContent, SearchQuery, StateFilter,
    Store, StoreError, TaskFilter, TaskWhich, TaskWish, VectorCursor, VectorFilter, check_up,
    repair,
};
use rusqlite::Connection;
use serde_json::json;

use crate::data::key;
use crate::files::path;
use crate::fixture::{Fixture, NOW, SEALED, open};
use crate::mended::hints;
use crate::sync_home::op_of;
use crate::tasks::{claim, fresh};
use crate::vectors::{model, query, vector};

/// Columns that are this home's own, so that nobody is told a lie by them.
const OWN: [(&str, &str); 8] = [
    ("memory", "place"),
    ("memory", "created_at"),
    ("state_kv", "place"),
    ("state_kv", "created_at"),
    ("files", "place"),
    ("files", "created_at"),
    ("vector_metadata", "created_at"),
    ("vector_metadata", "changed"),
];

/// Columns whose change is repaired as well: whatever was found is taken out by the same hand.
const REPAIRED: [&str; 8] = [
    "mesh_id", "lamport", "value", "content", "body", "title", "digest", "number",
];

/// What tasks are folded into, beside the tables whose rows have digests of their own.
const FOLDED: [&str; 2] = ["task_blocker", "task_claim_events"];

pub(crate) struct Whole {
    pub(crate) fixture: Fixture,
    pub(crate) tasks: [TaskId; 4],
}

/// Two rows and a mark of every kind; a task that is held, one that is done, one that waits and one that is open.
pub(crate) async fn whole() -> Whole {
    let fixture = Fixture::new().with_mesh().await;
    for number in ["one", "two", "gone"] {
        let text = json!(format!("text {number}"));
        fixture
            .remember(&format!("m-{number}"), number, &text)
            .await;
        fixture.set(&format!("s-{number}"), number, &text).await;
        let content = NewContent::Inline(format!("bytes {number}").into_bytes());
        let shared = fixture.share(&format!("f-{number}"), number, content).await;
        assert!(matches!(shared, Applied::Fresh(_)));
        let new = vector(&model("m", 2), &[1.0, 0.5], number);
        fixture.vector(&format!("v-{number}"), number, new).await;
    }
    fixture.forget("m-4", "gone").await;
    fixture.unshare("f-4", "gone").await;
    fixture.delete_vector("v-4", "gone").await;
    let change = fixture.change(fixture.party("planner"), "s-4", 2);
    let deleted = fixture.store.delete_state::<()>(change, key("gone")).await;
    assert!(matches!(deleted.unwrap(), Applied::Fresh(_)));
    let done = fixture.add("done", &[]).await;
    let held = fixture.add("held", &[done]).await;
    let waits = fixture.add("waits", &[held]).await;
    let open = fixture.add("open", &[]).await;
    fresh(fixture.step("worker", "c1", done, claim()).await);
    let wish = TaskWish::Complete { fence: None };
    fresh(fixture.step("worker", "d1", done, wish).await);
    fresh(fixture.step("worker", "c2", held, claim()).await);
    Whole {
        fixture,
        tasks: [done, held, waits, open],
    }
}

/// Every door and what it serves, one text for each row.
pub(crate) type Served = BTreeMap<String, Vec<String>>;

fn texts<T: Debug>(served: Result<impl IntoIterator<Item = T>, StoreError>) -> Vec<String> {
    match served {
        Ok(rows) => rows.into_iter().map(|row| format!("{row:?}")).collect(),
        Err(StoreError::Corrupt(_)) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn served(whole: &Whole, store: &Store) -> Served {
    let mesh = whole.fixture.mesh;
    let (store, left_out) = store.leniently();
    let mut all = Served::new();
    let recall = |matches| MemoryFilter {
        mesh,
        peer: None,
        matches,
        limit: 10,
        bytes_max: usize::MAX,
    };
    let words = SearchQuery::parse("text").unwrap();
    for (door, matches) in [
        ("recall all", MemoryMatch::All { after: None }),
        ("recall words", MemoryMatch::Words(words)),
    ] {
        let rows = store.recall(recall(matches)).await;
        all.insert(door.to_owned(), texts(rows.map(|(rows, _)| rows)));
    }
    for name in ["one", "two", "gone", "xone"] {
        let rows = store.recall(recall(MemoryMatch::Key(key(name)))).await;
        let rows = texts(rows.map(|(rows, _)| rows));
        all.insert(format!("recall {name}"), rows);
        let row = store.get_state(mesh, key(name)).await;
        all.insert(format!("state {name}"), texts(row));
        let story = store.data_story(mesh, name.to_owned()).await;
        all.insert(
            format!("explain {name}"),
            texts(story.map(|story| story.rows)),
        );
        for peer in ["planner", "worker"] {
            let peer = heddle_core::lamport::PeerId::new(&whole.fixture.party(peer).to_string());
            let find = FileFind::Path(peer, path(name));
            let row = store.find_file(mesh, find).await;
            if let Ok(Some(row)) = &row {
                let bytes = store.file_content(mesh, row).await;
                all.insert(format!("bytes {name}"), texts(bytes));
            }
            all.insert(format!("file {name}"), texts(row));
        }
    }
    let filter = StateFilter {
        mesh,
        prefix: String::new(),
        after: None,
        limit: 10,
        bytes_max: usize::MAX,
    };
    let rows = store.list_state(filter).await;
    all.insert("state list".to_owned(), texts(rows.map(|(rows, _)| rows)));
    let filter = FileFilter {
        mesh,
        peer: None,
        prefix: String::new(),
        after: None,
        limit: 10,
    };
    let rows = store.list_files(filter).await;
    all.insert("file list".to_owned(), texts(rows.map(|(rows, _)| rows)));
    served_vectors(whole, &store, &mut all).await;
    served_tasks(whole, &store, &mut all).await;
    let page = store.dump(mesh, 0, usize::MAX).await;
    all.insert("dump".to_owned(), texts(page.map(|page| page.lines)));
    let mut named = left_out.take();
    named.extend(texts(store.unreadable(mesh, u64::MAX).await));
    named.extend(texts(store.strays().await));
    all.insert("named".to_owned(), named);
    all
}

async fn served_vectors(whole: &Whole, store: &Store, all: &mut Served) {
    let mesh = whole.fixture.mesh;
    let hits = store.search_vectors(query(mesh, &model("m", 2), &[1.0, 0.5]));
    all.insert("vector search".to_owned(), texts(hits.await));
    let filter = VectorFilter {
        mesh,
        model: None,
        model_not: None,
        peer: None,
        peer_prefix: String::new(),
        after: VectorCursor::default(),
        limit: 10,
        bytes_max: usize::MAX,
    };
    let rows = store.list_vectors(filter).await;
    all.insert("vector list".to_owned(), texts(rows.map(|(rows, _)| rows)));
}

async fn served_tasks(whole: &Whole, store: &Store, all: &mut Served) {
    let mesh = whole.fixture.mesh;
    let mut doors = vec![TaskWhich::All, TaskWhich::Ready];
    doors.extend(TaskStatus::ALL.map(TaskWhich::With));
    for which in doors {
        let filter = TaskFilter {
            mesh,
            which,
            after: None,
            limit: 10,
            bytes_max: usize::MAX,
        };
        let rows = store.list_tasks(filter).await;
        let rows = texts(rows.map(|(rows, _)| rows));
        all.insert(format!("task list {which:?}"), rows);
    }
    for id in whole.tasks {
        let name = id.to_string();
        all.insert(format!("task {name}"), texts(store.task(mesh, id).await));
        let story = store.task_story(mesh, id).await;
        all.insert(format!("task show {name}"), texts(story));
        let rows = store.data_story(mesh, name.clone()).await;
        all.insert(format!("explain {name}"), texts(rows.map(|rows| rows.rows)));
    }
    all.insert("held".to_owned(), texts(store.held_tasks(mesh).await));
}

/// What a publish would send of the mesh.
async fn published(whole: &Whole, store: &Store) -> Vec<String> {
    let mesh = whole.fixture.mesh;
    store.begin_publish(mesh, NOW).await.unwrap();
    while store
        .step_publish(mesh, NOW)
        .await
        .unwrap()
        .unwrap()
        .finished_at
        .is_none()
    {}
    let due = store.due_ops(mesh, std::time::Duration::MAX, 1000, 1 << 20);
    let due = due.await.unwrap();
    due.iter()
        .map(|due| String::from_utf8(op_of(due).to_bytes().unwrap()).unwrap())
        .collect()
}

/// A copy of the stopped home, in which one cell is another.
pub(crate) fn changed(whole: &Whole, sql: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data.db");
    fs::copy(whole.fixture.path(), &file).unwrap();
    let raw = Connection::open(&file).unwrap();
    raw.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA writable_schema = ON")
        .unwrap();
    // A disk knows no triggers and no types.
    let triggers: Vec<(String, String)> = {
        let mut all = raw
            .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
            .unwrap();
        let all = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        all.unwrap().map(Result::unwrap).collect()
    };
    for (name, _) in &triggers {
        raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    assert_eq!(raw.execute(sql, []).unwrap(), 1, "{sql}");
    for (_, sql) in &triggers {
        raw.execute_batch(sql).unwrap();
    }
    folder
}

/// Another cell than it was, of its type: each row is `(table, column, statement)`.
fn changes(raw: &Connection) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for table in SEALED.iter().chain(&FOLDED) {
        let mut columns = raw
            .prepare("SELECT name, type FROM pragma_table_info(?1)")
            .unwrap();
        let columns = columns.query_map([table], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        });
        for column in columns.unwrap() {
            let (name, kind) = column.unwrap();
            if OWN.contains(&(table, name.as_str())) || name == "place" {
                continue;
            }
            let new = match (kind.as_str(), name.as_str()) {
                ("TEXT", "status") => "CASE status WHEN 'open' THEN 'completed' ELSE 'open' END",
                ("TEXT", "event_type") => {
                    "CASE event_type WHEN 'claimed' THEN 'released' ELSE 'claimed' END"
                }
                ("TEXT", "storage") => "'blob'",
                ("TEXT", "value" | "metadata") => "'\"other\"'",
                ("TEXT", "tags") => "'[\"other\"]'",
                ("TEXT", _) => "'x' || ifnull(COLUMN, '')",
                ("INTEGER", "tombstone") => "1 - tombstone",
                ("INTEGER", "number") => "number + 100",
                ("INTEGER", _) => "ifnull(COLUMN, 4) + 1",
                // One letter in the middle of it.
                ("BLOB", "body") => "CAST(replace(CAST(body AS TEXT), 'do it', 'do if') AS BLOB)",
                ("BLOB", "content") => {
                    "CAST(replace(CAST(content AS TEXT), 'bytes', 'bites') AS BLOB)"
                }
                ("BLOB", _) => "CAST(x'ff' || substr(COLUMN, 2) AS BLOB)",
                (other, _) => panic!("{table}.{name} is {other}"),
            };
            let new = new.replace("COLUMN", &name);
            let key = match *table {
                "task_op" => "op_id = (SELECT min(op_id) FROM task_op WHERE instr(body, 'do it'))",
                "task_blocker" => "task_id = (SELECT min(task_id) FROM task_blocker)",
                "task_claim_events" => "op_id = (SELECT min(op_id) FROM task_claim_events)",
                "tasks" => "place = (SELECT min(place) FROM tasks WHERE status = 'claimed')",
                _ => "place = 1",
            };
            let sql = format!("UPDATE {table} SET {name} = {new} WHERE {key}");
            all.push(((*table).to_owned(), name, sql));
        }
        // A mark of a deleted row is a row.
        let marked = ["memory", "state_kv", "files", "vector_metadata"];
        if marked.contains(table) {
            for name in ["lamport", "tombstone", "updated_at"] {
                let new = if name == "tombstone" { "0" } else { "9" };
                let sql = format!("UPDATE {table} SET {name} = {new} WHERE tombstone = 1");
                all.push(((*table).to_owned(), name.to_owned(), sql));
            }
        }
    }
    all
}

pub(crate) fn doctor(folder: &Path) -> String {
    let found = check_up(
        &folder.join("data.db"),
        &folder.join("blobs"),
        |_, _| true,
        true,
    );
    found.unwrap().senseless.join("; ")
}

/// Nothing that is served is another than before; what is missing is one thing at most, and it is named.
fn assert_truth(truth: &Served, now: &Served, what: &str) {
    for (door, rows) in now.iter().filter(|(door, _)| *door != "named") {
        let known = truth.get(door).map(Vec::as_slice).unwrap_or_default();
        for row in rows {
            assert!(known.contains(row), "{what}: {door} serves {row}");
        }
    }
    assert!(!now["named"].is_empty(), "{what}: nobody is told");
    for door in ["recall all", "state list", "file list", "vector list"] {
        let gone = truth[door].len() - now[door].len();
        assert!(gone <= 1, "{what}: {door} is without {gone}");
    }
}

#[tokio::test]
async fn lf_39_a_changed_cell_of_any_column_is_served_by_no_door_and_named() {
    let whole = whole().await;
    let truth = served(&whole, &whole.fixture.store).await;
    assert_eq!(truth["named"], Vec::<String>::new());
    assert_eq!((truth["dump"].len(), truth["recall all"].len()), (16, 2));
    whole.fixture.store.stop();
    let ops = {
        let copy = tempfile::tempdir().unwrap();
        fs::copy(whole.fixture.path(), copy.path().join("data.db")).unwrap();
        published(&whole, &open(&copy.path().join("data.db")).unwrap()).await
    };
    let all = changes(&whole.fixture.raw());
    assert!(all.len() > 90, "{}", all.len());
    for (table, column, sql) in all {
        let what = format!("{table}.{column}");
        let folder = changed(&whole, &sql);
        let store = open(&folder.path().join("data.db")).unwrap();
        let now = served(&whole, &store).await;
        assert_truth(&truth, &now, &what);
        for op in published(&whole, &store).await {
            assert!(ops.contains(&op), "{what}: {op} is sent");
        }
        store.stop();
        assert_ne!(
            doctor(folder.path()),
            "",
            "{what}: the doctor finds nothing"
        );
        if !REPAIRED.contains(&column.as_str()) {
            continue;
        }
        let blobs = heddle_store::Blobs::open(&folder.path().join("blobs")).unwrap();
        let mended = repair(&folder.path().join("data.db"), &blobs, &hints(), NOW).unwrap();
        assert!(mended.is_some(), "{what}");
        assert_eq!(doctor(folder.path()), "", "{what}: a repair leaves it");
    }
}

/// The types of a table are its schema's, and a disk changes those of cells as well.
#[tokio::test]
async fn lf_39_a_cell_of_another_type_or_none_is_served_by_no_door() {
    let whole = whole().await;
    let truth = served(&whole, &whole.fixture.store).await;
    whole.fixture.store.stop();
    for (table, new) in [
        ("state_kv", "value = CAST(value AS BLOB)"),
        ("state_kv", "value = NULL"),
        ("state_kv", "digest = NULL"),
        ("memory", "value = CAST(value AS BLOB)"),
        ("memory", "tags = CAST(tags AS BLOB)"),
        ("memory", "digest = NULL"),
        ("files", "mime = NULL"),
        ("files", "content = NULL"),
        ("files", "digest = NULL"),
        ("tasks", "digest = NULL"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data.db");
        fs::copy(whole.fixture.path(), &file).unwrap();
        // While it runs: a start would refuse most of these.
        let store = open(&file).unwrap();
        let loose = "UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = ?1";
        let raw = Connection::open(&file).unwrap();
        raw.execute_batch("PRAGMA writable_schema = ON").unwrap();
        assert_eq!(raw.execute(loose, [table]).unwrap(), 1);
        drop(raw);
        let raw = Connection::open(&file).unwrap();
        let change = format!(
            "PRAGMA ignore_check_constraints = ON; DROP TRIGGER memory_is_changed;
             DROP TRIGGER files_is_changed; UPDATE {table} SET {new} WHERE place = 1"
        );
        raw.execute_batch(&change).unwrap();
        let now = served(&whole, &store).await;
        assert_truth(&truth, &now, &format!("{table} {new}"));
    }
}

/// A search reads of a mark only that it is one: a live row that became one was passed over in silence.
#[tokio::test]
async fn lf_39_a_vector_that_a_disk_has_marked_as_deleted_is_named_by_a_search() {
    let whole = whole().await;
    whole.fixture.store.stop();
    let sql = "UPDATE vector_metadata SET tombstone = 1 WHERE key = 'two'";
    let folder = changed(&whole, sql);
    let store = open(&folder.path().join("data.db")).unwrap();
    let (store, left_out) = store.leniently();
    let hits = store.search_vectors(query(whole.fixture.mesh, &model("m", 2), &[1.0, 0.5]));
    let hits = hits.await.unwrap();
    let keys: Vec<&str> = hits.iter().map(|hit| hit.row.key.as_str()).collect();
    assert_eq!(keys, ["one"]);
    let named = left_out.take();
    assert!(
        named.len() == 1 && named[0].contains("two"),
        "a search goes on without it and says so: {named:?}"
    );
}
