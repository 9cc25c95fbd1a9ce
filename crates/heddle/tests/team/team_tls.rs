//! TLS between a team broker and its database: a server that lets nobody in without it.

use crate::support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::broker_process::BrokerProcess;
use support::servers::Postgres;
use support::{Home, wait_until};

fn fixture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    folder.join(name)
}

#[test]
fn t_32_the_way_to_the_database_is_encrypted_and_its_certificate_is_looked_at() {
    let database = Postgres::start_tls(&fixture("broker.pem"), &fixture("broker.key"));
    let ca = fixture("ca.pem").to_str().unwrap().to_owned();
    let url = |mode: &str| {
        let port = database.port();
        format!("postgres://heddle@localhost:{port}/postgres{mode}")
    };
    let house = Home::new();
    let migrate = |url: &str, more: &[&str]| {
        let args = ["broker", "migrate", "--json", "--database", url];
        house.cli(&[&args[..], more].concat())
    };
    // In clear nobody gets in; without its certificate nobody believes it.
    let refused = [
        migrate(&url("?sslmode=disable"), &[]),
        migrate(&url(""), &[]),
        migrate(&url("?sslmode=require"), &[]),
    ];
    for ran in &refused {
        assert_ne!(ran.code, 0, "{ran:?}");
    }
    let said = &refused[2];
    assert!(said.stderr.contains("--database-ca"), "{said:?}");
    let url = url("?sslmode=require");
    migrate(&url, &["--database-ca", &ca]).ok();
    let data = house.path().parent().unwrap().join("broker");
    let more = ["--database", &url, "--database-ca", &ca];
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &more);
    let home = Home::new();
    home.config(&broker.config());
    let _up = home.up();
    let sent = ["send", "@tester", "hello", "--id", "A", "--wait"];
    wait_until("the message to get through", || home.cli(&sent).code == 0);
    wait_until("the message", || {
        let page: Value = home.cli(&["inbox", "--json"]).json();
        page.to_string().contains("hello")
    });
    // Every connection of it, the one that listens too.
    let ways = database.sql(
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'heddle-broker'",
    );
    assert!(
        ways.len() > 1 && ways.iter().all(|ssl| ssl == "t"),
        "{ways:?}"
    );
}
