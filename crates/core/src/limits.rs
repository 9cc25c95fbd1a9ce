//! Every bound of the system, by name, with the relations between them proven at compile time.

use std::time::Duration;

// --- requests -------------------------------------------------------------

/// One HTTP request body (and so one message with its meta): 1 MB.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// The head of an HTTP request, its target and all of its headers, before `431 headers_too_large`.
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 << 10;
/// Requests in flight at one daemon before `429 daemon_busy`.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 64;
/// Requests that look after the daemon, beyond those.
pub const HOUSE_REQUESTS_MAX: usize = 8;
/// Event streams open at one daemon before `429 too_many_streams`.
pub const EVENT_STREAMS_MAX: usize = 32;
/// Connections open at one daemon, kept well below a usual descriptor limit.
pub const CONNECTIONS_MAX: usize = 512;
/// Daemons connected to one broker, kept below a usual descriptor limit too; one more is told to ask again, here or at
/// another broker.
pub const BROKER_DAEMONS_MAX: usize = 512;
/// Requests that a broker's HTTP pages (health, figures, invitations, parts of snapshots) answer at once.
pub const BROKER_PAGES_MAX: usize = 64;
/// Connections at a broker's door that have not said yet which of the two they are.
pub const BROKER_ARRIVALS_MAX: usize = 128;
/// How long one of those has, at least, before it makes room for another where all of their places are taken.
pub const BROKER_ARRIVAL_PATIENCE: Duration = Duration::from_secs(2);
/// How long a page may take from its request to its last byte, however slowly it is read.
pub const BROKER_PAGE_TIMEOUT: Duration = Duration::from_secs(90);
/// A response larger than this is paged with a cursor.
pub const RESPONSE_BYTES_MAX: usize = 10 << 20;
/// Sustained requests per second and token on TCP.
pub const TCP_REQUESTS_PER_SECOND: u32 = 100;
/// Burst of requests per token on TCP.
pub const TCP_REQUESTS_BURST: u32 = 1000;
/// How long a client may take over its request head; also the idle limit of a kept connection.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take over its request body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Of a request that is refused before it was read to its end, so much is read on and not kept, and for so long: whoever is cut
/// off while it writes never reads why.
pub const UNREAD_BYTES_MAX: usize = 16 << 20;
pub const UNREAD_WAIT: Duration = Duration::from_secs(2);
/// How long a stopping daemon waits for what is in flight.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

// --- fields ---------------------------------------------------------------

/// Nesting of a JSON document that we accept.
pub const JSON_DEPTH_MAX: usize = 64;
/// A caller's `Idempotency-Key` or `client_message_id`.
pub const CLIENT_MESSAGE_ID_BYTES_MAX: usize = 256;
/// A mesh, member, agent, topic or queue name.
pub const NAME_BYTES_MAX: usize = 128;
/// A `reply_to_id`.
pub const REPLY_TO_BYTES_MAX: usize = 256;
/// Mentions in one message.
pub const MENTIONS_MAX: usize = 64;
/// Subscribers of one topic, and so the recipients of one message (T-29).
pub const RECIPIENTS_MAX: usize = 1024;
/// Rows on one page of a listing, unless the caller asks for fewer.
pub const PAGE_ROWS_MAX: usize = 500;
/// Rows on one page when the caller does not say.
pub const PAGE_ROWS_DEFAULT: usize = 50;
/// Candidates named in a refusal of a recipient.
pub const CANDIDATES_MAX: usize = 10;

// --- data -------------------------------------------------------------------

/// A key or a tag of memory and state.
pub const DATA_KEY_BYTES_MAX: usize = 256;
/// A value of memory or state, as canonical JSON: 256 KB.
pub const DATA_VALUE_BYTES_MAX: usize = 256 << 10;
/// Tags of one memory.
pub const DATA_TAGS_MAX: usize = 16;
/// An op as it travels. A value is text in it, so every byte may take two.
pub const OP_BYTES_MAX: usize = 640 << 10;
/// `MEMBER_ID/agent` in a stamp.
pub const PEER_BYTES_MAX: usize = 256;

/// A task's title.
pub const TASK_TITLE_BYTES_MAX: usize = 512;
/// A task's description: 64 KB.
pub const TASK_TEXT_BYTES_MAX: usize = 64 << 10;
/// Tasks that must be finished before another is ready.
pub const TASK_BLOCKERS_MAX: usize = 64;
/// Shortest lease of a claim.
pub const TASK_LEASE_MS_MIN: u64 = 1000;
/// Longest lease of a claim.
pub const TASK_LEASE_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;
/// The lease of a claim that does not say.
pub const TASK_LEASE_MS_DEFAULT: u64 = 30 * 60 * 1000;
/// Warnings that one answer carries; the rest come with the next.
pub const WARNINGS_MAX: usize = 32;
/// Writes that an agent lost and was not told of yet; of more, the oldest are only counted.
pub const LOST_WRITES_MAX: usize = 256;
/// How much of a value a warning keeps; of a longer one its beginning.
pub const LOST_VALUE_BYTES_MAX: usize = 1024;

// --- files ------------------------------------------------------------------

/// The path that a file is shared under.
pub const FILE_PATH_BYTES_MAX: usize = 1024;
/// One part of such a path: what a file system takes as a name.
pub const FILE_PATH_PART_BYTES_MAX: usize = 255;
/// A media type.
pub const MEDIA_TYPE_BYTES_MAX: usize = 127;
/// Content shorter than this stands in its row; the rest is a blob of its own: 64 KB.
pub const FILE_INLINE_BYTES_MAX: usize = 64 << 10;
/// One shared file: 4 GB.
pub const FILE_BYTES_MAX: u64 = 4 << 30;
/// Content up to this comes along in the JSON answer: what came in a body goes out in one.
pub const FILE_JSON_BYTES_MAX: u64 = REQUEST_BYTES_MAX as u64;
/// Files that are streamed out, or read in, at once.
pub const FILE_STREAMS_MAX: usize = 16;
/// How long a reader of a stream may take nothing.
pub const FILE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer than others a caller waits for a file to be read in, hashed and synced.
pub const FILE_ANSWER_EXTRA: Duration = Duration::from_secs(600);
/// Between two sweeps of the blobs.
pub const SWEEP_EVERY: Duration = Duration::from_hours(24);
/// What nobody names is left alone for this long.
pub const SWEEP_GRACE: Duration = Duration::from_hours(1);
/// Blobs that one transaction of a sweep settles.
pub const SWEEP_BLOBS_MAX: usize = 64;
/// How long the mark of a deleted file is kept at least.
pub const TOMBSTONE_LIFE: Duration = Duration::from_hours(90 * 24);
/// Bytes of a blob that travel in one frame.
pub const BLOB_PART_BYTES_MAX: u32 = 256 << 10;
/// Parts that one connection may have asked for, and not yet taken, at once.
pub const BLOB_ASKS_MAX: usize = 4;
/// Parts that one home is asked for by all the others at once.
pub const BLOB_ASKED_MAX: usize = 8;
/// How long a member may take over one part.
pub const BLOB_PART_TIMEOUT: Duration = Duration::from_secs(20);
/// Blobs that are looked at in one round of fetching.
pub const BLOBS_WANTED_MAX: usize = 64;
/// How long a caller waits for a file whose bytes are on their way.
pub const FILE_FETCH_WAIT: Duration = Duration::from_secs(8);

// --- vectors ----------------------------------------------------------------

/// Numbers in one embedding.
pub const VECTOR_DIM_MAX: usize = 8192;
/// The text that an embedding stands for: 64 KB.
pub const VECTOR_CONTENT_BYTES_MAX: usize = 64 << 10;
/// What a caller keeps beside it, as canonical JSON: 64 KB.
pub const VECTOR_METADATA_BYTES_MAX: usize = 64 << 10;
/// Models that one op or one key may concern.
pub const VECTOR_MODELS_MAX: usize = 64;
/// Hits of one search.
pub const VECTOR_HITS_MAX: usize = 100;
/// Hits of a caller who does not say.
pub const VECTOR_HITS_DEFAULT: usize = 10;
/// From so many rows of a model on, sketches choose who is measured exactly.
pub const VECTOR_TWO_STAGE_ROWS_MIN: usize = 20_000;
/// Vectors that are kept in memory for searching; models that are not asked for make room.
pub const VECTOR_MEMORY_BYTES_MAX: usize = 512 << 20;
/// How long a provider of embeddings may take where the config does not say.
pub const VECTOR_PROVIDER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that the config may say.
pub const VECTOR_PROVIDER_TIMEOUT_MAX: Duration = Duration::from_secs(120);
/// A provider's answer: numbers as text, and then some.
pub const VECTOR_PROVIDER_BYTES_MAX: usize = 1 << 20;
/// Embeddings that are made at once.
pub const VECTOR_PROVIDERS_AT_ONCE_MAX: usize = 4;
/// Rows that one call of a re-embedding moves.
pub const VECTOR_MOVES_MAX: usize = 32;
/// How long the vectors of a model that was left stay, after nobody asked for them.
pub const VECTOR_GRACE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

// --- inbox ------------------------------------------------------------------

/// Days that an item stays in the inbox after it was shown, unless the config says otherwise.
pub const INBOX_RETENTION_DAYS_DEFAULT: u32 = 30;
/// A search query.
pub const SEARCH_QUERY_BYTES_MAX: usize = 1024;
/// Words and phrases in one search query.
pub const SEARCH_TERMS_MAX: usize = 32;
/// Receipts in one report to the broker.
pub const RECEIPT_ITEMS_MAX: usize = 256;
/// Events of the daemon that may wait for a slow reader; beyond them it is told how many it missed.
pub const EVENTS_WAITING_MAX: usize = 256;

// --- link between daemon and broker ----------------------------------------

/// One WebSocket message, either way.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
/// Mailboxes of one home in one mesh: a hello names all of them, and one that names more is refused, so one more is refused
/// when it is to be made, not when the home connects the next time.
pub const AGENTS_MAX: usize = 8192;
/// Payload bytes that a sender puts into one batch frame.
pub const BATCH_BYTES_MAX: usize = 2 << 20;
/// Envelopes in one batch frame.
pub const BATCH_ITEMS_MAX: usize = 256;
/// Deliveries pushed and not yet acknowledged on one connection.
pub const PUSH_WINDOW_MAX: usize = 1024;
/// Frames waiting to be written to one connection.
pub const SEND_BUFFER_FRAMES_MAX: usize = 64;
/// Silence after which a ping is sent.
pub const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Silence after which the peer is taken for dead.
pub const PING_DEADLINE: Duration = Duration::from_secs(40);
/// How long a hello may take.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the nonce of a challenge is good, from when it was made: for one frame of its own connection (T-20).
pub const NONCE_LIFE: Duration = Duration::from_secs(5);
const _: () = assert!(NONCE_LIFE.as_secs() < HELLO_TIMEOUT.as_secs());
/// How long the daemon waits for the broker's reply to a request of a caller.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the first call of a new mailbox waits for the broker to hear of it.
pub const REGISTER_TIMEOUT: Duration = Duration::from_secs(1);
const _: () = assert!(REGISTER_TIMEOUT.as_secs() < REPLY_TIMEOUT.as_secs());
/// How long a caller on this machine waits for the daemon's answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the daemon waits for the broker's verdict on a batch.
pub const VERDICT_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest lease on a message of a queue.
pub const QUEUE_LEASE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// The lease of a caller who does not say.
pub const QUEUE_LEASE_DEFAULT: Duration = Duration::from_secs(300);
/// Messages that one call takes from a queue, or settles.
pub const QUEUE_ITEMS_MAX: usize = 100;
/// How long a take may wait for work.
pub const QUEUE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Takes that wait at one daemon; each holds a place among the requests in flight.
pub const QUEUE_WAITS_MAX: usize = 32;
/// How long a session counts as present after the last sign of life.
pub const SESSION_LEASE: Duration = PING_DEADLINE;
/// Recipients that one explanation lists.
pub const DELIVERIES_EXPLAINED_MAX: usize = 4096;

// --- writers ---------------------------------------------------------------

/// Writes waiting for one SQLite writer.
pub const WRITE_QUEUE_MAX: usize = 4096;

// --- retry -----------------------------------------------------------------

/// Shortest wait before a retry.
pub const BACKOFF_MS_MIN: u64 = 1_000;
/// Longest wait before a retry.
pub const BACKOFF_MS_MAX: u64 = 60_000;

// --- disk ------------------------------------------------------------------

/// Share of the disk budget from which pressure is said aloud.
pub const DISK_HIGH_PERCENT: u64 = 80;
/// Share of the disk budget from which new sends are refused.
pub const DISK_REFUSE_PERCENT: u64 = 95;
/// Free space on the file system that is enough whatever else is full.
pub const DISK_FREE_ENOUGH: u64 = 256 << 20;
/// Room that a short disk keeps for the logs of databases, at least.
pub const LOG_ROOM_MIN: u64 = 256 << 10;
/// The same at most.
pub const LOG_ROOM_MAX: u64 = 4 << 20;
/// Room on the disk that a start needs: for the files of a new home, and for the logs of the databases of an old one.
pub const START_ROOM: u64 = 4 << 20;
/// What a message takes of a disk beside its own bytes, for each copy: rows, indexes, what its last page has to spare.
pub const DISK_ROW_BYTES: u64 = 2 << 10;
/// Rows whose payloads one transaction of a prune empties.
pub const PRUNE_ROWS_MAX: usize = 200;
/// Payload bytes that one transaction of a prune empties; a larger row goes alone.
pub const PRUNE_BYTES_MAX: usize = 2 << 20;
/// The fewest rows for which one transaction is worth it on a disk with little room.
pub const PRUNE_ROWS_MIN: usize = 8;
/// Rows that a prune looks at between two transactions.
pub const PRUNE_LOOK_MAX: i64 = 4096;

// --- attempts --------------------------------------------------------------

/// Attempts of a row that its log keeps from its beginning.
pub const ATTEMPTS_FIRST_KEPT: u32 = 5;
/// Attempts of a row that its log keeps from its end.
pub const ATTEMPTS_LAST_KEPT: u32 = 20;
/// A message that a broker has lost is sent again up to this age, or up to the age at which it would have died unsent:
/// whoever received an older one has dropped it by now, and whoever subscribed since would take it for new.
pub const LOST_AGE_MAX: Duration = Duration::from_hours(INBOX_RETENTION_DAYS_DEFAULT as u64 * 24);
/// Due rows among which the more urgent go first.
pub const DUE_WINDOW_ROWS: usize = 1024;

// --- retention -------------------------------------------------------------

/// Shortest dedupe memory a broker may have.
pub const DEDUPE_RETENTION_DAYS_MIN: u32 = 7;
/// Dedupe memory of our own broker.
pub const DEDUPE_RETENTION_DAYS_DEFAULT: u32 = 365;
/// A century: beyond it, say `permanent`.
pub const DEDUPE_RETENTION_DAYS_MAX: u32 = 36_500;
/// Max age of an outbox row against a broker that never forgets.
pub const MAX_AGE_HOURS_PERMANENT: u32 = 168;
/// Cap on an override against a broker that never forgets.
pub const MAX_AGE_HOURS_PERMANENT_CAP: u32 = 720;
/// Hours that always stay between an outbox row's end and the broker's memory.
pub const SAFETY_MARGIN_HOURS_MIN: u32 = 24;

// --- hooks -----------------------------------------------------------------

/// Hooks that run at once.
pub const HOOKS_AT_ONCE_MAX: usize = 8;
/// Event that a hook reads; a longer one is cut and says so.
pub const HOOK_INPUT_BYTES_MAX: usize = 256 << 10;
/// Output of a hook that is kept; the rest is read and dropped.
pub const HOOK_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// How long a hook may run where its policy does not say.
pub const HOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// Between the request to end and the end by force.
pub const HOOK_GRACE: Duration = Duration::from_secs(2);
/// A hook's token ends with its process, and at the latest then.
pub const HOOK_TOKEN_LIFE: Duration = Duration::from_secs(300);
/// Size of `hooks.toml`.
pub const HOOK_POLICY_BYTES_MAX: usize = 256 << 10;
/// Events without a row (a lost link, say) that wait for a free place.
pub const HOOK_EVENTS_WAITING_MAX: usize = 64;
/// Size of the audit file; the one before it is kept beside it.
pub const HOOK_AUDIT_BYTES_MAX: u64 = 4 << 20;

// --- start -----------------------------------------------------------------

/// What a cold start should take, from the process's first step to its open doors (local-first §17.2).
pub const COLD_START_BUDGET: Duration = Duration::from_millis(400);

// --- sync ------------------------------------------------------------------

/// Items of an index for searching, the newest, whose words a doctor compares.
pub const SEARCH_ITEMS_COMPARED_MAX: usize = 50_000;

/// Refusals of one op after which its mesh's sync pauses.
pub const OP_REFUSALS_MAX: u32 = 10;
/// Ops that one read of the log gives.
pub const LOG_PAGE_MAX: usize = 256;
/// Holes of a log that are told apart.
pub const LOG_HOLES_MAX: usize = 1000;
/// Rows that one transaction of a publish makes ops of.
pub const PUBLISH_ROWS_AT_ONCE: usize = 200;
/// And so many bytes of their ops, but at least one row: the transaction stays short.
pub const PUBLISH_BYTES_AT_ONCE: usize = 1 << 20;
/// A mesh with more rows is published as one snapshot: others see all of it or none (LF-34).
pub const SNAPSHOT_ROWS_MIN: u64 = 10_000;
/// How long a broker keeps an upload that nobody goes on with.
pub const UPLOAD_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long one request to commit an upload goes on accepting its rows; then whoever asked asks again.
pub const UPLOAD_COMMIT_TURN: Duration = Duration::from_secs(15);
/// How long somebody who cannot read on for the commit of an upload helps to bring it to its end.
pub const UPLOAD_HELP_TURN: Duration = Duration::from_secs(1);
/// An answer to a commit is waited for as long.
pub const UPLOAD_COMMIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Ops that one transaction applies: a page of the log.
pub const OPS_APPLIED_AT_ONCE: usize = LOG_PAGE_MAX;
/// Parked ops that are tried again when something new arrived.
pub const OPS_PARKED_TRIED_MAX: usize = 500;
/// Between two ticks of a mesh in whose log something happens.
pub const SYNC_ACTIVE_TICK: Duration = Duration::from_millis(500);
/// Between two ticks of a mesh in whose log nothing happens; a hint makes one at once.
pub const SYNC_IDLE_TICK: Duration = Duration::from_secs(5);
/// After so long without anything to do a mesh is idle.
pub const SYNC_QUIET: Duration = Duration::from_secs(30);

// --- membership --------------------------------------------------------------

/// Meshes of one home.
pub const MESHES_MAX: usize = 64;
/// How many may join by one invitation.
pub const INVITE_USES_MAX: u32 = 1000;
/// How long an invitation lasts unless told otherwise, and at most.
pub const INVITE_LIFE_DEFAULT: Duration = Duration::from_hours(7 * 24);
pub const INVITE_LIFE_MAX: Duration = Duration::from_hours(90 * 24);
/// The address of a broker in an invitation.
pub const INVITE_URL_BYTES_MAX: usize = 512;
/// The coded part of a link.
pub const LINK_CHARS_MAX: usize = 2048;

// --- clocks ----------------------------------------------------------------

/// How far an op's Lamport stamp may be ahead of all before it in the mesh's log (C39). An honest home is
/// ahead by what it changed while it was away.
pub const LAMPORT_AHEAD_MAX: u64 = 1 << 24;
/// No stamp beyond it is taken, so that local changes have room up to what JSON keeps exactly.
pub const LAMPORT_MAX: u64 = 1 << 52;

const _: () = {
    // A hook is stopped within the time that a shutdown has.
    assert!(HOOK_GRACE.as_secs() * 2 < SHUTDOWN_TIMEOUT.as_secs());
    assert!(HOOK_TIMEOUT.as_secs() <= HOOK_TOKEN_LIFE.as_secs());
    // A batch with its framing fits a frame, and one largest message fits a batch even when
    // every byte of it is escaped to two.
    // With quotes and a comma; a name has no character that JSON writes as more than two.
    assert!(AGENTS_MAX * (NAME_BYTES_MAX * 2 + 3) <= FRAME_BYTES_MAX);
    assert!(BATCH_BYTES_MAX + BATCH_ITEMS_MAX * 1024 <= FRAME_BYTES_MAX);
    assert!(REQUEST_BYTES_MAX <= BATCH_BYTES_MAX);
    assert!(REQUEST_BYTES_MAX * 2 <= RESPONSE_BYTES_MAX);
    // A value with its key and tags fits a request, and any one of them an answer.
    assert!(DATA_VALUE_BYTES_MAX + (DATA_TAGS_MAX + 1) * DATA_KEY_BYTES_MAX < REQUEST_BYTES_MAX);
    assert!(DATA_VALUE_BYTES_MAX * 2 < RESPONSE_BYTES_MAX);
    // Both values, in JSON and in words.
    assert!(WARNINGS_MAX * LOST_VALUE_BYTES_MAX * 4 < RESPONSE_BYTES_MAX / 8);
    assert!(TASK_TITLE_BYTES_MAX + TASK_TEXT_BYTES_MAX < DATA_VALUE_BYTES_MAX);
    assert!(
        TASK_LEASE_MS_MIN <= TASK_LEASE_MS_DEFAULT && TASK_LEASE_MS_DEFAULT <= TASK_LEASE_MS_MAX
    );
    // A file in its row fits a request and an op as base64; the largest is an exact number in JSON.
    assert!(FILE_INLINE_BYTES_MAX * 2 < REQUEST_BYTES_MAX);
    assert!(FILE_INLINE_BYTES_MAX * 2 + FILE_PATH_BYTES_MAX * 2 < OP_BYTES_MAX);
    assert!(FILE_JSON_BYTES_MAX * 2 < RESPONSE_BYTES_MAX as u64);
    assert!(FILE_BYTES_MAX < (1 << 53));
    assert!((BLOB_PART_BYTES_MAX as usize) * 2 < BATCH_BYTES_MAX);
    assert!(BLOB_ASKS_MAX + BLOB_ASKED_MAX < SEND_BUFFER_FRAMES_MAX);
    assert!(FILE_FETCH_WAIT.as_secs() < ANSWER_TIMEOUT.as_secs());
    assert!(FILE_STREAMS_MAX * 2 <= REQUESTS_IN_FLIGHT_MAX);
    assert!(SWEEP_GRACE.as_secs() < SWEEP_EVERY.as_secs());
    // A vector with everything beside it fits a request, also with its numbers written out.
    assert!(
        VECTOR_DIM_MAX * 24 + VECTOR_CONTENT_BYTES_MAX * 6 + VECTOR_METADATA_BYTES_MAX
            < REQUEST_BYTES_MAX
    );
    assert!(
        VECTOR_DIM_MAX * 6 + VECTOR_CONTENT_BYTES_MAX * 6 + VECTOR_METADATA_BYTES_MAX * 2
            < OP_BYTES_MAX
    );
    assert!(VECTOR_DIM_MAX * 24 < VECTOR_PROVIDER_BYTES_MAX);
    assert!(VECTOR_PROVIDER_TIMEOUT.as_secs() < ANSWER_TIMEOUT.as_secs());
    assert!(
        VECTOR_HITS_MAX * (VECTOR_CONTENT_BYTES_MAX + VECTOR_METADATA_BYTES_MAX)
            < 2 * RESPONSE_BYTES_MAX
    );
    // So does an op, and it fits a batch when every byte of it is escaped once more.
    assert!(DATA_VALUE_BYTES_MAX * 2 + (DATA_TAGS_MAX + 2) * DATA_KEY_BYTES_MAX * 2 < OP_BYTES_MAX);
    assert!(OP_BYTES_MAX * 2 <= BATCH_BYTES_MAX);
    assert!(NAME_BYTES_MAX + 32 < PEER_BYTES_MAX);
    // Every request in flight finds a place in the writer's queue.
    assert!(REQUESTS_IN_FLIGHT_MAX < WRITE_QUEUE_MAX);
    // Consumers that wait for work leave places to those who bring some.
    assert!(QUEUE_WAITS_MAX * 2 <= REQUESTS_IN_FLIGHT_MAX);
    assert!(QUEUE_ITEMS_MAX <= BATCH_ITEMS_MAX);
    assert!(QUEUE_LEASE_DEFAULT.as_millis() <= QUEUE_LEASE_MS_MAX as u128);
    // Whoever asks what became of a message is shown every recipient.
    assert!(RECIPIENTS_MAX <= DELIVERIES_EXPLAINED_MAX);
    assert!(EVENT_STREAMS_MAX + REQUESTS_IN_FLIGHT_MAX < CONNECTIONS_MAX);
    // A default of 1024 descriptors is enough for all of them, and for what a broker stands on.
    assert!(BROKER_DAEMONS_MAX + BROKER_PAGES_MAX + BROKER_ARRIVALS_MAX + 64 <= 1024);
    assert!(UNREAD_BYTES_MAX > FRAME_BYTES_MAX && UNREAD_WAIT.as_secs() < BODY_TIMEOUT.as_secs());
    assert!(BROKER_ARRIVAL_PATIENCE.as_secs() < HELLO_TIMEOUT.as_secs());
    assert!(UPLOAD_COMMIT_TIMEOUT.as_secs() < BROKER_PAGE_TIMEOUT.as_secs());
    // A live peer is pinged at least twice before it is taken for dead.
    assert!(PING_INTERVAL.as_secs() * 2 < PING_DEADLINE.as_secs());
    // A caller hears the daemon's word about a silent broker before it gives up on the daemon.
    assert!(REPLY_TIMEOUT.as_secs() < ANSWER_TIMEOUT.as_secs());
    assert!(BACKOFF_MS_MIN < BACKOFF_MS_MAX);
    assert!(INVITE_LIFE_DEFAULT.as_secs() <= INVITE_LIFE_MAX.as_secs());
    // The longest names and address, with keys, ids and signature, fit a link.
    assert!((INVITE_URL_BYTES_MAX + 2 * NAME_BYTES_MAX + 256) * 4 / 3 < LINK_CHARS_MAX);
    assert!(LOG_ROOM_MIN < LOG_ROOM_MAX && LOG_ROOM_MAX < DISK_FREE_ENOUGH);
    assert!(DISK_HIGH_PERCENT < DISK_REFUSE_PERCENT && DISK_REFUSE_PERCENT < 100);
    // A batch is chosen from more rows than it holds, or there would be no choice.
    assert!(BATCH_ITEMS_MAX < DUE_WINDOW_ROWS);
    // The smallest window still leaves a useful outbox.
    assert!(SAFETY_MARGIN_HOURS_MIN * 2 < DEDUPE_RETENTION_DAYS_MIN * 24);
    assert!(MAX_AGE_HOURS_PERMANENT <= MAX_AGE_HOURS_PERMANENT_CAP);
    assert!(PAGE_ROWS_DEFAULT <= PAGE_ROWS_MAX);
    assert!(LOG_PAGE_MAX <= BATCH_ITEMS_MAX);
    // Base64 and the rest of the items around it.
    assert!(BATCH_BYTES_MAX / 3 * 4 + BATCH_ITEMS_MAX * 1024 <= FRAME_BYTES_MAX);
    // Whoever asks for a commit hears about it before it gives up.
    assert!(UPLOAD_COMMIT_TURN.as_secs() * 2 < UPLOAD_COMMIT_TIMEOUT.as_secs());
    assert!(UPLOAD_HELP_TURN.as_secs() < REPLY_TIMEOUT.as_secs());
    assert!(SYNC_ACTIVE_TICK.as_millis() < SYNC_IDLE_TICK.as_millis());
    // A merged clock stays an exact integer in SQLite and in JSON, and whoever wants to use it up needs
    // more ops than a broker takes in years.
    assert!(LAMPORT_MAX * 2 <= (1 << 53));
    assert!(LAMPORT_MAX / LAMPORT_AHEAD_MAX >= 1 << 28);
};
