//! Files and folders of a home are private from the moment in which they are made, not only after somebody has looked at
//! their modes: `strace` shows what the kernel was asked for. The daemon runs without a mask that would help it.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use support::{BINARY, Home, wait_until};

/// `heddle up` under strace, with a umask of 0.
fn traced(home: &Home, trace: &Path) -> Command {
    let plain = home.command(&[]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask 0; exec \"$@\"", "sh", "strace"])
        .args([
            "-D",
            "-f",
            "-qq",
            "-e",
            "trace=openat,open,creat,mkdir,mkdirat,mknod,mknodat",
        ])
        .arg("-o")
        .arg(trace)
        .arg(BINARY)
        .args(["up", "--json"])
        .env_clear()
        .stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
}

/// The path and the mode of whatever a line makes.
fn made(line: &str) -> Option<(String, u32)> {
    let makes = line.contains("O_CREAT") || line.contains("O_TMPFILE") || line.contains("mkdir");
    if !makes || line.contains(" = -1 ") {
        return None;
    }
    let path = line.split('"').nth(1)?.to_owned();
    let call = match line.rsplit_once(") ") {
        Some((call, _)) => call,
        None => line.strip_suffix(" <unfinished ...>")?,
    };
    let mode = call.rsplit(", ").next()?;
    let mode = u32::from_str_radix(mode, 8).ok()?;
    Some((path, mode))
}

#[test]
fn lf_37_nothing_in_a_home_is_ever_born_open_to_others() {
    let home = Home::new();
    let beside = home.path().parent().unwrap().to_path_buf();
    let (trace, file) = (beside.join("trace"), beside.join("content"));
    std::fs::write(&file, vec![b'b'; 300_000]).unwrap();
    let daemon = home
        .try_up_by(traced(&home, &trace))
        .unwrap_or_else(|ran| panic!("up failed under strace: {ran:?}"));
    let send = json!({"to": "@tester", "message": "m"});
    daemon.http.post("/v1/send", &send).expect(202);
    let share = json!({"path": "f", "from": file});
    daemon.http.post("/v1/file/share", &share).expect(200);
    let store = json!({"key": "k", "content": "text"});
    daemon.http.post("/v1/vector/store", &store).expect(200);
    let invite = daemon.http.post("/v1/mesh/invite", &json!({}));
    assert!(invite.status < 300, "{invite:?}");
    daemon.stop();
    wait_until("the tracer to end", || {
        support::text_of(&trace).ends_with('\n')
    });
    let text = support::text_of(&trace);
    let all: Vec<(String, u32)> = text.lines().filter_map(made).collect();
    // The terminal's own files are nobody's secret.
    let all: Vec<_> = all
        .into_iter()
        .filter(|(path, _)| !path.starts_with("/dev/"))
        .collect();
    for (path, mode) in &all {
        assert_eq!(mode & 0o077, 0, "{path} is made with {mode:o}");
    }
    for name in ["data.db", "broker.db", "data.db-wal", "blobs"] {
        assert!(all.iter().any(|(path, _)| path.ends_with(name)), "{name}");
    }
    assert!(all.len() > 15, "{all:?}");
    // And so they are in the end, whatever was not traced.
    let mut folders = vec![home.path()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o777;
            let right = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, right, "{}", path.display());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
}
