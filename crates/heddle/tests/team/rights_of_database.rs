//! What a role may and may not do in the database of a team broker, each told as what it is, with what helps.

use serde_json::{Value, json};

use crate::support::broker_process::BrokerProcess;
use crate::support::servers::Postgres;
use crate::support::team_broker::Team;
use crate::support::{Home, Ran, wait_until};

fn job(house: &Home, words: &[&str], url: &str) -> Ran {
    let head = [&["--json", "broker"], words, &["--database", url]];
    house.cli(&head.concat())
}

fn told(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for words in words {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
}

fn serve(house: &Home, url: &str) -> Result<BrokerProcess, Ran> {
    let data = house.path().parent().unwrap().join("broker");
    BrokerProcess::try_start(house, &data, "127.0.0.1:0", &["--database", url])
}

const JOBS: [&[&str]; 5] = [
    &["members"],
    &["orphan-check"],
    &["epoch"],
    &["sweep"],
    &["epoch", "bump"],
];

/// Another role's tables, and one that may make schemas: the way out is the owner, not a right that it has.
#[test]
fn a_role_that_may_not_use_the_tables_is_told_so_with_the_rights_it_needs() {
    let (house, database) = (Home::new(), Postgres::start());
    job(&house, &["migrate"], &database.url()).ok();
    database.sql("CREATE ROLE looker LOGIN");
    let url = database.url().replace("heddle@", "looker@");
    let next = ["GRANT USAGE ON SCHEMA mesh", "ALTER SCHEMA mesh OWNER TO"];
    for words in JOBS {
        let ran = job(&house, words, &url);
        told(&ran, 6, &next);
        assert!(!ran.stderr.contains("cannot be reached"), "{ran:?}");
    }
    told(&job(&house, &["migrate"], &url), 6, &next);
    database.sql("GRANT CREATE ON DATABASE postgres TO looker");
    told(&job(&house, &["migrate"], &url), 6, &next);
    told(&serve(&house, &url).err().unwrap(), 6, &next);
    // What it says helps: halfway, too.
    database.sql("GRANT USAGE ON SCHEMA mesh TO looker");
    database.sql("GRANT SELECT ON mesh.schema_migration TO looker");
    told(&job(&house, &["members"], &url), 6, &next);
    database.sql("GRANT SELECT ON ALL TABLES IN SCHEMA mesh TO looker");
    for words in &JOBS[..3] {
        job(&house, words, &url).ok();
    }
}

/// The right to make the schemas is needed once.
#[test]
fn the_right_to_make_a_schema_is_needed_once() {
    let (house, database) = (Home::new(), Postgres::start());
    database.sql("CREATE ROLE team LOGIN");
    let url = database.url().replace("heddle@", "team@");
    told(&job(&house, &["migrate"], &url), 6, &["GRANT CREATE ON"]);
    database.sql("GRANT CREATE ON DATABASE postgres TO team");
    job(&house, &["migrate"], &url).ok();
    database.sql("REVOKE CREATE ON DATABASE postgres FROM team");
    job(&house, &["migrate"], &url).ok();
    drop(serve(&house, &url).unwrap());
    for words in JOBS {
        job(&house, words, &url).ok();
    }
}

#[test]
fn too_few_connections_are_told_as_that_at_every_number() {
    let (house, database) = (Home::new(), Postgres::start());
    database.sql("CREATE ROLE team LOGIN");
    database.sql("GRANT CREATE ON DATABASE postgres TO team");
    let url = database.url().replace("heddle@", "team@");
    job(&house, &["migrate"], &url).ok();
    for limit in 0..=2 {
        database.sql(&format!("ALTER ROLE team CONNECTION LIMIT {limit}"));
        if let Err(ran) = serve(&house, &url) {
            told(&ran, 5, &["takes no connection for now"]);
        } else {
            assert!(limit > 1, "{limit}");
        }
        if limit < 2 {
            let ran = job(&house, &["sweep"], &url);
            told(&ran, 5, &["takes no connection for now"]);
        }
    }
}

/// The folder of a broker has no tables where those are in a database, and none are made in it by mistake.
#[test]
fn a_folder_that_was_served_with_a_database_asks_for_it() {
    let (house, database) = (Home::new(), Postgres::start());
    drop(serve(&house, &database.url()).unwrap());
    let data = house.path().parent().unwrap().join("broker");
    let ran = BrokerProcess::try_start(&house, &data, "127.0.0.1:0", &[]);
    let next = [
        "was served with a database",
        "--database",
        "HEDDLE_BROKER_DATABASE",
    ];
    told(&ran.err().unwrap(), 4, &next);
    assert!(!data.join("broker.db").exists() && !data.join("effects.db").exists());
    drop(serve(&house, &database.url()).unwrap());
}

/// Where every broker has died, a lease is over when its time is, though nobody is there to end it.
#[test]
fn members_are_not_here_for_ever_after_the_last_broker_has_died() {
    let (house, team) = (Home::new(), Team::on(Some(Postgres::start())));
    let invited = team.cli("team", &["invite"]).ok().json();
    let home = Home::new();
    let _up = home.up();
    let link = invited["link"].as_str().unwrap();
    home.cli(&["mesh", "join", link, "--as", "team"]).ok();
    let (broker, database) = (team.broker, team.database.unwrap());
    let ask = |words: &[&str]| job(&house, words, &database.url()).ok().json();
    let is_here = || ask(&["members"])["members"][0]["online"].clone();
    wait_until("the member", || is_here() == json!(true));
    wait_until("lease time", || {
        database.sql("SELECT count(*) FROM mesh.mesh WHERE lease_at IS NOT NULL") == ["1"]
    });
    broker.kill();
    assert_eq!(is_here(), json!(true), "for the rest of its lease");
    // As if a minute had passed.
    database.sql("UPDATE mesh.mesh SET lease_at = lease_at - interval '1 minute'");
    assert_eq!(is_here(), json!(false));
    let members: Value = ask(&["members"]);
    assert_ne!(members["members"][0]["last_seen"], json!("never"));
}
