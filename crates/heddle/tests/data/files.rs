//! Shared files over the real binary: round trips, the gate, hostile paths, damage, the CLI.

use crate::support;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};
use support::files::{base64, blob_files, noise, share};
use support::{Daemon, Home, Ran, wait_until};

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// The raw bytes of an answer, which need not be text; `None` when it ended too early.
fn raw(daemon: &Daemon, target: &str, header: &str) -> (u16, Option<Vec<u8>>) {
    let mut stream = UnixStream::connect(daemon.http.socket()).unwrap();
    let request =
        format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(bytes[..end].to_vec())
        .unwrap()
        .to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let body = bytes[end + 4..].to_vec();
    let is_whole = length.is_some_and(|length| length.parse() == Ok(body.len()));
    (status, is_whole.then_some(body))
}

#[test]
fn small_and_large_files_come_back_as_they_were_in_json_and_raw() {
    let home = Home::new();
    let daemon = home.up();
    for (name, size) in [
        ("empty", 0),
        ("one", 1),
        ("row", 65_535),
        ("blob", 65_536),
        ("large", 700_000),
    ] {
        let bytes = noise(size as u64, size);
        let shared = share(&daemon, &format!("dir/{name}"), &bytes);
        assert_eq!(
            (&shared["size"], &shared["duplicate"]),
            (&json!(size), &json!(false))
        );
        assert_eq!(shared["durability"], "local");
        let id = shared["id"].as_str().unwrap();
        for query in [format!("id={id}"), format!("path=dir%2f{name}")] {
            let view = daemon
                .http
                .get(&format!("/v1/file/get?{query}"))
                .expect(200);
            assert_eq!(view["content_base64"], base64(&bytes), "{name}");
            assert_eq!(view["sha256"], shared["sha256"]);
            assert_eq!(view["peer"], "@tester/tester");
            let place = if size < 65_536 { "inline" } else { "blob" };
            assert_eq!(view["content"], place, "{name}");
        }
        let by_raw = raw(&daemon, &format!("/v1/file/get?id={id}&raw=true"), "");
        assert_eq!(by_raw, (200, Some(bytes.clone())));
        let header = "accept: text/html, application/octet-stream;q=0.5\r\n";
        assert_eq!(
            raw(&daemon, &format!("/v1/file/get?id={id}"), header),
            (200, Some(bytes))
        );
    }
    let page = daemon
        .http
        .get("/v1/file/list?prefix=dir%2f&limit=2")
        .expect(200);
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items
            .map(|item| item["path"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&page), ["dir/blob", "dir/empty"]);
    let cursor = page["cursor"].as_str().unwrap();
    let rest = daemon
        .http
        .get(&format!("/v1/file/list?prefix=dir%2f&cursor={cursor}"))
        .expect(200);
    assert_eq!(names(&rest), ["dir/large", "dir/one", "dir/row"]);
    assert!(rest["items"][0]["content_base64"].is_null());
}

#[test]
fn a_known_id_gets_the_first_answer_even_when_the_file_is_gone_and_other_content_is_refused() {
    let home = Home::new();
    let daemon = home.up();
    let local = home.path().parent().unwrap().join("local");
    std::fs::write(&local, noise(1, 100_000)).unwrap();
    let body = json!({"path": "f", "from": local, "client_message_id": "k"});
    let share = || daemon.http.post("/v1/file/share", &body);
    let first = share().expect(200);
    let mut again = share().expect(200);
    assert_eq!(again["duplicate"], true);
    again["duplicate"] = json!(false);
    assert_eq!(again, first);
    std::fs::write(&local, noise(2, 100_000)).unwrap();
    assert_eq!(share().expect(409)["code"], "idempotency_key_reused");
    std::fs::remove_file(&local).unwrap();
    assert_eq!(share().expect(200)["id"], first["id"]);
    // The id is looked up before anything else that is wrong (C47).
    let other = json!({"path": "g", "from": local, "client_message_id": "k"});
    assert_eq!(
        daemon.http.post("/v1/file/share", &other).expect(409)["code"],
        "idempotency_key_reused"
    );
    // The same content in the body is the same request.
    let same = json!({"path": "f", "content_base64": base64(&noise(1, 100_000)), "client_message_id": "k"});
    assert_eq!(
        daemon.http.post("/v1/file/share", &same).expect(200)["id"],
        first["id"]
    );
    assert_eq!(blob_files(&home).len(), 1, "nothing of the repeats is left");
}

#[test]
fn t_16_hostile_paths_are_refused_with_a_sentence_and_nothing_is_kept() {
    let home = Home::new();
    let daemon = home.up();
    let folder = home.path().parent().unwrap().to_owned();
    let at = |name: &str| folder.join(name);
    std::fs::write(at("file"), noise(1, 70_000)).unwrap();
    let long = "a/".repeat(600);
    for path in [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "a/../b",
        "./a",
        "a//b",
        "a/",
        "a\\b",
        "a\u{0}b",
        "a\nb",
        "~",
        "%2e%2e/x",
        "a\u{202e}b",
        "a\u{ff0f}b",
        "C:/x",
        &long,
    ] {
        for body in [
            json!({"path": path, "content_base64": ""}),
            json!({"path": path, "from": at("file")}),
        ] {
            let problem = daemon.http.post("/v1/file/share", &body).expect(400);
            assert_eq!(problem["code"], "invalid_request", "{path:?}");
            assert!(!problem["next"].as_str().unwrap().is_empty());
        }
        let target = format!("/v1/file/get?path={}", encoded(path));
        assert_eq!(daemon.http.get(&target).status, 400, "{path:?}");
        let body = json!({"path": path});
        assert_eq!(
            daemon.http.post("/v1/file/delete", &body).status,
            400,
            "{path:?}"
        );
    }
    assert_eq!(blob_files(&home), [] as [PathBuf; 0]);
}

#[test]
fn t_16_hostile_sources_are_refused_with_a_sentence_and_nothing_is_kept() {
    let home = Home::new();
    let daemon = home.up();
    let folder = home.path().parent().unwrap().to_owned();
    let at = |name: &str| folder.join(name);
    std::fs::write(at("file"), noise(1, 70_000)).unwrap();
    symlink(at("file"), at("link")).unwrap();
    std::fs::create_dir(at("dir")).unwrap();
    for from in [
        at("link"),
        at("dir"),
        at("missing"),
        PathBuf::from("/dev/zero"),
        PathBuf::from("/proc/self/environ"),
        PathBuf::from("file"),
        home.path().join("local_token"),
        home.path().join("data.db"),
        at("dir/../home/local_token"),
    ] {
        let body = json!({"path": "f", "from": from});
        let problem = daemon.http.post("/v1/file/share", &body).expect(400);
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("cannot be shared"),
            "{problem}"
        );
    }
    for body in [
        json!({"path": "f"}),
        json!({"path": "f", "from": at("file"), "content_base64": ""}),
        json!({"path": "f", "content_base64": "not base64!"}),
        json!({"path": "f", "content_base64": "", "mime": "text"}),
        json!({"path": "f", "content_base64": "", "extra": 1}),
    ] {
        assert_eq!(
            daemon.http.post("/v1/file/share", &body).status,
            400,
            "{body}"
        );
    }
    assert_eq!(daemon.http.get("/v1/file/get?id=nonsense").status, 400);
    let unknown = "/v1/file/get?id=00000000-0000-7000-8000-000000000000";
    assert_eq!(daemon.http.get(unknown).expect(404)["code"], "unknown_file");
    assert_eq!(
        daemon.http.get("/v1/file/list").expect(200)["items"],
        json!([])
    );
    assert_eq!(blob_files(&home), [] as [PathBuf; 0]);
}

#[test]
fn c10_damage_and_planted_links_give_a_clear_error_and_never_wrong_bytes() {
    let home = Home::new();
    let daemon = home.up();
    let bytes = noise(3, 700_000);
    let id = share(&daemon, "f", &bytes)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let target = format!("/v1/file/get?id={id}&raw=true");
    let blob = blob_files(&home).remove(0);
    let damaged = |what: &str| {
        for target in [target.clone(), format!("/v1/file/get?id={id}")] {
            let problem = daemon.http.get(&target).expect(500);
            assert_eq!(problem["code"], "file_damaged", "{what}");
            assert!(
                problem["next"]
                    .as_str()
                    .unwrap()
                    .contains("Share the file again")
            );
        }
    };
    let mut flipped = bytes.clone();
    flipped[400_000] ^= 0x40;
    std::fs::write(&blob, &flipped).unwrap();
    damaged("flipped");
    std::fs::write(&blob, &bytes[..699_999]).unwrap();
    damaged("short");
    std::fs::remove_file(&blob).unwrap();
    damaged("gone");
    let secret = home.path().parent().unwrap().join("secret");
    std::fs::write(&secret, &bytes).unwrap();
    symlink(&secret, &blob).unwrap();
    damaged("a link");
    // Sharing it again puts good bytes there, and leaves what the link led to alone.
    share(&daemon, "g", &bytes);
    assert_eq!(raw(&daemon, &target, ""), (200, Some(bytes.clone())));
    assert_eq!(std::fs::read(&secret).unwrap(), bytes);
    assert!(blob.symlink_metadata().unwrap().is_file());
    let metrics = daemon.http.get("/v1/metrics").body;
    assert!(
        metrics.contains("heddle_blobs_damaged_total 8\n"),
        "{metrics}"
    );
}

#[test]
fn deleting_frees_the_disk_and_only_the_owner_may() {
    let home = Home::new();
    let daemon = home.up();
    let bytes = noise(4, 100_000);
    let first = share(&daemon, "a", &bytes);
    share(&daemon, "b", &bytes);
    assert_eq!(blob_files(&home).len(), 1, "the same content is kept once");
    let body = json!({"id": first["id"], "agent": "coder"});
    assert_eq!(
        daemon.http.post("/v1/file/delete", &body).expect(403)["code"],
        "not_the_owner"
    );
    let body = json!({"id": first["id"], "client_message_id": "d"});
    let deleted = daemon.http.post("/v1/file/delete", &body).expect(200);
    assert_eq!(
        (&deleted["key"], &deleted["duplicate"]),
        (&json!("a"), &json!(false))
    );
    assert_eq!(
        daemon.http.post("/v1/file/delete", &body).expect(200)["duplicate"],
        true
    );
    let body = json!({"path": "a"});
    assert_eq!(
        daemon.http.post("/v1/file/delete", &body).expect(404)["code"],
        "unknown_file"
    );
    assert_eq!(daemon.http.get("/v1/file/get?path=b").status, 200);
    assert_eq!(blob_files(&home).len(), 1, "the other path still names it");
    daemon
        .http
        .post("/v1/file/delete", &json!({"path": "b"}))
        .expect(200);
    wait_until("the blob to go", || blob_files(&home).is_empty());
    // A left-over of a crash: young, it stays; without grace it goes.
    let name = "ab".repeat(32);
    let folder = home.path().join("blobs/ab");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), "left over").unwrap();
    let swept = home.cli(&["--json", "advanced", "sweep"]).ok().json();
    assert_eq!((&swept["blobs"], &swept["young"]), (&json!(0), &json!(1)));
    let ran = home
        .cli(&["advanced", "sweep", "--grace-seconds", "0"])
        .ok();
    assert!(ran.stdout.starts_with("1 blobs (9 bytes)"), "{ran:?}");
    assert!(blob_files(&home).is_empty());
}

#[test]
fn the_cli_shares_gets_lists_and_deletes() {
    let home = Home::new();
    let daemon = home.up();
    let folder = home.path().parent().unwrap().to_owned();
    let bytes = noise(5, 300_000);
    std::fs::create_dir(folder.join("docs")).unwrap();
    std::fs::write(folder.join("docs/plan.bin"), &bytes).unwrap();
    let run = |args: &[&str]| Ran::from(home.command(args).current_dir(&folder).output().unwrap());
    let shared = run(&["file", "share", "docs/plan.bin"]).ok();
    assert!(
        shared
            .stdout
            .starts_with("shared docs/plan.bin, 300 KB, safe on disk ("),
        "{shared:?}"
    );
    let listed = run(&["file", "list"]).ok().stdout;
    assert!(
        listed.contains("docs/plan.bin  300 KB  @tester/tester  here"),
        "{listed}"
    );
    let id = run(&["--json", "file", "list", "docs/"]).ok().json()["items"][0]["id"].clone();
    let id = id.as_str().unwrap();
    let got = run(&["file", "get", "docs/plan.bin", "-o", "copy"]).ok();
    assert!(
        got.stdout
            .starts_with("wrote docs/plan.bin, 300 KB, to copy"),
        "{got:?}"
    );
    assert_eq!(std::fs::read(folder.join("copy")).unwrap(), bytes);
    let piped = home.command(&["file", "get", id]).output().unwrap();
    assert_eq!(piped.stdout, bytes);
    // Nothing is written over, and nothing half-written stays.
    std::fs::write(folder.join("copy"), "mine").unwrap();
    let refused = run(&["file", "get", id, "-o", "copy"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert_eq!(std::fs::read(folder.join("copy")).unwrap(), b"mine");
    run(&["file", "get", id, "-o", "copy", "--force"]).ok();
    assert_eq!(std::fs::read(folder.join("copy")).unwrap(), bytes);
    let left: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains(".part")),
        "{left:?}"
    );
    let json = run(&["--json", "file", "get", id, "-o", "other"])
        .ok()
        .json();
    assert_eq!(
        (&json["size"], &json["output"]),
        (&json!(300_000), &json!("other"))
    );
    let deleted = run(&["file", "delete", "docs/plan.bin"]).ok();
    assert!(
        deleted.stdout.starts_with("deleted docs/plan.bin"),
        "{deleted:?}"
    );
    drop(daemon);
}

#[test]
fn the_cli_tells_owners_apart_and_refuses_with_the_right_code() {
    let home = Home::new();
    let daemon = home.up();
    let folder = home.path().parent().unwrap().to_owned();
    let run = |args: &[&str]| Ran::from(home.command(args).current_dir(&folder).output().unwrap());
    std::fs::write(folder.join("note"), "text").unwrap();
    run(&[
        "file",
        "share",
        "note",
        "--as",
        "notes/one.txt",
        "--mime",
        "text/plain",
        "--id",
        "k",
    ])
    .ok();
    let again = run(&[
        "file",
        "share",
        "note",
        "--as",
        "notes/one.txt",
        "--mime",
        "text/plain",
        "--id",
        "k",
    ]);
    assert!(
        again
            .ok()
            .stdout
            .starts_with("already shared notes/one.txt, 4 B")
    );
    assert_eq!(run(&["file", "get", "notes/one.txt"]).ok().stdout, "text");
    let as_coder = home.cli_as("coder", &["file", "get", "notes/one.txt"]);
    assert_eq!(as_coder.code, 4, "{as_coder:?}");
    let as_coder = home.cli_as(
        "coder",
        &["file", "get", "notes/one.txt", "--scope", "@tester"],
    );
    assert_eq!(as_coder.ok().stdout, "text");
    assert_eq!(run(&["file", "share", "missing"]).code, 2);
    assert_eq!(run(&["file", "share", "note", "--as", "../note"]).code, 2);
    run(&["file", "delete", "notes/one.txt"]).ok();
    assert_eq!(run(&["file", "delete", "notes/one.txt"]).code, 4);
    assert!(
        run(&["file", "list"])
            .ok()
            .stdout
            .contains("heddle file share FILE")
    );
    drop(daemon);
}

/// With --force as without: a file in the place of /dev/null is everybody's.
#[test]
fn what_bytes_go_through_stays_what_it_is() {
    let home = Home::new();
    let _daemon = home.up();
    let folder = home.path().parent().unwrap().to_owned();
    let bytes = noise(6, 300_000);
    std::fs::write(folder.join("plan.bin"), &bytes).unwrap();
    let run = |args: &[&str]| Ran::from(home.command(args).current_dir(&folder).output().unwrap());
    run(&["file", "share", "plan.bin"]).ok();
    let pipe = folder.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for force in [&["--force"][..], &[]] {
        let reading = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        run(&[&["file", "get", "plan.bin", "-o", "pipe"], force].concat()).ok();
        assert_eq!(reading.join().unwrap(), bytes);
        let kind = std::fs::metadata(&pipe).unwrap().file_type();
        assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
    }
    // Neither is a link's place taken: `/dev/stdout` is one.
    std::os::unix::fs::symlink("plan.bin", folder.join("link")).unwrap();
    let refused = run(&["file", "get", "plan.bin", "-o", "link", "--force"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(folder.join("link").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn a_share_that_takes_the_place_of_another_one_says_so() {
    let home = Home::new();
    let _daemon = home.up();
    let folder = home.path().parent().unwrap().join("w");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("small.txt");
    std::fs::write(&file, "one").unwrap();
    let file = file.to_str().unwrap();
    let first = home.cli(&["file", "share", file, "--json"]).ok().json();
    assert_eq!(first["replaced"], serde_json::Value::Null, "{first}");
    std::fs::write(file, "two").unwrap();
    let args = ["file", "share", file, "--id", "again", "--json"];
    let second = home.cli(&args).ok().json();
    assert_eq!(second["replaced"], first["id"], "{second}");
    let known = home.cli(&args).ok().json();
    assert_eq!(
        (&known["duplicate"], &known["replaced"]),
        (&true.into(), &first["id"])
    );
    std::fs::write(file, "three").unwrap();
    let said = home.cli(&["file", "share", file]).ok().stdout;
    assert!(
        said.contains("in the place of what you had shared there"),
        "{said}"
    );
}
