//! Test: no statement visits rows that it does not need, as SQLite itself plans it.

use rusqlite::Connection;

use crate::data::files;
use crate::data::task_statements as tasks;
use crate::{
    agents, data, figures, inbox, invites, missing, outbox, own_refused, schema, sync, unsent,
    witness,
};

/// Statements that go straight to their rows, in order, without sorting.
const STRAIGHT: &[&str] = &[
    witness::RECEIVED,
    witness::SENT,
    witness::NEWEST_OP,
    outbox::BY_ID_KEY,
    outbox::INSERT,
    outbox::INSERT_IF_FREE,
    outbox::NOTE_SENDER,
    outbox::DUE,
    outbox::ONE,
    outbox::NEXT_DUE,
    outbox::DONE,
    outbox::DEAD_IS_DONE,
    outbox::DEAD,
    outbox::DEAD_UNKNOWN,
    outbox::DEAD_REASON,
    outbox::RETRY,
    outbox::RETRY_IN_PLACE,
    outbox::RECOVER_INFLIGHT,
    outbox::NOTE_INTERRUPTED,
    outbox::BY_ARRIVAL,
    outbox::WINDOW,
    outbox::URGENT,
    outbox::PARK,
    outbox::PARK_INFLIGHT,
    outbox::NOTE,
    outbox::TRIM,
    outbox::OF_ROW,
    outbox::LOOK,
    outbox::EMPTY,
    outbox::RETIRE,
    outbox::PENDING_BYTES,
    outbox::HAS_DEAD,
    outbox::INFLIGHT_BYTES,
    outbox::WRITE_MARK,
    outbox::MARK_BIRTH,
    outbox::MOVE_BIRTH,
    outbox::NEWEST_ROW,
    outbox::OVER_AGE,
    outbox::FORGET_BIRTHS,
    outbox::ABORT,
    outbox::BY_ROW_ID,
    outbox::BY_PREDECESSOR,
    outbox::ALL,
    outbox::EXCEPTIONAL,
    outbox::REACH,
    outbox::REACHED,
    outbox::MOVED_AWAY,
    outbox::SINCE,
    outbox::LOOKED,
    outbox::MESH_OF,
    outbox::LOST_LOOK,
    outbox::NOTE_LOST,
    outbox::WAITING,
    outbox::WAS_TAKEN,
    outbox::SET_STATE,
    outbox::MOVED,
    outbox::NOT_LOST,
    outbox::COUNTS,
    outbox::DROPPED,
    outbox::LIST,
    outbox::OF_ARRIVAL,
    inbox::HAS_KEY,
    inbox::AT_PLACE,
    inbox::SET_ASIDE,
    inbox::UNSAY,
    inbox::RAISE_CURSOR,
    inbox::CURSOR,
    inbox::ACK,
    inbox::KNOWN,
    inbox::MAILBOX,
    inbox::MAILBOX_UNREAD,
    inbox::EVERYTHING,
    inbox::EVERYTHING_UNREAD,
    inbox::NEXT_TO_INDEX,
    inbox::LOOK_THROUGH,
    inbox::LOST,
    inbox::MARK_LEVELS,
    inbox::ASK_AGAIN,
    inbox::MOVE_LOST,
    inbox::COPY,
    inbox::FIND,
    inbox::PAST,
    inbox::RECEIVED,
    inbox::RECEIVED_ONE,
    inbox::SENT,
    inbox::SENT_ONE,
    inbox::IS_KNOWN,
    inbox::INDEX,
    inbox::SHOW,
    inbox::QUEUE,
    inbox::QUEUE_ALL,
    inbox::QUEUE_AT,
    inbox::LET_GO,
    inbox::RECEIPTS_DUE,
    inbox::CONFIRM,
    inbox::SESSION,
    inbox::OLDEST_UNREAD,
    inbox::MOVE,
    inbox::ENTER,
    inbox::LOOK,
    inbox::STARTED,
    inbox::ENDED,
    data::CLOCK,
    data::IS_SHARED,
    data::IS_QUEUED,
    data::backfill::MEMORY,
    data::backfill::STATE,
    data::backfill::FILES,
    tasks::BACKFILL,
    sync::PUBLISHED,
    sync::BEGIN,
    sync::CURSOR,
    sync::MOVE_PUBLISH,
    sync::ADVANCE,
    sync::FINISH,
    sync::SNAPSHOT,
    sync::UNSENT,
    sync::SHARE,
    data::INSERT_OP,
    data::STATE_LIFE,
    data::MEMORY_LIFE,
    data::QUEUE_OP,
    sync::HEAD,
    sync::WAITING_OUT,
    sync::REFUSED_OUT,
    sync::DUE_OPS,
    sync::UPLOAD_OPS,
    sync::CONFIRM_INFLIGHT,
    sync::CONFIRM_DONE,
    sync::UNQUEUE_OP,
    sync::REFUSED,
    sync::PUT_OFF,
    sync::INSERT_INCOMING,
    sync::KNOWN_BY_ID,
    sync::MOVED_INCOMING,
    sync::BYTES_OF,
    sync::EPOCHS_READ,
    sync::LET_BE,
    sync::LET_BE_HOLE,
    sync::PLACES_OF,
    sync::OPEN,
    sync::APPLIED,
    sync::NOT_APPLIED,
    sync::SET_ASIDE,
    sync::REFUSED_FOR_GOOD,
    sync::ABORT_OP,
    sync::UNQUEUE,
    sync::RELEASE,
    sync::REPLAY_LOOK,
    sync::MOVED,
    data::CONSUMED,
    data::CONSUME,
    data::MEMORY_STAMP,
    data::MEMORY_VALUE,
    data::MEMORY_LIST,
    data::PLACE_OF,
    data::STATE_STAMP,
    data::STATE_VALUE,
    data::STATE_GET,
    data::STATE_LIST,
    tasks::KEEP_OP,
    tasks::OPS,
    tasks::BLOCK,
    tasks::WAIT_SELF,
    tasks::WAIT_BEHIND,
    tasks::DROP_EVENTS,
    tasks::NOTE_EVENT,
    tasks::ONE,
    tasks::BLOCKERS,
    tasks::EVERY,
    tasks::BY_STATUS,
    tasks::READY,
    tasks::EVENTS,
    tasks::UNSEEN,
    tasks::SEE,
    tasks::FORGET,
    tasks::CLAIMS,
    tasks::KNOWN,
    data::WARNINGS_DUE,
    data::WARNING_SHOW,
    data::WARNING_DROP,
    data::WARNINGS_WAITING,
    data::WARNING_REWORD,
    files::STAMP,
    files::FLOOR,
    files::BY_OP,
    files::BY_PATH,
    files::FILE_BEFORE,
    files::LIST,
    files::PLACE_OF,
    files::CONTENT,
    files::ARRIVED,
    files::NOTED,
    files::NAMING,
    files::NEXT_MESH,
    files::SET_COUNT,
    files::RELEASE,
    files::FORGET,
    files::IS_WANTED,
    files::HERE,
    files::MISSING,
    files::SHARED_IN,
    files::OLD_MARKS,
    data::DATA_FLOOR,
    invites::KEEP,
    invites::KEPT,
    data::OLD_MEMORY,
    data::OLD_STATE,
    data::OLD_VECTORS,
    files::PENDING,
    data::vector_sql::HAS_LIVE_HERE,
    data::vector_sql::MODEL,
    data::vector_sql::REGISTER,
    data::vector_sql::LEAVE,
    data::vector_sql::COME_BACK,
    data::vector_sql::NOTE_READ,
    data::vector_sql::STAMP,
    data::vector_sql::COUNT_CHANGE,
    data::vector_sql::HEAD,
    data::vector_sql::LABELS,
    data::vector_sql::ALL_LABELS,
    data::vector_sql::HAS_ROWS,
    data::vector_sql::BY_PLACE,
    data::vector_sql::LIST,
    data::vector_sql::LIVE_MODELS,
    data::vector_sql::DUMP,
    data::about::MEMORY,
    data::about::STATE,
    data::about::FILE,
    data::about::VECTOR,
    data::about::STEPS,
    data::about::TASK,
    missing::ANSWERS,
    missing::SENT,
    unsent::JUDGED,
    unsent::HAS_ROW,
    unsent::CAME_BACK,
    sync::APPLIED_FROM,
    sync::FORGET_APPLIED,
    agents::AGENTS,
    figures::OUTBOX_ROWS,
    figures::INFLIGHT,
    figures::DEAD,
    figures::ABORTED,
];

/// Statements that visit the whole of something small, and what that is.
const WHOLE: &[(&str, &str)] = &[
    (
        outbox::MARK_INFLIGHT,
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
    ),
    (outbox::RECOVER_PENDING, "SCAN outbox_sender"),
    (outbox::RECOVER_OPS, "SCAN op_outbox"),
    (outbox::SENDERS, "SCAN outbox_sender"),
    (outbox::COUNT, "SCAN outbox_sender"),
    (outbox::READ_MARK, "SCAN age_clock"),
    (outbox::NEWEST_BIRTHS, "SCAN outbox_birth"),
    (outbox::BORN_BY, "SCAN outbox_birth"),
    (
        outbox::PENDING,
        "SCAN outbox USING COVERING INDEX outbox_due",
    ),
    (
        figures::PENDING,
        "SCAN outbox USING COVERING INDEX outbox_due",
    ),
    (figures::UNREAD, "SCAN inbox USING INDEX inbox_unread"),
    (figures::INBOX, "SCAN delivery"),
    (files::WANTED, "SCAN blob_refs USING INDEX blob_refs_wanted"),
    (files::MARK_LOST, "SCAN mesh"),
    (
        files::LOST_PATH,
        "SCAN mesh USING INDEX sqlite_autoindex_mesh_2",
    ),
    (inbox::LAST_ARRIVAL, "SCAN sqlite_sequence"),
    (inbox::INDEXED_THROUGH, "SCAN inbox_state"),
    (inbox::MARK_INDEXED, "SCAN inbox_state"),
    (inbox::MARK_PRUNED, "SCAN inbox_state"),
    (inbox::PRUNE_CUTOFF, "SCAN inbox_state"),
    (inbox::HOOKS_THROUGH, "SCAN inbox_state"),
    (inbox::OWED, "SCAN inbox_hook USING INDEX inbox_hook_open"),
    (
        inbox::GIVE_UP,
        "SCAN inbox_hook USING INDEX inbox_hook_open",
    ),
    (inbox::LEAVE_IDS, "SCAN json_each VIRTUAL TABLE INDEX 1:"),
    (inbox::TAKE, "SCAN json_each VIRTUAL TABLE INDEX 1:"),
    (inbox::FORGET_HOOKS, "SCAN json_each VIRTUAL TABLE INDEX 1:"),
    (inbox::INSERT, "SCAN CONSTANT ROW"),
    (
        data::MEMORY_SEARCH,
        "SCAN memory_fts VIRTUAL TABLE INDEX 0:M3",
    ),
    (data::vector_sql::MODELS, "SCAN vector_models"),
    (files::BEFORE_BY_OP, "SCAN was"),
    (files::IS_BEFORE, "SCAN file_before"),
    (inbox::SEARCH, "SCAN inbox_fts VIRTUAL TABLE INDEX 192:M3<>"),
];

fn fresh_schema() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for step in schema::MIGRATIONS {
        connection.execute_batch(step.sql).unwrap();
    }
    connection
}

fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap();
    for index in 1..=statement.parameter_count() {
        statement.raw_bind_parameter(index, None::<i64>).unwrap();
    }
    let mut rows = statement.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get::<_, String>("detail").unwrap());
    }
    lines
}

#[test]
fn no_hot_statement_scans_or_sorts() {
    let connection = fresh_schema();
    for sql in STRAIGHT {
        let plan = plan(&connection, sql);
        // A constant row is the one of a question that names no table.
        let straight = |line: &String| {
            line == "SCAN CONSTANT ROW" || !line.contains("SCAN") && !line.contains("TEMP B-TREE")
        };
        assert!(plan.iter().all(straight), "{sql}\n{plan:?}");
    }
}

/// Statements that ask for rows by what they are called: with the mesh alone they would go through all of its rows, for
/// each row that is asked about.
const BY_NAME: &[&str] = &[
    sync::PLACES_OF,
    sync::KNOWN_BY_ID,
    data::CONSUMED,
    data::STATE_STAMP,
    data::STATE_VALUE,
    data::MEMORY_STAMP,
    data::MEMORY_VALUE,
    outbox::BY_ID_KEY,
    tasks::ONE,
    files::BY_PATH,
];

#[test]
fn what_is_asked_for_by_name_is_found_by_name() {
    let connection = fresh_schema();
    for sql in BY_NAME {
        let plan = plan(&connection, sql);
        let goes_through = plan.iter().any(|line| line.ends_with("(mesh_id=?)"));
        assert!(!goes_through, "{sql}\n{plan:?}");
    }
}

/// Tables whose rows of a mesh only ever become more.
const GROWING: &[&str] = &["op_inbox", "outbox", "inbox", "applied_request"];

/// Those that go through all of them all the same: once for each epoch of a broker.
const ONCE_AN_EPOCH: &[&str] = &[sync::EPOCHS_READ, inbox::QUEUE_ALL];

fn partial_indexes(connection: &Connection) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql LIKE '% WHERE %'";
    let mut statement = connection.prepare(sql).unwrap();
    let names = statement.query_map([], |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

#[test]
fn nothing_that_runs_again_and_again_goes_through_what_only_grows() {
    let connection = fresh_schema();
    let listed = [sync::OPEN_COUNTS, sync::LISTED, own_refused::REFUSED];
    let partial = partial_indexes(&connection);
    for sql in STRAIGHT.iter().chain(&listed) {
        let plan = plan(&connection, sql);
        let goes_through = |line: &String| {
            let table = line.strip_prefix("SEARCH ").unwrap_or_default();
            let table = table.split(' ').next().unwrap_or_default();
            // An index of what is open holds nothing else.
            let is_whole = !partial
                .iter()
                .any(|index| line.contains(&format!(" {index} (")));
            GROWING.contains(&table) && line.ends_with("(mesh_id=?)") && is_whole
        };
        let found = plan.iter().any(goes_through);
        assert_eq!(found, ONCE_AN_EPOCH.contains(sql), "{sql}\n{plan:?}");
    }
}

#[test]
fn what_is_scanned_is_small_and_named() {
    let connection = fresh_schema();
    for (sql, expected) in WHOLE {
        let plan = plan(&connection, sql);
        let scans: Vec<_> = plan.iter().filter(|line| line.contains("SCAN")).collect();
        assert_eq!(scans, [expected], "{sql}\n{plan:?}");
    }
}
