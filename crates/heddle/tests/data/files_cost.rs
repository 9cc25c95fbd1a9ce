//! What shared files cost and what they set off: modes, memory, the hook.

use crate::support;

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::{Value, json};
use support::files::{noise, share};
use support::{Daemon, Home, wait_until};

#[test]
fn lf_37_every_file_and_folder_of_a_home_with_blobs_is_private() {
    fn check(folder: &Path, found: &mut usize) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let right = if metadata.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(metadata.mode() & 0o777, right, "{path:?}");
            *found += 1;
            if metadata.is_dir() {
                check(&path, found);
            }
        }
    }
    let home = Home::new();
    let daemon = home.up();
    for n in 0..8 {
        share(&daemon, &format!("f{n}"), &noise(2 * n, 70_000));
    }
    let mut found = 0;
    check(&home.path().join("blobs"), &mut found);
    assert!(found > 10, "{found}");
}

#[test]
fn on_file_share_tells_listeners_and_the_hook() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let hooks = home.path().join("hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    let private = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    private(&hooks, 0o700);
    let hook = hooks.join("on-file-share");
    std::fs::write(&hook, "#!/bin/sh\ncat > told.new && mv told.new told\n").unwrap();
    private(&hook, 0o700);
    let policy = home.path().join("hooks.toml");
    std::fs::write(&policy, "[hook.on-file-share]\nenabled = true\n").unwrap();
    private(&policy, 0o600);
    let daemon = home.up();
    let shared = share(&daemon, "docs/plan.md", b"plan");
    let told = hooks.join("told");
    wait_until("the hook to be told", || told.exists());
    let event: Value = serde_json::from_str(&support::text_of(&told)).unwrap();
    assert_eq!(
        (&event["event"], &event["mesh"]),
        (&json!("file-share"), &json!("home"))
    );
    let file = &event["file"];
    assert_eq!(
        (&file["path"], &file["id"]),
        (&json!("docs/plan.md"), &shared["id"])
    );
    assert_eq!(
        (&file["peer"], &file["size"]),
        (&json!("@tester/tester"), &json!(4))
    );
}

/// Peak of resident memory, in KB.
fn peak_kb(daemon: &Daemon) -> u64 {
    let status = support::text_of(Path::new(&format!("/proc/{}/status", daemon.child.id())));
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_hundred_megabytes_go_in_and_out_without_a_hundred_megabytes_of_memory() {
    const SIZE: u64 = 100 << 20;
    const GROWTH_KB_MAX: u64 = 40 << 10;
    let home = Home::new();
    let daemon = home.up();
    let folder = home.path().parent().unwrap().to_owned();
    let (source, copy) = (folder.join("source"), folder.join("copy"));
    let mut file = std::fs::File::create(&source).unwrap();
    for part in 0..SIZE >> 20 {
        file.write_all(&noise(part, 1 << 20)).unwrap();
    }
    drop(file);
    share(&daemon, "warm", &noise(0, 100_000));
    let before = peak_kb(&daemon);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    home.cli(&["file", "share", &text(&source), "--as", "big"])
        .ok();
    let view = daemon.http.get("/v1/file/get?path=big").expect(200);
    assert_eq!(
        (&view["size"], &view["content_base64"]),
        (&json!(SIZE), &Value::Null)
    );
    home.cli(&["file", "get", "big", "-o", &text(&copy)]).ok();
    let grown = peak_kb(&daemon) - before;
    assert!(grown < GROWTH_KB_MAX, "it grew by {grown} KB");
    let compared = std::process::Command::new("cmp")
        .args([&source, &copy])
        .status();
    assert!(compared.unwrap().success());
}
