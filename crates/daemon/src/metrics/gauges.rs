//! What is measured when somebody looks: rows, links, queues, bytes on disk.

use std::path::Path;

use heddle_core::limits::{EVENT_STREAMS_MAX, QUEUE_WAITS_MAX, REQUESTS_IN_FLIGHT_MAX};

use crate::ipc::Ipc;

/// Sets every gauge to what holds now. What cannot be read keeps its last value.
pub(crate) async fn observe(ipc: &Ipc) {
    rows(ipc).await;
    ops(ipc).await;
    let shared = &ipc.shared;
    for mesh in &shared.meshes {
        let connected = if mesh.is_connected() { 1.0 } else { 0.0 };
        let name = mesh.mesh.name.to_string();
        metrics::gauge!("heddle_mesh_connected", "mesh" => name.clone()).set(connected);
        let paused = if mesh.sync.view().head.paused {
            1.0
        } else {
            0.0
        };
        metrics::gauge!("heddle_sync_paused", "mesh" => name).set(paused);
    }
    let stats = shared.store.stats();
    metrics::counter!("heddle_store_transactions_total").absolute(stats.transactions);
    metrics::counter!("heddle_store_writes_total").absolute(stats.writes);
    metrics::counter!("heddle_store_checkpoints_total").absolute(stats.checkpoints);
    metrics::gauge!("heddle_store_largest_batch").set(double(stats.largest_batch));
    metrics::gauge!("heddle_store_queue_depth").set(double(stats.queued));
    let in_flight = REQUESTS_IN_FLIGHT_MAX.saturating_sub(ipc.load.requests_free());
    metrics::gauge!("heddle_ipc_requests_in_flight").set(double(in_flight as u64));
    let waits = QUEUE_WAITS_MAX.saturating_sub(ipc.load.queue_waits_free());
    metrics::gauge!("heddle_ipc_queue_waits").set(double(waits as u64));
    let streams = EVENT_STREAMS_MAX.saturating_sub(ipc.load.streams_free());
    metrics::gauge!("heddle_ipc_event_streams").set(double(streams as u64));
    metrics::gauge!("heddle_uptime_seconds").set(shared.clock.mono().as_secs_f64());
    metrics::gauge!("heddle_build_info", "version" => ipc.version).set(1.0);
    let home = ipc.home.clone();
    // The file system may be slow; the other requests are not to wait for it.
    if let Ok(used) = tokio::task::spawn_blocking(move || disk(&home)).await {
        for (what, bytes) in used {
            metrics::gauge!("heddle_disk_bytes", "what" => what).set(double(bytes));
        }
    }
}

/// Ops of all meshes that wait, by direction and reason.
async fn ops(ipc: &Ipc) {
    let (mut out, mut waiting, mut parked, mut quarantined) = (0, 0, 0, 0);
    for mesh in &ipc.shared.meshes {
        let Ok(figures) = ipc.shared.store.sync_figures(mesh.mesh.mesh).await else {
            return;
        };
        out += figures.out_waiting;
        waiting += figures.in_waiting;
        parked += figures.in_parked;
        quarantined += figures.in_quarantined;
    }
    for (what, count) in [
        ("outgoing", out),
        ("waiting", waiting),
        ("parked", parked),
        ("quarantined", quarantined),
    ] {
        metrics::gauge!("heddle_sync_ops", "what" => what).set(double(count));
    }
}

async fn rows(ipc: &Ipc) {
    let Ok(figures) = ipc.shared.store.figures().await else {
        return;
    };
    let by_status = [
        ("pending", figures.pending),
        ("inflight", figures.inflight),
        ("done", figures.done),
        ("dead", figures.dead),
        ("aborted", figures.aborted),
    ];
    for (status, count) in by_status {
        metrics::gauge!("heddle_outbox_rows", "status" => status).set(double(count));
    }
    metrics::gauge!("heddle_inbox_rows").set(double(figures.inbox));
    metrics::gauge!("heddle_inbox_unread").set(double(figures.unread));
    if let Ok(parked) = ipc.shared.store.outbox_parked().await {
        metrics::gauge!("heddle_outbox_parked_rows").set(double(parked));
    }
}

/// Bytes of each kind of file in the home, and what is free on its file system.
fn disk(home: &Path) -> [(&'static str, u64); 4] {
    let free = rustix::fs::statvfs(home).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    [
        ("data", files(home, "data.db")),
        ("broker", files(home, "broker.db")),
        ("logs", files(&home.join("logs"), "")),
        ("free", free),
    ]
}

/// A database has its log and its index beside it: everything that begins with the name counts.
fn files(folder: &Path, begins: &str) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let counted = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().starts_with(begins.as_bytes())
    });
    counted
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|metadata| metadata.len())
        .sum()
}

/// A gauge is a double; counts beyond 2^53 are not met.
#[allow(clippy::cast_precision_loss)]
fn double(count: u64) -> f64 {
    count as f64
}
