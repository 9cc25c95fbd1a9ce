//! The table of metrics. Adding one touches the place that counts, one line here and one in
//! `docs/METRICS.md`; a test says which of them was forgotten.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// Of work in this process.
    Histogram,
    /// Of a message's way, which may wait for a broker.
    WayHistogram,
}

#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Labels have few values, each known beforehand: never an id, a text or a caller's word.
    pub(crate) labels: &'static [&'static str],
    /// The values of its one label that are known here; each begins at zero. Empty where only the place
    /// that counts knows them.
    pub(crate) values: &'static [&'static str],
    pub(crate) help: &'static str,
}

impl Metric {
    /// Whether a broker that is its own process counts it.
    pub(super) fn is_of_brokers(&self) -> bool {
        let prefixes = ["heddle_broker_", "heddle_effect_", "heddle_log_"];
        prefixes.iter().any(|prefix| self.name.starts_with(prefix))
    }
}

macro_rules! metrics_table {
    ($($kind:ident $name:literal [$($label:literal $(= $($value:literal)|+)?)?] $help:literal;)*) => {
        pub(crate) const METRICS: &[Metric] = &[
            $(Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label)?],
                values: &[$($($($value),+)?)?],
                help: $help,
            },)*
        ];
    };
}

metrics_table! {
    // --- the door
    Histogram "heddle_ipc_accept_seconds" [] "From a parsed send to its durable answer";
    Counter "heddle_ipc_busy_total" [] "Requests refused because too many were in flight";
    Counter "heddle_ipc_unauthorized_total" [] "Requests over TCP without the right token";
    Counter "heddle_ipc_token_in_query_total" [] "Requests refused because a token stood in their URL";
    Counter "heddle_ipc_foreign_peers_total" [] "Connections of another user to the Unix socket";
    Counter "heddle_ipc_accept_errors_total" [] "Connections that the system did not hand over";
    Counter "heddle_ipc_refused_unread_total" ["status" = "400" | "414" | "431"] "Requests that were no HTTP, or had too long a head or target";
    Counter "heddle_ipc_panics_total" [] "Requests that met a bug of ours; each took only itself along";
    Gauge "heddle_ipc_requests_in_flight" [] "Requests being answered now";
    Gauge "heddle_ipc_queue_waits" [] "Takes that wait for work now";
    Gauge "heddle_ipc_event_streams" [] "Event streams open now";
    // --- the outbox
    Counter "heddle_outbox_accepted_total" [] "Messages accepted for the first time";
    Counter "heddle_outbox_known_ids_total" ["row" = "pending_match" | "pending_mismatch" | "inflight_match" | "inflight_mismatch" | "done_match" | "done_mismatch" | "dead_match" | "dead_mismatch" | "aborted_match" | "aborted_mismatch"] "Sends under an id that was taken, by row of the accept table";
    Counter "heddle_outbox_settled_total" ["outcome" = "done" | "dead" | "retry" | "parked"] "Ends of transmissions: done, dead, retry, or parked for a damaged row that was not sent";
    Counter "heddle_daemon_duplicates_total" [] "Transmissions that the broker had already";
    Counter "heddle_outbox_dead_by_age_total" [] "Rows that died of age";
    Gauge "heddle_outbox_disk_pressure" [] "0 none, 1 high, 2 refusing, 3 inbound only";
    Gauge "heddle_outbox_disk_used_bytes" [] "Bytes that count against the outbox's disk budget";
    Gauge "heddle_outbox_parked_rows" [] "Damaged rows that wait apart";
    Counter "heddle_outbox_pressure_high_total" [] "Times that the disk budget passed 80 %";
    Gauge "heddle_outbox_rows" ["status"] "Outbox rows by status";
    Histogram "heddle_drain_batch_seconds" [] "From sending a batch to the broker's verdicts";
    WayHistogram "heddle_drain_seconds" [] "From the accept of a message to the broker's yes";
    Counter "heddle_daemon_dedupe_history_pruned_total" [] "Duplicates whose body the broker has pruned since";
    Counter "heddle_daemon_retry_after_dedupe_expired_total" [] "Retries sent after the broker's memory of the id may have ended";
    // --- the inbox
    Counter "heddle_inbox_received_total" [] "Messages stored in a mailbox";
    Counter "heddle_inbox_places_given_twice_total" [] "Deliveries at a place of the history at which another message stood here";
    Counter "heddle_inbox_duplicates_total" [] "Deliveries of messages that were there already";
    Counter "heddle_inbox_malformed_total" [] "Deliveries refused because they could not be read";
    Counter "heddle_inbox_differs_total" [] "Deliveries and work that are not what their broker accepted";
    Counter "heddle_inbox_pruned_total" [] "Messages given back after the retention";
    Counter "heddle_receipts_reported_total" [] "Receipts that a broker has confirmed";
    Gauge "heddle_inbox_rows" [] "Messages in all mailboxes, read or not";
    Gauge "heddle_inbox_unread" [] "Messages not yet acknowledged";
    WayHistogram "heddle_delivery_seconds" [] "From the broker's commit to the commit in the mailbox";
    // --- hooks
    Counter "heddle_hook_runs_total" ["outcome" = "ok" | "failed" | "timed_out" | "not_started" | "refused" | "stopped"] "Runs of hooks: ok, failed, timed_out, not_started, refused or stopped";
    Counter "heddle_hook_tokens_refused_total" [] "Requests that a hook's token did not allow, or whose token had ended";
    // --- the data
    Counter "heddle_data_changes_total" ["outcome" = "fresh" | "duplicate" | "conflict" | "absent" | "refused"] "Changes to memory, state, tasks, files and vectors: fresh, duplicate, conflict, absent or refused";
    Counter "heddle_task_leases_total" ["outcome" = "renewed" | "expired"] "Leases of tasks that this daemon renewed, or ended after their time";
    Counter "heddle_sync_sent_total" ["outcome" = "done" | "refused" | "wait"] "Ops sent to a mesh's log: done, refused or wait";
    Counter "heddle_sync_received_total" ["outcome" = "stored" | "duplicate" | "confirmed"] "Ops read from a log: stored, duplicate, or confirmed as own ones that came back";
    Counter "heddle_sync_applied_total" ["outcome" = "applied" | "passed" | "parked" | "quarantined"] "Ops taken into the data: applied, passed, parked or quarantined";
    Counter "heddle_sync_gaps_total" [] "Pages of a log before which an op was missing";
    Counter "heddle_sync_pauses_total" [] "Times that a mesh's sync paused because an op was refused too often";
    Counter "heddle_outbox_lost_sent_again_total" [] "Messages that a broker had lost and that were sent again under their ids";
    Counter "heddle_sync_replayed_total" [] "Own ops that a broker had lost and that were sent again";
    Gauge "heddle_sync_ops" ["what"] "Ops that wait now: outgoing, waiting, parked, quarantined";
    Gauge "heddle_sync_paused" ["mesh"] "1 while the mesh's sync is paused, else 0";
    Counter "heddle_blobs_swept_total" [] "Blobs that no file named, and that were removed";
    Counter "heddle_blobs_damaged_total" [] "Reads of shared files that found other bytes than were shared";
    Counter "heddle_blob_fetches_total" ["outcome" = "arrived" | "absent" | "damaged" | "no_room" | "failed" | "interrupted"] "Tries to get a shared file's bytes from another home";
    Counter "heddle_blob_bytes_fetched_total" [] "Bytes of shared files that came from other homes";
    Counter "heddle_blob_parts_served_total" ["outcome" = "given" | "absent"] "Parts of shared files that other members asked this home for";
    Counter "heddle_vector_embeddings_total" ["outcome" = "made" | "failed"] "Embeddings asked of a provider: made or failed";
    Histogram "heddle_vector_search_seconds" [] "From the numbers of a query to its hits";
    // --- effects
    Counter "heddle_effect_requests_total" ["outcome" = "asked" | "known" | "refused"] "Requests for the approval of effects: asked, known or refused";
    Counter "heddle_effect_decisions_total" ["outcome" = "approved" | "turned_down" | "refused"] "Words about such requests: approved, turned_down, or refused to who had no right";
    Counter "heddle_effect_registrations_total" ["code" = "REGISTERED" | "REPLAY_DUPLICATE" | "REPLAY_NONCE_CONSUMED" | "NONCE_UNBOUND" | "ATTEMPT_COLLISION" | "REPLAY_STALE_REQUEST" | "REPLAY_BINDING_MISMATCH" | "REPLAY_ATTEMPT_NO_BYPASS" | "REPLAY_SURFACE_NOT_FIT" | "APPROVAL_NEEDED" | "APPROVAL_REFUSED" | "IDEMPOTENCY_KEY_REUSED" | "EFFECT_STEP_REFUSED" | "failed"] "Registrations of effects by the code of their answer; REGISTERED for the one that did it";
    Counter "heddle_effect_runs_total" ["outcome" = "started" | "finished" | "not_started" | "resolved_done" | "resolved_failed" | "resolved_again"] "Runs of effects: started, finished, not_started, or resolved by a person";
    Counter "heddle_effect_verdicts_total" ["outcome" = "passed" | "failed"] "Verifications of effects: passed or failed";
    Counter "heddle_effect_compensations_total" ["outcome" = "begun" | "done" | "failed" | "not_started" | "resolved_done" | "resolved_again"] "Compensations of effects: begun, done, failed, not_started, or resolved by a person";
    Counter "heddle_effect_waited_total" [] "Calls about effects that were kept until their broker could be reached";
    // --- the link
    Gauge "heddle_mesh_connected" ["mesh"] "1 while the mesh's broker is connected, else 0";
    Counter "heddle_link_lost_total" [] "Connections to a broker that failed or ended";
    Counter "heddle_link_malformed_frames_total" [] "Frames of a broker that could not be read";
    // --- the store
    Counter "heddle_store_transactions_total" [] "Transactions committed to data.db";
    Counter "heddle_store_writes_total" [] "Writes that those transactions carried";
    Counter "heddle_store_checkpoints_total" [] "Moves of the log into data.db";
    Gauge "heddle_store_queue_depth" [] "Writes that wait for the writer of data.db now";
    Gauge "heddle_store_largest_batch" [] "Most writes in one transaction since the start";
    Gauge "heddle_disk_bytes" ["what"] "Bytes on disk: data, broker, logs; and free on that file system";
    // --- the broker
    Counter "heddle_broker_accept_total" ["verdict" = "created" | "duplicate" | "idempotency_key_reused" | "rate_limited" | "unknown_recipient" | "unknown_agent" | "member_revoked" | "member_blocked" | "payload_too_large" | "invalid_request" | "insufficient_storage" | "storage_unavailable" | "limiter_unavailable" | "internal"] "Verdicts on envelopes";
    Histogram "heddle_broker_commit_seconds" [] "From an admitted batch to its commit";
    Counter "heddle_broker_groups_total" [] "Transactions that accepted messages on PostgreSQL, each with all that waited in the line of its mesh";
    Counter "heddle_broker_rate_limit_consumed_then_b2_rejected_total" [] "Budget used by sends that were then refused; it is not given back";
    Counter "heddle_broker_messages_dropped_by_grant_total" [] "Recipients that got no delivery because they had not granted the sender as much (`heddle block`)";
    Counter "heddle_broker_rate_limit_saved_total" [] "Budget that retries did not use, because their id was known";
    Counter "heddle_broker_dedupe_fingerprint_mismatch_total" [] "Ids that came again with another request";
    Counter "heddle_broker_dedupe_orphan_check_total" [] "Runs of the orphan check";
    Gauge "heddle_broker_dedupe_orphan_found" [] "Orphans that the last check found; anything but 0 wants a person";
    Counter "heddle_broker_rate_limit_consumed_total" [] "Budget used by sends";
    Counter "heddle_broker_rate_limit_free_total" [] "Sends that were free, because their id had been counted in this window";
    Counter "heddle_broker_dedupe_expired_total" [] "Ids forgotten after the retention";
    Counter "heddle_broker_messages_pruned_total" [] "Bodies given back after the retention";
    Counter "heddle_broker_uploads_committed_total" [] "Snapshots that were uploaded in parts and shown to everybody";
    Counter "heddle_broker_uploads_swept_total" [] "Uploads that nobody went on with, thrown away by the sweep";
    Counter "heddle_broker_queue_taken_total" [] "Messages of queues handed out under a lease";
    Counter "heddle_broker_queue_held_back_total" [] "Messages of queues that a disk has changed, met by a take and not given out";
    Counter "heddle_broker_histories_parted_total" [] "Times that a history was not the one that a member or the broker itself had seen: an older store was put back";
    Counter "heddle_broker_log_read_total" [] "Ops of a log that members have read";
    Counter "heddle_broker_blob_parts_total" ["outcome" = "passed" | "absent" | "busy"] "Parts of shared files that members asked other members for";
    Counter "heddle_broker_deliveries_pushed_total" [] "Deliveries pushed to connected members";
    Counter "heddle_broker_frames_malformed_total" [] "Frames of members that could not be read";
    Counter "heddle_broker_slow_readers_total" [] "Connections ended because they took no bytes";
    Counter "heddle_broker_hellos_denied_total" ["reason" = "signature_required" | "signature_invalid" | "member_revoked" | "member_blocked"] "Hellos turned away because they did not prove who they came from, or came from somebody shut out or blocked";
    Counter "heddle_broker_claims_refused_total" ["reason" = "invite_invalid" | "invite_expired" | "invite_used_up" | "name_taken" | "member_revoked"] "Invitations that were not taken up";
    Counter "heddle_broker_door_refused_total" ["kind" = "daemon" | "page" | "arrival"] "Connections that found no place: told to ask again, or cut because they had said nothing while others waited";
    Gauge "heddle_broker_connections" [] "Connections of members now";
    // --- the process
    Counter "heddle_log_lines_dropped_total" [] "Log lines lost because the log could not be written";
    Counter "heddle_log_lines_suppressed_total" [] "Log lines not written because their place said too much";
    Gauge "heddle_uptime_seconds" [] "Seconds since the start, without the time asleep";
    Gauge "heddle_build_info" ["version"] "1, with the version as a label";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }

    /// Every name that a `counter!`, `gauge!` or `histogram!` of the product begins with.
    fn counted() -> BTreeSet<String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut files = Vec::new();
        for entry in std::fs::read_dir(crates).unwrap() {
            let folder = entry.unwrap().path().join("src");
            if folder.is_dir() {
                sources(&folder, &mut files);
            }
        }
        let mut names = BTreeSet::new();
        for file in files {
            let text = std::fs::read_to_string(file).unwrap();
            for call in ["counter!(", "gauge!(", "histogram!("] {
                for behind in text.split(call).skip(1) {
                    let Some(quoted) = behind.trim_start().strip_prefix('"') else {
                        continue;
                    };
                    let name = quoted.split('"').next().unwrap();
                    if name.starts_with("heddle_") {
                        names.insert(name.to_owned());
                    }
                }
            }
        }
        names
    }

    #[test]
    fn the_table_and_the_places_that_count_agree() {
        let counted = counted();
        assert!(counted.len() > 20, "the walk found little: {counted:?}");
        let table: BTreeSet<&str> = METRICS.iter().map(|m| m.name).collect();
        assert_eq!(table.len(), METRICS.len(), "a metric stands there twice");
        for name in &counted {
            assert!(
                table.contains(name.as_str()),
                "{name} is counted, but stands in no table"
            );
        }
        for name in table {
            assert!(
                counted.contains(name),
                "{name} is in the table, but nobody counts it"
            );
        }
    }

    #[test]
    fn values_of_labels_are_those_that_the_decisions_name() {
        let values = |name: &str| {
            let found = METRICS.iter().find(|metric| metric.name == name);
            found.unwrap().values.to_vec()
        };
        let rows = heddle_core::gate::IPC_ACCEPT.iter().skip(1);
        assert_eq!(
            values("heddle_outbox_known_ids_total"),
            rows.map(|row| row.name).collect::<Vec<_>>()
        );
        for verdict in &values("heddle_broker_accept_total")[2..] {
            let code = heddle_core::error_code::ErrorCode::parse(verdict);
            assert!(code.is_some(), "{verdict} is no code");
        }
        for metric in METRICS {
            let is_open = metric.kind == Kind::Counter
                && !metric.labels.is_empty()
                && metric.values.is_empty();
            assert!(!is_open, "{} begins with its first event", metric.name);
        }
    }

    #[test]
    fn the_document_says_what_the_table_says() {
        let document = include_str!("../../../../docs/METRICS.md");
        for metric in METRICS {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram | Kind::WayHistogram => "histogram",
            };
            let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
            let row = format!(
                "| `{}` | {kind} | {} | {} |",
                metric.name,
                labels.join(", "),
                metric.help
            );
            assert!(document.contains(&row), "docs/METRICS.md lacks: {row}");
        }
        let rows = document.lines().filter(|l| l.starts_with("| `heddle_"));
        assert_eq!(
            rows.count(),
            METRICS.len(),
            "docs/METRICS.md has a row too many"
        );
    }

    #[test]
    fn names_follow_the_conventions() {
        for metric in METRICS {
            let is_counter = metric.kind == Kind::Counter;
            assert_eq!(
                is_counter,
                metric.name.ends_with("_total"),
                "{}",
                metric.name
            );
            let is_histogram = matches!(metric.kind, Kind::Histogram | Kind::WayHistogram);
            assert!(
                !is_histogram || metric.name.ends_with("_seconds"),
                "{}",
                metric.name
            );
            assert!(metric.name.starts_with("heddle_") && !metric.help.ends_with('.'));
        }
    }
}
