//! The metrics page over the real binary: every name of the document, with real buckets.

use crate::support;

use serde_json::json;
use support::stub_broker::StubBroker;
use support::{Daemon, Home, wait_until};

/// Name and type of every metric in the document.
fn documented() -> Vec<(String, String)> {
    let document = include_str!("../../../../docs/METRICS.md");
    let rows = document
        .lines()
        .filter(|line| line.starts_with("| `heddle_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
    })
    .collect()
}

fn page(daemon: &Daemon) -> String {
    let answer = daemon.http.get("/v1/metrics");
    assert_eq!(answer.status, 200);
    assert!(
        answer.head.contains("text/plain; version=0.0.4"),
        "{answer:?}"
    );
    answer.body
}

/// The value of the sample with exactly this name and these labels.
fn sample(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| {
        let value = line.strip_prefix(series)?.strip_prefix(' ')?;
        value.parse().ok()
    })
}

#[test]
fn a_message_leaves_its_trace_in_every_histogram_and_gauge() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"to": "@tester", "message": "m", "client_message_id": "one"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("the message", || {
        sample(&page(&daemon), "heddle_inbox_rows") == Some(1.0)
    });
    let page = page(&daemon);
    for histogram in [
        "heddle_ipc_accept_seconds",
        "heddle_drain_seconds",
        "heddle_drain_batch_seconds",
        "heddle_delivery_seconds",
        "heddle_broker_commit_seconds",
    ] {
        assert_eq!(
            sample(&page, &format!("{histogram}_count")),
            Some(1.0),
            "{histogram}\n{page}"
        );
        let last = sample(&page, &format!("{histogram}_bucket{{le=\"+Inf\"}}"));
        assert_eq!(last, Some(1.0), "{histogram}");
        let buckets = format!("{histogram}_bucket");
        assert!(page.matches(&buckets).count() > 10, "{histogram}");
    }
    assert!(
        !page.contains("quantile="),
        "a summary among the histograms"
    );
    for (series, value) in [
        ("heddle_outbox_accepted_total", 1.0),
        ("heddle_outbox_rows{status=\"done\"}", 1.0),
        ("heddle_outbox_rows{status=\"dead\"}", 0.0),
        ("heddle_inbox_unread", 1.0),
        ("heddle_mesh_connected{mesh=\"home\"}", 1.0),
        ("heddle_store_queue_depth", 0.0),
        // The look itself.
        ("heddle_ipc_requests_in_flight", 1.0),
        ("heddle_ipc_panics_total", 0.0),
    ] {
        assert_eq!(sample(&page, series), Some(value), "{series}\n{page}");
    }
    for what in ["data", "broker", "free"] {
        let bytes = sample(&page, &format!("heddle_disk_bytes{{what=\"{what}\"}}"));
        assert!(bytes.is_some_and(|bytes| bytes > 0.0), "{what}: {bytes:?}");
    }
}

#[test]
fn every_metric_of_the_document_is_there_from_the_start_with_help_and_type() {
    let home = Home::new();
    let daemon = home.up();
    let page = page(&daemon);
    let names = documented();
    assert!(names.len() > 30, "{names:?}");
    for (name, kind) in names {
        let type_line = format!("# TYPE {name} {kind}\n");
        assert!(page.contains(&type_line), "no {type_line}");
        assert!(
            page.contains(&format!("# HELP {name} ")),
            "no help for {name}"
        );
    }
    for series in [
        "heddle_outbox_known_ids_total{row=\"aborted_mismatch\"}",
        "heddle_outbox_settled_total{outcome=\"dead\"}",
        "heddle_hook_runs_total{outcome=\"timed_out\"}",
        "heddle_ipc_refused_unread_total{status=\"431\"}",
        "heddle_broker_accept_total{verdict=\"rate_limited\"}",
        "heddle_broker_dedupe_orphan_found",
    ] {
        assert_eq!(sample(&page, series), Some(0.0), "{series}");
    }
    let documented: Vec<String> = documented().into_iter().map(|(name, _)| name).collect();
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap().to_owned();
        assert!(documented.contains(&name), "{name} is in no document");
    }
}

#[test]
fn c29_a_lost_broker_shows_as_not_connected_and_its_duplicates_are_told_apart() {
    let broker = StubBroker::start();
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    assert_eq!(
        sample(&page(&daemon), "heddle_mesh_connected{mesh=\"home\"}"),
        Some(1.0)
    );
    broker.script(support::stub_broker::Script::CommitAndHangUp);
    let body = json!({"to": "@tester", "message": "m", "client_message_id": "one"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("the lost link", || {
        sample(&page(&daemon), "heddle_link_lost_total") >= Some(1.0)
    });
    broker.script(support::stub_broker::Script::Commit);
    wait_until("the duplicate", || {
        sample(
            &page(&daemon),
            "heddle_outbox_settled_total{outcome=\"done\"}",
        ) == Some(1.0)
    });
    let page = page(&daemon);
    assert!(sample(&page, "heddle_outbox_settled_total{outcome=\"retry\"}") >= Some(1.0));
    assert_eq!(sample(&page, "heddle_drain_seconds_count"), Some(1.0));
}
