//! Vectors over the real binary: nearness, the gate, models that never mix, kills.

use crate::support;

use serde_json::{Value, json};
use support::data::under;
use support::vectors::{keys, search, store};
use support::{Home, wait_until};

/// LF-32, in a file that nobody has open.
fn assert_paired(home: &Home) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let mut models = raw
        .prepare("SELECT id, vec_table FROM vector_models")
        .unwrap();
    let models = models
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    for model in models {
        let (id, table): (String, String) = model.unwrap();
        let count = |sql: &str| -> Vec<i64> {
            let mut statement = raw.prepare(sql).unwrap();
            let places = statement.query_map([], |row| row.get(0)).unwrap();
            places.map(Result::unwrap).collect()
        };
        let live = format!(
            "SELECT place FROM vector_metadata WHERE model_id = '{id}' AND tombstone = 0 ORDER BY 1"
        );
        let kept = format!("SELECT rowid FROM {table}_rowids ORDER BY 1");
        assert_eq!(count(&live), count(&kept), "{id}");
    }
}

// --- offline, by default ---------------------------------------------------------------------------

#[test]
fn a_fresh_home_finds_texts_by_nearness_over_http_and_over_the_cli() {
    let home = Home::new();
    let daemon = home.up();
    let kept = store(
        &daemon,
        "deploy",
        "the deploy of the billing service failed",
    );
    assert_eq!(
        (&kept["duplicate"], &kept["durability"]),
        (&json!(false), &json!("local"))
    );
    store(&daemon, "cake", "a recipe for plum cake with cinnamon");
    let body =
        json!({"key": "index", "content": "rebuild the search index", "metadata": {"pr": 7}});
    daemon.http.post("/v1/vector/store", &body).expect(200);
    let found = search(
        &daemon,
        &json!({"query": "billing deploys are failing", "limit": 2}),
    );
    assert_eq!(keys(&found)[0], "deploy");
    assert_eq!(found.len(), 2);
    assert_eq!(
        found[0]["model"],
        "heddle-hash-v1:heddle-hash-v1:1:384:float32"
    );
    assert_eq!(found[0]["stamp"], kept["stamp"]);
    assert_eq!(found[0]["peer"], "@tester/tester");
    let exact = search(
        &daemon,
        &json!({"query": "rebuild the search index", "exact": true}),
    );
    assert_eq!((&exact[0]["metadata"]["pr"], exact.len()), (&json!(7), 3));
    assert!(exact[0]["distance"].as_f64().unwrap() < 1e-5);
    let hits = home.cli(&["vector", "search", "plum cake"]).ok().stdout;
    assert!(
        hits.lines()
            .nth(1)
            .unwrap()
            .contains("  cake    @tester/tester"),
        "{hits}"
    );
    let done = home
        .cli(&["vector", "store", "note", "plum jam", "--metadata", "[1]"])
        .ok();
    assert!(
        done.stdout.starts_with("stored note, safe on disk"),
        "{done:?}"
    );
    let list = home.cli(&["vector", "list", "--json"]).ok().json();
    assert_eq!(
        keys(list["items"].as_array().unwrap()),
        ["cake", "deploy", "index", "note"]
    );
    assert!(
        home.cli(&["vector", "delete", "cake"])
            .ok()
            .stdout
            .starts_with("deleted cake")
    );
    let gone = home.cli(&["vector", "delete", "cake", "--json"]);
    assert_eq!(
        (gone.code, &gone.json()["code"]),
        (4, &json!("unknown_key"))
    );
    assert_eq!(
        keys(&search(&daemon, &json!({"query": "plum cake"})))[0],
        "note"
    );
    assert_eq!(home.cli(&["vector", "search"]).code, 2);
}

#[test]
fn lists_are_paged_to_their_end() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..7 {
        store(&daemon, &format!("k'{n}"), "text");
    }
    let (mut all, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let encode = |text: &String| {
            text.bytes()
                .map(|b| format!("%{b:02x}"))
                .collect::<String>()
        };
        let more = cursor.as_ref().map(|c| format!("&cursor={}", encode(c)));
        let target = format!("/v1/vector/list?limit=3{}", more.unwrap_or_default());
        let page = daemon.http.get(&target).expect(200);
        all.extend(
            keys(page["items"].as_array().unwrap())
                .iter()
                .map(ToString::to_string),
        );
        cursor = page["cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let expected: Vec<String> = (0..7).map(|n| format!("k'{n}")).collect();
    assert_eq!(all, expected);
    daemon
        .http
        .get("/v1/vector/list?cursor=nonsense")
        .expect(400);
    let none = daemon.http.get("/v1/vector/list?model=nobody").expect(200);
    assert_eq!(none["items"], json!([]));
}

// --- the gate and the models -------------------------------------------------------------------------

#[test]
fn the_same_id_gives_the_first_receipt_and_another_request_409() {
    let home = Home::new();
    let daemon = home.up();
    let calls = [
        (
            "/v1/vector/store",
            json!({"key": "k", "content": "text"}),
            json!({"key": "k", "content": "other"}),
        ),
        (
            "/v1/vector/store",
            json!({"key": "l", "content": "t", "embedding": [1, 2.5]}),
            json!({"key": "l", "content": "t", "embedding": [1, 2]}),
        ),
        (
            "/v1/vector/delete",
            json!({"key": "k"}),
            json!({"key": "l"}),
        ),
    ];
    for (n, (target, body, other)) in calls.iter().enumerate() {
        let id = format!("id-{n}");
        let first = under(&daemon, &id, target, body).expect(200);
        let mut again = under(&daemon, &id, target, body).expect(200);
        assert_eq!(again["duplicate"], true, "{target}");
        again["duplicate"] = json!(false);
        assert_eq!(again, first);
        let conflict = under(&daemon, &id, target, other).expect(409);
        assert_eq!(conflict["code"], "idempotency_key_reused");
    }
    assert_eq!(
        keys(&search(&daemon, &json!({"query": "text"}))),
        [] as [&str; 0]
    );
}

#[test]
fn lf_31_vectors_of_two_models_are_never_compared_and_bad_numbers_are_refused() {
    let home = Home::new();
    let daemon = home.up();
    let put = |key: &str, numbers: Value, model: &str| {
        let body = json!({"key": key, "content": "t", "embedding": numbers, "model": model});
        daemon.http.post("/v1/vector/store", &body)
    };
    put("a", json!([1, 0]), "mine").expect(200);
    put("b", json!([0, 1]), "mine").expect(200);
    put("c", json!([1, 0]), "other").expect(200);
    put("d", json!([1, 0, 0]), "mine").expect(200);
    store(&daemon, "e", "t");
    let near = |model: &str, numbers: Value| {
        search(&daemon, &json!({"embedding": numbers, "model": model}))
    };
    assert_eq!(keys(&near("mine", json!([1, 0.1]))), ["a", "b"]);
    assert_eq!(
        keys(&near("caller:mine:unknown", json!([0.1, 1]))),
        ["b", "a"]
    );
    assert_eq!(keys(&near("mine", json!([1, 0, 0]))), ["d"]);
    assert_eq!(keys(&near("other", json!([1, 0]))), ["c"]);
    assert_eq!(keys(&near("nobody", json!([1, 0]))), [] as [&str; 0]);
    assert_eq!(keys(&search(&daemon, &json!({"query": "t"}))), ["e"]);
    for bad in [
        json!([]),
        json!([0, 0]),
        json!([1e300]),
        json!([1, null]),
        json!(["1"]),
        json!(vec![1; 8193]),
    ] {
        assert_eq!(
            put("bad", bad.clone(), "mine").expect(400)["code"],
            "invalid_request",
            "{bad:.40}"
        );
    }
    for bad in [
        json!({"query": "t", "embedding": [1]}),
        json!({}),
        json!({"query": ""}),
        json!({"query": "t", "limit": 0}),
        json!({"query": "t", "limit": 101}),
        json!({"query": "t", "model": "mine"}),
        json!({"embedding": [1], "model": "a:b:c:d"}),
        json!({"embedding": [1], "model": "a:b:c:2:float32"}),
        json!({"query": "t", "colour": 1}),
    ] {
        daemon.http.post("/v1/vector/search", &bad).expect(400);
    }
    let large = json!({"key": "k", "content": "x".repeat((64 << 10) + 1)});
    daemon.http.post("/v1/vector/store", &large).expect(413);
    // Two models are called so.
    let body = json!({"key": "a", "model": "mine"});
    let several = daemon.http.post("/v1/vector/delete", &body).expect(400);
    assert_eq!(several["candidates"].as_array().unwrap().len(), 2);
    let body = json!({"key": "a", "model": "caller:mine:unknown:2:float32"});
    daemon.http.post("/v1/vector/delete", &body).expect(200);
    daemon.stop();
    assert_paired(&home);
}

#[test]
fn lf_31_a_forged_table_name_is_an_error_and_touches_nothing() {
    let home = Home::new();
    let daemon = home.up();
    store(&daemon, "k", "text");
    daemon.stop();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    raw.execute(
        "UPDATE vector_models SET vec_table = 'outbox; DROP TABLE outbox'",
        [],
    )
    .unwrap();
    drop(raw);
    let daemon = home.up();
    let answer = daemon
        .http
        .post("/v1/vector/search", &json!({"query": "text"}));
    assert!(
        answer.expect(500)["detail"]
            .as_str()
            .unwrap()
            .contains("vector_models")
    );
    let body = json!({"key": "l", "content": "text"});
    daemon.http.post("/v1/vector/store", &body).expect(500);
    let sent = json!({"to": "@tester", "message": "m"});
    daemon.http.post("/v1/send", &sent).expect(202);
}

/// `a`, `b` and `c` under a model whose row was changed so, and `h` under the home's own.
fn with_a_bad_row(change: &str) -> Home {
    let home = Home::new();
    let daemon = home.up();
    let slow = |key: &str| json!({"key": key, "content": "slow text", "model": "slow", "embedding": [1.0, 0.5, 0.25]});
    for key in ["a", "b", "c"] {
        daemon.http.post("/v1/vector/store", &slow(key)).expect(200);
    }
    store(&daemon, "h", "text of the home");
    daemon.stop();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let sql = format!("UPDATE vector_models SET {change} WHERE model = 'slow'");
    assert_eq!(raw.execute(&sql, []).unwrap(), 1);
    drop(raw);
    home
}

/// The row of one model says something else: the others are searched, all are listed and deleted, and a repair puts it right.
#[test]
fn lf_31_a_bad_row_of_one_model_stops_that_model_alone_and_a_repair_keeps_its_vectors() {
    for change in [
        "dim = 17",
        "provider = 'somebody'",
        "id = '0123456789abcdef'",
        "vec_table = 'outbox; DROP TABLE outbox'",
    ] {
        let home = with_a_bad_row(change);
        let daemon = home.up();
        assert_eq!(
            keys(&search(&daemon, &json!({"query": "text"}))),
            ["h"],
            "{change}"
        );
        let list = daemon.http.get("/v1/vector/list").expect(200);
        assert_eq!(
            list["items"].as_array().unwrap().len(),
            4,
            "{change}: {list}"
        );
        assert!(
            list["left_out"][0].as_str().unwrap().starts_with("model "),
            "{change}: {list}"
        );
        daemon
            .http
            .post("/v1/vector/delete", &json!({"key": "b"}))
            .expect(200);
        // By its fingerprint, as the list gives it.
        let print = list["items"][0]["model"].as_str().unwrap().to_owned();
        let one = json!({"key": "c", "model": print});
        daemon.http.post("/v1/vector/delete", &one).expect(200);
        if change.starts_with("vec_table") {
            home.cli(&[
                "advanced",
                "re-embed",
                "--from",
                &print,
                "--to",
                "heddle-hash-v1",
            ])
            .ok();
            let found = search(&daemon, &json!({"query": "slow text"}));
            assert_eq!(keys(&found), ["a", "h"], "{change}");
        }
        wait_until("the status to know of it", || {
            home.cli(&["status", "--json"]).json()["verdict"] == "degraded"
        });
        daemon.stop();
        let mended = home.cli(&["doctor", "--repair"]).ok();
        assert!(
            mended.stdout.contains("no row was lost"),
            "{change}: {mended:?}"
        );
        home.cli(&["doctor"]).ok();
        let daemon = home.up();
        if !change.starts_with("vec_table") {
            let query = json!({"embedding": [1.0, 0.5, 0.25], "model": "slow"});
            assert_eq!(keys(&search(&daemon, &query)), ["a"], "{change}");
        }
        daemon.stop();
        assert_paired(&home);
    }
}

// --- kills ---------------------------------------------------------------------------------------

#[test]
fn lf_32_every_answered_vector_survives_kill_9_with_both_of_its_rows() {
    let home = Home::new();
    let mut answered = Vec::new();
    for round in 0..4 {
        let daemon = home.up();
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let http = daemon.http.clone();
                std::thread::spawn(move || {
                    let mut kept = Vec::new();
                    for n in 0.. {
                        let key = format!("k-{round}-{worker}-{n}");
                        let body =
                            json!({"key": key, "content": format!("text {key}")}).to_string();
                        match http.request("POST", "/v1/vector/store", &[], &body) {
                            Some(answer) if answer.status == 200 => kept.push(key),
                            _ => return kept,
                        }
                    }
                    kept
                })
            })
            .collect();
        wait_until("some vectors", || {
            let list = daemon.http.get("/v1/vector/list?limit=500").expect(200);
            let own = format!("k-{round}-");
            let items = list["items"].as_array().unwrap().clone();
            keys(&items)
                .iter()
                .filter(|key| key.starts_with(&own))
                .count()
                > 20
        });
        daemon.kill();
        answered.extend(
            workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap()),
        );
        assert_paired(&home);
    }
    let daemon = home.up();
    for key in answered.iter().step_by(7) {
        let found = search(
            &daemon,
            &json!({"query": format!("text {key}"), "limit": 3}),
        );
        assert!(keys(&found).contains(&key.as_str()), "{key}");
    }
}

#[test]
fn re_embedding_goes_on_after_a_kill_and_moves_every_vector_once() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..100 {
        let body = json!({"key": format!("k{n:03}"), "content": format!("text number {n}"), "embedding": [n, 1], "model": "old"});
        daemon.http.post("/v1/vector/store", &body).expect(200);
    }
    let body = json!({"key": "mute", "content": "", "embedding": [1, 1], "model": "old"});
    daemon.http.post("/v1/vector/store", &body).expect(200);
    let refused = home.cli(&["advanced", "re-embed", "--to", "dream"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("candidates") || refused.stderr.contains("heddle-hash-v1"),
        "{refused:?}"
    );
    let step = daemon
        .http
        .post("/v1/vector/re_embed", &json!({"to": "heddle-hash-v1"}))
        .expect(200);
    assert_eq!(
        step["moved"].as_u64().unwrap() + step["left"].as_u64().unwrap(),
        101
    );
    assert!(step["cursor"].is_string(), "{step}");
    daemon.kill();
    assert_paired(&home);
    let daemon = home.up();
    let done = home
        .cli(&["advanced", "re-embed", "--to", "heddle-hash-v1", "--json"])
        .ok()
        .json();
    let before = step["moved"].as_u64().unwrap();
    assert_eq!(done["moved"].as_u64().unwrap(), 100 - before, "{done}");
    assert_eq!(
        (&done["left"], &done["skipped"], &done["others"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!(
        (&done["there"], &done["without_text"]),
        (&json!(100), &json!(1))
    );
    let again = home
        .cli(&["advanced", "re-embed", "--to", "heddle-hash-v1"])
        .ok()
        .stdout;
    assert!(
        again.contains("moved nothing") && again.contains("1 stays without a text"),
        "{again}"
    );
    let list = daemon.http.get("/v1/vector/list?limit=500").expect(200);
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 101);
    let moved = |item: &&Value| {
        item["model"]
            .as_str()
            .unwrap()
            .starts_with("heddle-hash-v1:")
    };
    assert_eq!(items.iter().filter(moved).count(), 100);
    assert_eq!(
        keys(&search(
            &daemon,
            &json!({"query": "text number 42", "limit": 1})
        )),
        ["k042"]
    );
    let old = search(&daemon, &json!({"embedding": [1, 1], "model": "old"}));
    assert_eq!(keys(&old), ["mute"]);
    daemon.stop();
    assert_paired(&home);
}

#[test]
fn an_embedding_of_another_length_than_its_models_vectors_is_refused_with_both_lengths() {
    let home = Home::new();
    let daemon = home.up();
    for (key, model) in [("a", Some("m")), ("b", None)] {
        let body = json!({"key": key, "content": "c", "model": model, "embedding": [1, 0, 0]});
        daemon.http.post("/v1/vector/store", &body).expect(200);
    }
    let ask = |model: Option<&str>, embedding: Value| {
        let body = json!({"model": model, "embedding": embedding});
        daemon.http.post("/v1/vector/search", &body)
    };
    for model in [
        Some("m"),
        Some("caller:m:unknown"),
        Some("caller:m:unknown:3:float32"),
        None,
    ] {
        let problem = ask(model, json!([1, 0])).expect(400);
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("has 2 numbers") && detail.contains("have 3"),
            "{detail}"
        );
        assert!(
            problem["next"]
                .as_str()
                .unwrap()
                .contains("with that model"),
            "{problem}"
        );
        assert_eq!(
            ask(model, json!([1, 0, 0])).expect(200)["items"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }
    // A model without any vectors is no mistake.
    let none = ask(Some("nobody"), json!([1, 0])).expect(200);
    assert_eq!(none["items"], json!([]));
}
