//! A team broker that is reached by TLS, with a certificate of the team's own authority: publish, join, and what homes trust.

use crate::support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::effect_pair::home_of;
use support::servers::Postgres;
use support::team_broker::link_of;
use support::{Home, Ran, text_of, wait_until, wait_until_within};

use super::team_members::{has, is_connected, send};

pub(crate) fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    folder.join(name).to_str().unwrap().to_owned()
}

/// Encrypted, with a certificate for `localhost` that only the team's authority vouches for.
struct Encrypted {
    house: Home,
    database: Postgres,
    broker: BrokerProcess,
}

impl Encrypted {
    fn new() -> Self {
        let (house, database) = (Home::new(), Postgres::start());
        let broker = Self::serve(&house, &database, "127.0.0.1:0");
        Self {
            house,
            database,
            broker,
        }
    }

    fn serve(house: &Home, database: &Postgres, listen: &str) -> BrokerProcess {
        Self::serve_as("broker", house, database, listen)
    }

    /// With this certificate.
    fn serve_as(name: &str, house: &Home, database: &Postgres, listen: &str) -> BrokerProcess {
        let (cert, key) = (
            fixture(&format!("{name}.pem")),
            fixture(&format!("{name}.key")),
        );
        let url = database.url();
        let more = ["--database", &url, "--tls-cert", &cert, "--tls-key", &key];
        let data = house.path().parent().unwrap().join("broker");
        BrokerProcess::start(house, &data, listen, &more)
    }

    fn url(&self) -> String {
        let listen = self.broker.listen();
        format!("wss://localhost:{}/", listen.rsplit(':').next().unwrap())
    }

    fn token(&self) -> String {
        let file = self.broker.data.join("broker_token");
        file.to_str().unwrap().to_owned()
    }
}

fn config_of(home: &Home) -> String {
    text_of(&home.path().join("config.toml"))
}

/// The verdict of `heddle doctor` about the way to a broker.
fn way(home: &Home, mesh: &str) -> Value {
    let found = home.cli(&["doctor", "--json"]).json();
    let findings = found["findings"].as_array().unwrap().clone();
    let named = format!("broker of mesh {mesh}");
    findings
        .into_iter()
        .find(|one| one["check"] == named)
        .unwrap_or_else(|| panic!("{found}"))
}

/// Neither without an authority, nor by a file that holds none; nothing is changed then.
fn nobody_else_is_believed(home: &Home, publish: &dyn Fn(&[&str]) -> Ran) {
    let (other, none) = (fixture("broker.key"), fixture("nowhere.pem"));
    for (more, words) in [
        (&[][..], "does not know the authority"),
        (&["--ca", &other], "no certificate"),
        (&["--ca", &none], "nowhere.pem"),
    ] {
        let refused = publish(more);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
        assert!(refused.stderr.contains("--ca FILE"), "{refused:?}");
        assert!(!config_of(home).contains("[[mesh]]"));
        assert!(
            is_connected(home, "home"),
            "what was refused left it as it was"
        );
    }
}

#[test]
fn a_mesh_moves_by_wss_and_a_second_home_joins_by_it_each_trusting_the_teams_own_authority() {
    let team = Encrypted::new();
    let (url, token, ca) = (team.url(), team.token(), fixture("ca.pem"));
    let alice = home_of("alice");
    let alice_up = alice.up();
    alice.cli(&["remember", "who", "ada"]).ok();
    alice.cli(&["agent", "register", "planner"]).ok();
    let publish = |more: &[&str]| {
        let args = ["mesh", "publish", "home", "--json", "--to", &url];
        alice.cli(&[&args[..], &["--token-file", &token], more].concat())
    };
    nobody_else_is_believed(&alice, &publish);
    let done = publish(&["--ca", &ca]).ok().json();
    assert_eq!(
        (&done["done"], &done["broker"]),
        (&json!(true), &json!(url))
    );
    assert!(config_of(&alice).contains(&ca), "{}", config_of(&alice));

    let invited = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    let bob = home_of("bob");
    let bob_up = bob.up();
    let join = ["mesh", "join", link_of(&invited), "--as", "team", "--json"];
    let refused = bob.cli(&join);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("--ca FILE"), "{refused:?}");
    // The one use of the link was not taken. A path that is not from the root is the caller's, not the daemon's.
    let mut command = bob.command(&[&join[..], &["--ca", "ca.pem"]].concat());
    let joined = command
        .current_dir(Path::new(&ca).parent().unwrap())
        .output();
    let joined = Ran::from(joined.unwrap()).ok().json();
    assert_eq!(joined["connected"], true, "{joined}");
    bob.cli(&["--mesh", "team", "agent", "register", "coder"])
        .ok();
    wait_until("alice's rows", || {
        let recalled = bob.cli(&["--mesh", "team", "recall", "who", "--scope", "all"]);
        recalled.stdout.contains("ada")
    });
    send(&alice, "home", "@bob/coder", "down");
    send(&bob, "team", "@alice/planner", "up");
    wait_until("both", || {
        has(&bob, "team", "coder", "down") && has(&alice, "home", "planner", "up")
    });

    // What they trust is theirs, not the terminal's: a start from anywhere finds it. The broker moves meanwhile.
    alice_up.stop();
    bob_up.stop();
    let told = way(&bob, "team");
    assert_eq!(told["ok"], true, "{told}");
    assert!(told.to_string().contains("answers"), "{told}");
    let (alice_up, bob_up) = (alice.up(), bob.up());
    let listen = team.broker.listen();
    let Encrypted {
        house,
        database,
        broker,
    } = team;
    assert_eq!(broker.terminate(), 0);
    let _broker = Encrypted::serve(&house, &database, &listen);
    wait_until("both to be back", || {
        is_connected(&alice, "home") && is_connected(&bob, "team")
    });
    send(&alice, "home", "@bob/coder", "again");
    wait_until("the message", || has(&bob, "team", "coder", "again"));
    drop((alice_up, bob_up));
}

/// What is wrong with what a home trusts is told as that, by the status and by the doctor, and mended by the file alone.
#[test]
fn t_20_a_home_says_whom_it_does_not_trust_and_goes_on_by_itself_once_it_does() {
    let team = Encrypted::new();
    let home = home_of("alice");
    let file: PathBuf = home.path().join("team.pem");
    let mesh = |url: &str, more: &str| {
        format!(
            "[daemon]\nmember = \"alice\"\n[[mesh]]\nname = \"team\"\nurl = {url:?}\ntoken_file = {:?}\n{more}",
            team.token()
        )
    };
    home.config(&mesh(&team.url(), "ca_file = \"team.pem\"\n"));
    let own = home_of("own");
    std::fs::write(&file, "not a certificate\n").unwrap();
    let up = home.up();
    let status = || home.cli(&["status", "--json"]).json().to_string();
    // It asks again after a wait that grows.
    let within = Duration::from_secs(90);
    wait_until_within(within, "the file to be named", || {
        status().contains("team.pem")
    });
    // Another authority than the broker's: the broker's own certificate vouches for nobody.
    std::fs::copy(fixture("broker.pem"), &file).unwrap();
    wait_until_within(within, "the distrust", || {
        status().contains("signed by none")
    });
    std::fs::copy(fixture("ca.pem"), &file).unwrap();
    wait_until_within(within, "the connection", || is_connected(&home, "team"));
    up.stop();

    // Without a file, on a machine that does not know the authority: which setting helps.
    home.config(&mesh(&team.url(), ""));
    let told = way(&home, "team");
    assert_eq!(told["ok"], false, "{told}");
    assert!(told.to_string().contains("ca_file"), "{told}");
    // One that is named for a way in clear is a mistake that is told at the start.
    own.config(&mesh("ws://127.0.0.1:1/", "ca_file = \"team.pem\"\n"));
    let refused = own.try_up().err().unwrap();
    assert!(refused.stderr.contains("wss://"), "{refused:?}");
}

/// What is wrong with the broker's own certificate is told with who mends it, and not as a broker that is away.
#[test]
fn t_20_a_certificate_that_expired_or_is_for_another_name_is_told_with_who_mends_it() {
    let (house, database) = (Home::new(), Postgres::start());
    let home = home_of("alice");
    let _up = home.up();
    for (name, words) in [
        ("expired", "its certificate expired on 2026-01-01T00:00:00"),
        ("elsewhere", "its certificate is not for localhost, but for"),
    ] {
        let broker = Encrypted::serve_as(name, &house, &database, "127.0.0.1:0");
        // Whoever starts it is told as well, on the screen, in the answer and in the log.
        let said = "the certificate expired on 2026-01-01T00:00:00";
        let is_expired = name == "expired";
        assert_eq!(
            broker.ready["warnings"].to_string().contains(said),
            is_expired,
            "{}",
            broker.ready
        );
        if is_expired {
            wait_until("the log", || {
                !broker.logged("the certificate expired").is_empty()
            });
        }
        let port = broker.listen().rsplit(':').next().unwrap().to_owned();
        let (url, token) = (
            format!("wss://localhost:{port}/"),
            broker.data.join("broker_token"),
        );
        let ca = fixture("other_ca.pem");
        let publish = [
            "mesh",
            "publish",
            "home",
            "--to",
            &url,
            "--token-file",
            token.to_str().unwrap(),
            "--ca",
            &ca,
            "--json",
        ];
        let refused = home.cli(&publish);
        assert_eq!(refused.code, 5, "{refused:?}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words), "{detail}");
        assert!(detail.contains("whoever runs it"), "{detail}");
        // A home that is there already says the same of its mesh.
        let member = home_of("bob");
        member.config(&format!(
            "[daemon]\nmember = \"bob\"\n[[mesh]]\nname = \"team\"\nurl = {url:?}\ntoken_file = {token:?}\nca_file = {ca:?}\n"
        ));
        let _member_up = member.up();
        let within = Duration::from_secs(60);
        wait_until_within(within, "the status to say it", || {
            member.cli(&["status", "--json"]).stdout.contains(words)
        });
    }
}

#[test]
fn a_pipe_in_the_place_of_a_certificate_is_refused_and_not_waited_for() {
    let house = Home::new();
    let folder = house.path().parent().unwrap().to_owned();
    let pipe = folder.join("pipe.pem");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let pipe = pipe.to_str().unwrap();
    let (cert, key) = (fixture("broker.pem"), fixture("broker.key"));
    for (cert, key) in [(pipe, key.as_str()), (cert.as_str(), pipe)] {
        let more = ["--tls-cert", cert, "--tls-key", key];
        let started =
            BrokerProcess::try_start(&house, &folder.join("broker"), "127.0.0.1:0", &more);
        let ran = started.err().expect("it should not have started");
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("no regular file"), "{ran:?}");
    }
}
