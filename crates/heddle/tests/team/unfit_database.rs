//! BR-18 and C37 over the binary: a database that could forget what it was given serves nobody, not at the start and not later.

use std::net::TcpListener;

use serde_json::json;

use crate::support::broker_process::BrokerProcess;
use crate::support::ledger::status;
use crate::support::servers::{Postgres, Redis};
use crate::support::{Home, Ran, wait_until};

fn refused(house: &Home, listen: &str, url: &str) -> Ran {
    let data = house.path().parent().unwrap().join("broker");
    let started = BrokerProcess::try_start(house, &data, listen, &["--database", url]);
    started.err().expect("it should not have started")
}

fn set(database: &Postgres, setting: &str, value: &str) {
    database.sql(&format!("ALTER SYSTEM SET {setting} = {value}"));
    database.sql("SELECT pg_reload_conf()");
    wait_until(setting, || {
        database.sql(&format!("SHOW {setting}")) == [value]
    });
}

#[test]
fn br_18_each_setting_of_a_server_that_could_forget_is_refused_before_the_port_is_bound() {
    let (house, mut database) = (Home::new(), Postgres::start());
    let url = database.url();
    // Somebody has the port: whoever bound it first, and looked at the database later, would end with that.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    for setting in ["fsync", "full_page_writes"] {
        set(&database, setting, "off");
        let ran = refused(&house, &listen, &url);
        assert_eq!(ran.code, 6, "{ran:?}");
        assert!(ran.stderr.contains(&format!("{setting} is off")), "{ran:?}");
        set(&database, setting, "on");
    }
    database.sql("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII'");
    let ascii = url.replace("/postgres", "/ascii");
    let ran = refused(&house, &listen, &ascii);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("UTF8"), "{ran:?}");
    database.restart_as_standby();
    let ran = refused(&house, &listen, &url);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("it is a replica"), "{ran:?}");
}

/// A broker that runs makes new connections, too: what they find is looked at like what the first one found.
#[test]
fn br_18_a_server_that_becomes_unfit_while_a_broker_runs_gets_nothing_more() {
    let (house, database) = (Home::new(), Postgres::start());
    let (url, data) = (
        database.url(),
        house.path().parent().unwrap().join("broker"),
    );
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &["--database", &url]);
    let home = Home::new();
    home.config(&broker.config());
    let up = home.up();
    home.cli(&["topic", "create", "ops"]).ok();
    set(&database, "fsync", "off");
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'heddle-broker'";
    database.sql(cut);
    wait_until("the broker to say so", || {
        broker.page("/readyz", None).0 == 503
    });
    let body = json!({"to": "#ops", "message": "m", "client_message_id": "m"});
    up.http.post("/v1/send", &body).expect(202);
    let written = "SELECT count(*) FROM mesh.client_message_dedupe";
    // Long enough for several tries of its own.
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(
        database.sql(written),
        ["0"],
        "nothing is given to a server that could forget it"
    );
    assert_eq!(status(&up)["outbox"]["dead"], 0);
    set(&database, "fsync", "on");
    wait_until("the message", || database.sql(written) == ["1"]);
    wait_until("the answer", || status(&up)["outbox"]["done"] == 1);
}

#[test]
fn t_32_a_broker_says_who_else_can_reach_what_it_stands_on() {
    let (house, database, redis) = (Home::new(), Postgres::start(), Redis::start());
    let data = house.path().parent().unwrap().join("broker");
    let limiter = redis.url();
    let url = database.url();
    let open = ["--database", &url, "--limiter", &limiter];
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &open);
    let warnings = broker.ready["warnings"].as_array().unwrap().clone();
    let said = broker.ready["warnings"].to_string();
    assert_eq!(warnings.len(), 3, "{said}");
    for words in [
        "a superuser of the database",
        "database lets this broker in without",
        "Redis lets this broker in without",
    ] {
        assert!(said.contains(words), "{words}: {said}");
        wait_until("the log", || !broker.logged(words).is_empty());
    }
    drop(broker);
    // What it says helps.
    database.sql("CREATE ROLE team LOGIN PASSWORD 'secret'");
    database.sql("CREATE DATABASE team OWNER team ENCODING 'UTF8' TEMPLATE template0");
    let url = format!(
        "postgres://team:secret@{}/team",
        url.split(['@', '/']).nth(3).unwrap()
    );
    let data = house.path().parent().unwrap().join("closed");
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &["--database", &url]);
    assert_eq!(broker.ready.get("warnings"), None, "{}", broker.ready);
}

fn job(house: &Home, words: &[&str], url: &str, more: &[&str]) -> Ran {
    let head = [&["--json", "broker"], words, &["--database", url], more];
    house.cli(&head.concat())
}

const SCHEMAS: &str = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('mesh', 'mehs')";

/// A name that was mistyped: the answer says so, and nothing is left there that looks like a broker's.
#[test]
fn a_job_that_looks_makes_no_tables_and_a_wrong_name_is_no_empty_answer() {
    let (house, database) = (Home::new(), Postgres::start());
    let url = database.url();
    let looks: [&[&str]; 5] = [
        &["members"],
        &["orphan-check"],
        &["epoch"],
        &["sweep"],
        &["epoch", "bump"],
    ];
    for words in looks {
        let ran = job(&house, words, &url, &[]);
        assert_eq!(
            (ran.code, &ran.json()["code"]),
            (4, &json!("not_found")),
            "{ran:?}"
        );
        assert!(ran.stderr.contains("heddle broker migrate"), "{ran:?}");
    }
    assert_eq!(database.sql(SCHEMAS), ["0"]);
    job(&house, &["migrate"], &url, &[]).ok();
    for words in looks {
        job(&house, words, &url, &[]).ok();
        let ran = job(&house, words, &url, &["--database-schema", "mehs"]);
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.stderr.contains("\"mehs\""), "{ran:?}");
    }
    assert_eq!(database.sql(SCHEMAS), ["1"]);
    // Tables of before are for a start or `migrate` to bring up to date, and those of tomorrow for nobody here.
    let latest = "SELECT max(version) FROM mesh.schema_migration";
    let version = database.sql(latest);
    let undone = format!(
        "DELETE FROM mesh.schema_migration WHERE version = {}",
        version[0]
    );
    database.sql(&undone);
    for words in [["members"], ["orphan-check"], ["epoch"]] {
        let ran = job(&house, &words, &url, &[]);
        assert_eq!(ran.code, 6, "{ran:?}");
        assert!(ran.stderr.contains("heddle broker migrate"), "{ran:?}");
    }
    assert_ne!(database.sql(latest), version);
}

#[test]
fn a_database_that_answers_no_is_not_one_that_is_away() {
    let (house, database) = (Home::new(), Postgres::start());
    let url = database.url();
    database.sql("CREATE ROLE picky LOGIN PASSWORD 'right'");
    let file = database.sql("SHOW hba_file");
    database.sql(&format!(
        "COPY (VALUES ('host all picky all scram-sha-256'), ('local all all trust'), ('host all all all trust')) TO '{}'",
        file[0]
    ));
    database.sql("SELECT pg_reload_conf()");
    let host = url.split(['@', '/']).nth(3).unwrap();
    let as_picky = |password: &str| format!("postgres://picky{password}@{host}/postgres");
    wait_until("the rule", || {
        let ran = job(&house, &["members"], &as_picky(":wrong"), &[]);
        ran.stderr.contains("28P01") || ran.stderr.contains("password")
    });
    for url in [as_picky(":wrong"), as_picky("")] {
        for words in ["members", "migrate"] {
            let ran = job(&house, &[words], &url, &[]);
            assert_eq!(ran.code, 6, "{ran:?}");
            assert!(ran.stderr.contains("correct user and password"), "{ran:?}");
            assert!(!ran.stderr.contains("wrong@"), "{ran:?}");
        }
        assert_eq!(refused(&house, "127.0.0.1:0", &url).code, 6);
    }
    let ran = refused(&house, "127.0.0.1:0", &url.replace("/postgres", "/taem"));
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(
        ran.stderr
            .contains("CREATE DATABASE \"taem\" ENCODING 'UTF8'"),
        "{ran:?}"
    );
    for bad in ["mysql://u:secret@h/x", "h/x"] {
        let ran = job(&house, &["members"], bad, &[]);
        assert_eq!(ran.code, 2, "{ran:?}");
        let shape = "it looks like postgres://USER:PASSWORD@HOST:PORT/DATABASE";
        assert!(ran.stderr.contains(shape), "{ran:?}");
        assert!(!ran.stderr.contains("secret"), "{ran:?}");
    }
}

/// Somebody looks at the tables with a lock, and forgets to let go: no start waits for that without an end and a word.
#[test]
fn tables_that_somebody_holds_are_told_as_that_and_nobody_waits_for_ever() {
    let (house, database) = (Home::new(), Postgres::start());
    let url = format!("{}?options=-c%20lock_timeout%3D300ms", database.url());
    assert_eq!(job(&house, &["migrate"], &url, &[]).code, 0);
    std::thread::scope(|scope| {
        // Until it is told to let go, or for a minute.
        let holding = "BEGIN; LOCK TABLE mesh.schema_migration IN ACCESS EXCLUSIVE MODE;
            DO $$ BEGIN FOR turn IN 1..600 LOOP
                PERFORM pg_sleep(0.1);
                EXIT WHEN EXISTS (SELECT 1 FROM pg_tables WHERE tablename = 'let_go');
            END LOOP; END $$;
            COMMIT";
        scope.spawn(|| database.sql(holding));
        wait_until("the lock", || {
            let granted = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND \
                relation = 'mesh.schema_migration'::regclass";
            database.sql(granted) == ["1"]
        });
        let told = |ran: &Ran| {
            assert_eq!(ran.code, 5, "{ran:?}");
            assert!(ran.stderr.contains("another session"), "{ran:?}");
            assert!(ran.stderr.contains("pg_stat_activity"), "{ran:?}");
        };
        for words in ["migrate", "members"] {
            told(&job(&house, &[words], &url, &[]));
        }
        told(&refused(&house, "127.0.0.1:0", &url));
        database.sql("CREATE TABLE let_go ()");
    });
    assert_eq!(job(&house, &["members"], &url, &[]).code, 0);
}

/// A load balancer sends nobody to a broker that can accept nothing.
#[test]
fn a_database_that_takes_no_writes_any_more_and_a_limiter_that_is_full_are_not_ready() {
    let (house, database, redis) = (Home::new(), Postgres::start(), Redis::start());
    let (url, limiter) = (database.url(), redis.url());
    let data = house.path().parent().unwrap().join("broker");
    let more = ["--database", &url, "--limiter", &limiter];
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &more);
    let waits_for = |what: &str| {
        let (code, page) = broker.page("/readyz", None);
        code == 503 && page.contains(&format!("[\"{what}\"]"))
    };
    let is_ready = || broker.page("/readyz", None).0 == 200;
    assert!(is_ready());
    set(&database, "default_transaction_read_only", "on");
    wait_until("the database", || waits_for("database"));
    set(&database, "default_transaction_read_only", "off");
    wait_until("the database to be back", is_ready);

    redis.ask(&["config", "set", "maxmemory", "1"]);
    wait_until("the limiter", || waits_for("limiter"));
    redis.ask(&["config", "set", "maxmemory", "0"]);
    wait_until("the limiter to be back", is_ready);
    // A look leaves nothing behind.
    assert_eq!(redis.ask(&["dbsize"]), "0");
    assert_eq!(broker.terminate(), 0);
}

/// What helps is another thing each time, and none of these is a database that should be started.
#[test]
fn what_is_wrong_with_the_way_to_a_database_is_told_as_what_it_is() {
    let (house, database) = (Home::new(), Postgres::start());
    let url = database.url();
    database.sql("CREATE ROLE full LOGIN CONNECTION LIMIT 0");
    let no_place = url.replace("heddle@", "full@");
    let in_clear = format!("{url}?sslmode=require");
    let cases: [(&str, &[&str], i32, &str, &str); 6] = [
        ("", &[], 2, "it names no host", "postgres://USER"),
        (
            "postgres:///team",
            &[],
            2,
            "it names no host",
            "postgres://USER",
        ),
        (
            &url,
            &["--database-schema", "Mesh"],
            2,
            "--database-schema: \"Mesh\"",
            "Correct the option",
        ),
        (
            &url,
            &["--database-ca", "nowhere.pem"],
            2,
            "--database-ca: ",
            "Correct the option",
        ),
        (&in_clear, &[], 6, "has no TLS", "sslmode=disable"),
        (&no_place, &[], 5, "takes no connection", "CONNECTION LIMIT"),
    ];
    for (url, more, code, said, next) in cases {
        let ran = job(&house, &["migrate"], url, more);
        assert_eq!(ran.code, code, "{url} {more:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
        assert!(ran.stderr.contains(next), "{next}: {ran:?}");
        assert!(!ran.stderr.contains("Start the database"), "{ran:?}");
    }
    assert_eq!(database.sql(SCHEMAS), ["0"]);
    // Said of a database, and no database is named: it was meant for one.
    let folder = house.path().parent().unwrap().join("alone");
    let data = folder.to_str().unwrap();
    for option in ["--database-schema", "--database-ca"] {
        for verb in ["serve", "members", "sweep"] {
            let ran = house.cli(&["broker", verb, "--data", data, option, "team"]);
            assert_eq!(ran.code, 2, "{ran:?}");
            assert!(ran.stderr.contains("none is named"), "{ran:?}");
        }
    }
    assert!(!folder.exists(), "nothing is made");
}
