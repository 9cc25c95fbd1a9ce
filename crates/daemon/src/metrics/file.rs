//! `logs/metrics.jsonl`: one line at each start, every hour and at the end, for people who look for what
//! became slower. It never leaves this machine, holds no text of anybody, and is bounded.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Map, Value, json};

use crate::shared::Shared;

const EVERY: Duration = Duration::from_hours(1);
/// Beyond this the file becomes `metrics.jsonl.1`, in the place of the one before.
const BYTES_MAX: u64 = 1 << 20;

/// Runs until the daemon stops. The first line says how long the start took.
pub(crate) async fn run(shared: Arc<Shared>, home: PathBuf, handle: PrometheusHandle) {
    let ready = shared.clock.mono();
    let cold_start = u64::try_from(ready.as_millis()).unwrap_or(u64::MAX);
    let _ = shared.cold_start_ms.set(cold_start);
    keep(&shared, &home, &handle, ("start", Some(cold_start)), ready).await;
    while !shared.shutdown.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => keep(&shared, &home, &handle, ("hour", None), ready).await,
            () = shared.shutdown.cancelled() => {}
        }
    }
    keep(&shared, &home, &handle, ("stop", None), ready).await;
}

async fn keep(
    shared: &Shared,
    home: &Path,
    handle: &PrometheusHandle,
    (what, cold_start_ms): (&str, Option<u64>),
    ready: Duration,
) {
    let line = json!({
        "at": shared.clock.wall().to_rfc3339(),
        "what": what,
        "cold_start_ms": cold_start_ms,
        "up_seconds": shared.clock.mono().saturating_sub(ready).as_secs(),
        "meshes": meshes(shared),
        "metrics": figures(&handle.render()),
    });
    let home = home.to_owned();
    let kept = tokio::task::spawn_blocking(move || append(&home, &line)).await;
    if let Ok(Err(error)) = kept {
        tracing::warn!(%error, "logs/metrics.jsonl takes no line");
    }
}

/// How far each mesh is behind.
fn meshes(shared: &Shared) -> Vec<Value> {
    let meshes = shared.meshes.iter().map(|mesh| {
        let view = mesh.sync.view();
        json!({
            "mesh": mesh.mesh.name.to_string(),
            "connected": mesh.is_connected(),
            "paused": view.head.paused,
            "log": view.head.log.to_string(),
            "last_error": view.last_error,
        })
    });
    meshes.collect()
}

/// Counters, gauges, and of histograms their count and sum; without what is zero.
fn figures(text: &str) -> Map<String, Value> {
    let mut figures = Map::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let number = value.parse::<f64>().ok().filter(|number| *number != 0.0);
        if let Some(number) = number
            && !name.contains("_bucket{")
        {
            figures.insert(name.to_owned(), json!(number));
        }
    }
    figures
}

fn append(home: &Path, line: &Value) -> std::io::Result<()> {
    let folder = home.join("logs");
    // Not its parents: no new home begins where one was moved or removed.
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let path = folder.join("metrics.jsonl");
    if std::fs::symlink_metadata(&path).is_ok_and(|found| found.len() > BYTES_MAX) {
        std::fs::rename(&path, folder.join("metrics.jsonl.1"))?;
    }
    // A pipe in its place would be waited for.
    if std::fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(std::io::Error::other("metrics.jsonl is no regular file"));
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn figures_are_what_is_not_zero_and_no_bucket() {
        let text = "# HELP x\nheddle_a_total 3\nheddle_b{l=\"v\"} 0\nheddle_c_seconds_bucket{le=\"1\"} 9\nheddle_c_seconds_sum 1.5\n";
        let figures = figures(text);
        assert_eq!(
            Value::from(figures),
            json!({"heddle_a_total": 3.0, "heddle_c_seconds_sum": 1.5})
        );
    }

    #[test]
    fn lf_37_the_file_is_private_and_bounded() {
        let home = tempfile::tempdir().unwrap();
        let long = json!("x".repeat(600_000));
        for _ in 0..4 {
            append(home.path(), &long).unwrap();
        }
        let names = ["metrics.jsonl", "metrics.jsonl.1"];
        for name in names {
            let found = std::fs::metadata(home.path().join("logs").join(name)).unwrap();
            assert!(found.len() <= BYTES_MAX + 600_003);
            assert_eq!(found.permissions().mode() & 0o777, 0o600);
        }
    }
}
