//! The blob folder under shares, deletes, sweeps and SIGKILL; a look from outside judges every round.
#![allow(clippy::disallowed_methods, reason = "the seed comes from outside")]
#![allow(clippy::print_stderr, reason = "a failed run must say its seed")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::Connection;
use serde_json::json;
use support::{Home, Http};

const ROUNDS: usize = 25;
const CLIENTS: usize = 3;
const CONTENTS: u64 = 3;
const CONTENT_BYTES: usize = 150_000;

/// xorshift64*: a test needs no better.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}

fn seed() -> u64 {
    let given = std::env::var("HEDDLE_STORM_SEED").ok();
    let now = || UNIX_EPOCH.elapsed().unwrap().as_nanos();
    given.map_or_else(
        || u64::try_from(now() & u128::from(u64::MAX)).unwrap() | 1,
        |text| text.parse().unwrap(),
    )
}

fn content(number: u64) -> Vec<u8> {
    let byte = |n: usize| u8::try_from((n as u64 * (number + 3) + number) % 253).unwrap();
    (0..CONTENT_BYTES).map(byte).collect()
}

/// Shares, deletes and sweeps until the connection breaks. What was acknowledged last of each path.
fn client(http: &Http, name: usize, folder: &Path, seed: u64) -> BTreeMap<String, Option<u64>> {
    let mut random = Random(seed);
    let mut last = BTreeMap::new();
    let agent = format!("agent{name}");
    loop {
        let path = format!("f{}", random.below(2));
        let number = random.below(CONTENTS);
        let (target, body, told) = match random.below(8) {
            0 => ("/v1/file/sweep", json!({"grace_seconds": 0}), None),
            1..=3 => {
                let body = json!({"path": path, "agent": agent});
                ("/v1/file/delete", body, Some(None))
            }
            _ => {
                let from = folder.join(number.to_string());
                let body = json!({"path": path, "agent": agent, "from": from});
                ("/v1/file/share", body, Some(Some(number)))
            }
        };
        // While it is on its way, either may be the case.
        let before = last.remove(&path);
        let Some(answer) = http.request("POST", target, &[], &body.to_string()) else {
            // A request that changes no path leaves what was known.
            if let (None, Some(before)) = (told, before) {
                last.insert(path, before);
            }
            return last;
        };
        match (answer.status, told) {
            (200, Some(told)) => drop(last.insert(path, told)),
            (200 | 404 | 429 | 503, _) => {
                if answer.status == 404 {
                    last.insert(path, None);
                } else if let Some(before) = before {
                    last.insert(path, before);
                }
            }
            _ => panic!("{answer:?}"),
        }
    }
}

fn blob_files(home: &Home) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for folder in std::fs::read_dir(home.path().join("blobs")).unwrap() {
        let folder = folder.unwrap().path();
        if folder.file_name().unwrap() != "tmp" {
            let files = std::fs::read_dir(folder).unwrap();
            found.extend(files.map(|file| file.unwrap().path()));
        }
    }
    found
}

fn sha256(path: &Path) -> String {
    let ran = Command::new("sha256sum").arg(path).output().unwrap();
    assert!(ran.status.success(), "{path:?} is gone");
    String::from_utf8(ran.stdout).unwrap()[..64].to_owned()
}

/// LF-26 and LF-27, from the rows and the disk alone. The places of the blobs that are here.
fn judge(home: &Home) -> BTreeSet<PathBuf> {
    let database = Connection::open(home.path().join("data.db")).unwrap();
    let query = |sql: &str| -> BTreeMap<String, (i64, i64)> {
        let mut statement = database.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))));
        rows.unwrap().map(Result::unwrap).collect()
    };
    let named = query(
        "SELECT lower(hex(sha256)), count(*), max(size) FROM files
         WHERE storage = 'blob' AND tombstone = 0 GROUP BY sha256",
    );
    let counted =
        query("SELECT lower(hex(sha256)), ref_count, bytes FROM blob_refs WHERE ref_count <> 0");
    assert_eq!(counted, named, "LF-26");
    let here = query("SELECT lower(hex(sha256)), bytes, here FROM blob_refs WHERE here = 1");
    assert!(
        named.keys().all(|hash| here.contains_key(hash)),
        "LF-27: shared here, and not here"
    );
    let mut places = BTreeSet::new();
    for (hash, (bytes, _)) in here {
        let place = home.path().join("blobs").join(&hash[..2]).join(&hash);
        assert_eq!(sha256(&place), hash, "LF-27");
        let length = std::fs::metadata(&place).unwrap().len();
        assert_eq!(i64::try_from(length).unwrap(), bytes, "LF-27");
        places.insert(place);
    }
    // C10: a blob's name is only ever on whole bytes, named or not.
    for file in blob_files(home) {
        assert_eq!(
            sha256(&file),
            file.file_name().unwrap().to_str().unwrap(),
            "C10"
        );
    }
    places
}

#[test]
fn lf_26_lf_27_lf_28_lf_29_killed_again_and_again_under_shares_deletes_and_sweeps() {
    let seed = seed();
    eprintln!("HEDDLE_STORM_SEED={seed}");
    let home = Home::new();
    let folder = home.path().parent().unwrap().join("local");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..CONTENTS {
        let mut file = std::fs::File::create(folder.join(number.to_string())).unwrap();
        file.write_all(&content(number)).unwrap();
    }
    let mut random = Random(seed);
    let mut acknowledged = 0;
    for _ in 0..ROUNDS {
        let daemon = home.up();
        let http = daemon.http.clone();
        let pause = Duration::from_millis(30 + random.below(250));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| random.below(1 << 30) | 1).collect();
        let told: Vec<BTreeMap<String, Option<u64>>> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|name| {
                    let (http, folder, seed) = (&http, &folder, seeds[name]);
                    scope.spawn(move || client(http, name, folder, seed))
                })
                .collect();
            std::thread::sleep(pause);
            daemon.kill();
            clients.into_iter().map(|c| c.join().unwrap()).collect()
        });
        judge(&home);
        let database = Connection::open(home.path().join("data.db")).unwrap();
        for (name, told) in told.iter().enumerate() {
            for (path, number) in told {
                acknowledged += 1;
                let sql = "SELECT lower(hex(sha256)) FROM files
                    WHERE path = ?1 AND peer LIKE '%/agent' || ?2 AND tombstone = 0";
                let found = database
                    .query_row(sql, (path, name.to_string()), |row| row.get::<_, String>(0));
                let expected = number.map(|number| sha256(&folder.join(number.to_string())));
                assert_eq!(
                    found.ok(),
                    expected,
                    "acknowledged and lost: {path} of {name}"
                );
            }
        }
    }
    assert!(
        acknowledged > ROUNDS,
        "only {acknowledged} answers came through"
    );
    // LF-28: when all is quiet, a sweep leaves exactly what is named.
    let daemon = home.up();
    daemon
        .http
        .post("/v1/file/sweep", &json!({"grace_seconds": 0}))
        .expect(200);
    assert_eq!(blob_files(&home), judge(&home));
    assert_eq!(
        std::fs::read_dir(home.path().join("blobs/tmp"))
            .unwrap()
            .count(),
        0
    );
    daemon.stop();
}
