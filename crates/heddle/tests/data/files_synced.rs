//! The order in which a blob reaches the disk, as the kernel was asked for it: `strace` writes down every sync, rename and
//! write of a daemon that shares a file. A kill cannot show it, because the page cache outlives a process.

use crate::support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use support::{BINARY, Home, wait_until};

const CONTENT_BYTES: usize = 300_000;

/// What the kernel was asked for, and when: the line where it was asked, and the one where it was done.
#[derive(Debug)]
struct Call {
    text: String,
    asked: usize,
    done: usize,
}

/// The calls of a trace. A call that another thread's line interrupts stands on two lines.
fn calls(trace: &str) -> Vec<Call> {
    const UNFINISHED: &str = " <unfinished ...>";
    let mut open: HashMap<&str, (usize, String)> = HashMap::new();
    let mut calls = Vec::new();
    for (done, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix(UNFINISHED) {
            open.insert(thread, (done, begun.to_owned()));
        } else if rest.starts_with("<... ") {
            let Some((asked, begun)) = open.remove(thread) else {
                continue;
            };
            let end = rest.split_once("resumed>").map_or("", |(_, end)| end);
            let text = format!("{begun}{end}");
            calls.push(Call { text, asked, done });
        } else {
            let text = rest.to_owned();
            let asked = done;
            calls.push(Call { text, asked, done });
        }
    }
    calls
}

/// The syncs of a path that succeeded.
fn syncs<'a>(calls: &'a [Call], path: &Path) -> impl Iterator<Item = &'a Call> {
    let path = format!("<{}>", path.display());
    calls.iter().filter(move |call| {
        let name = call.text.split('(').next().unwrap_or_default();
        (name == "fsync" || name == "fdatasync")
            && call.text.contains(&path)
            && call.text.ends_with("= 0")
    })
}

fn traced(home: &Home, trace: &Path) -> Command {
    let plain = home.command(&[]);
    let mut command = Command::new("strace");
    command
        .args(["-D", "-f", "-qq", "-y", "-x", "-s", "5000"])
        .args([
            "-e",
            "trace=fsync,fdatasync,rename,renameat,renameat2,pwrite64",
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

#[test]
fn lf_29_the_bytes_and_the_name_of_a_blob_are_synced_before_the_commit_that_names_it() {
    let home = Home::new();
    let beside = home.path().parent().unwrap().to_path_buf();
    let (trace, file) = (beside.join("trace"), beside.join("content"));
    std::fs::write(&file, vec![b'b'; CONTENT_BYTES]).unwrap();
    let daemon = home
        .try_up_by(traced(&home, &trace))
        .unwrap_or_else(|ran| panic!("up failed under strace: {ran:?}"));
    let body = json!({"path": "f", "agent": "a", "from": file});
    let answer = daemon.http.post("/v1/file/share", &body).expect(200);
    daemon.stop();

    let hash = answer["sha256"].as_str().unwrap().to_owned();
    let bytes = hash
        .as_bytes()
        .chunks(2)
        .fold(String::new(), |mut text, pair| {
            let _ = write!(text, "\\x{}", std::str::from_utf8(pair).unwrap());
            text
        });
    // The tracer ends after the daemon.
    let log = home.path().join("data.db-wal");
    wait_until("the trace to be whole", || {
        let text = support::text_of(&trace);
        text.contains(&bytes) && text.ends_with('\n')
    });
    let trace = support::text_of(&trace);
    let calls = calls(&trace);

    let blobs = home.path().join("blobs");
    let folder = blobs.join(&hash[..2]);
    let rename = calls
        .iter()
        .find(|call| call.text.starts_with("rename") && call.text.contains(&format!("\"{hash}\"")))
        .expect("a rename to the hash");
    let temporary = rename.text.split('"').nth(1).unwrap();
    let commit = calls
        .iter()
        .find(|call| {
            call.text.starts_with("pwrite64")
                && call.text.contains(&format!("<{}>", log.display()))
                && call.text.contains(&bytes)
        })
        .expect("a write of the hash into the log");
    assert!(
        syncs(&calls, &blobs.join("tmp").join(temporary)).any(|sync| sync.done < rename.asked),
        "the bytes, before they get their name"
    );
    assert!(
        syncs(&calls, &folder).any(|sync| rename.done < sync.asked && sync.done < commit.asked),
        "the name, before the commit is written"
    );
    assert!(
        syncs(&calls, &blobs).any(|sync| sync.done < commit.asked),
        "the folder of the name, which is new, too"
    );
    assert!(
        syncs(&calls, &log).any(|sync| commit.done < sync.asked),
        "and the commit itself"
    );
}
