//! Several brokers behind one address: the operator's token and answers are the same at each of them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::broker_process::BrokerProcess;
use crate::support::servers::Postgres;
use crate::support::team_broker::{Team, link_of, post_to};
use crate::support::{Home, text_of};

/// Two brokers on one database, with one token of the operator's.
struct Pair {
    _house: Home,
    _database: Postgres,
    brokers: [BrokerProcess; 2],
    admin: String,
}

fn pair(more: &[&str]) -> Pair {
    let (house, database) = (Home::new(), Postgres::start());
    let folder = house.path().parent().unwrap().to_owned();
    let (url, admin) = (database.url(), folder.join("shared_admin"));
    let brokers = ["one", "two"].map(|name| {
        let mut args = vec!["--database", url.as_str()];
        args.extend(["--admin-token-file", admin.to_str().unwrap()]);
        args.extend(more);
        BrokerProcess::start(&house, &folder.join(name), "127.0.0.1:0", &args)
    });
    Pair {
        admin: format!("Bearer {}", text_of(&admin).trim()),
        _house: house,
        _database: database,
        brokers,
    }
}

impl Pair {
    fn post(&self, broker: usize, path: &str, key: Option<&str>, body: &Value) -> (u16, Value) {
        let mut head = vec![("Authorization", self.admin.as_str())];
        head.extend(key.map(|key| ("Idempotency-Key", key)));
        post_to(&self.brokers[broker], path, &head, body)
    }
}

#[test]
fn whichever_broker_an_operator_reaches_takes_its_token_and_gives_the_same_answer() {
    let pair = Arc::new(pair(&[]));
    for broker in &pair.brokers {
        let own = broker.data.join("admin_token");
        assert!(!own.exists(), "a named file stands for the folder's own");
    }
    // Sixteen at once, at both: one mesh.
    let asked: Vec<_> = (0..16)
        .map(|number| {
            let pair = Arc::clone(&pair);
            std::thread::spawn(move || {
                let slug = json!({"slug": "team", "kind": "shared_owner"});
                pair.post(number % 2, "/api/my/meshes", None, &slug)
            })
        })
        .collect();
    let answers: Vec<_> = asked.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(
        answers.iter().all(|(status, _)| *status == 200),
        "{answers:?}"
    );
    let (_, first) = &answers[0];
    assert!(
        answers
            .iter()
            .all(|(_, one)| one["mesh_id"] == first["mesh_id"] && one["slug"] == "team"),
        "{answers:?}"
    );
    let made = answers.iter().filter(|(_, one)| one["duplicate"] == false);
    assert_eq!(made.count(), 1, "{answers:?}");
    // One key, asked at both, is one invitation.
    let path = "/api/my/meshes/team/invites";
    let body = json!({"role": "owner", "url": "wss://mesh.example/"});
    let (_, here) = pair.post(0, path, Some("first"), &body);
    let (_, there) = pair.post(1, path, Some("first"), &body);
    assert_eq!(here["link"], there["link"], "{here} {there}");
    assert_eq!(
        (&here["duplicate"], &there["duplicate"]),
        (&json!(false), &json!(true))
    );
    // A name with letters that an address writes as bytes.
    let slug = json!({"slug": "équipe", "kind": "shared_owner"});
    assert_eq!(pair.post(0, "/api/my/meshes", None, &slug).0, 200);
    let path = "/api/my/meshes/%C3%A9quipe/invites";
    let (status, made) = pair.post(1, path, None, &body);
    assert_eq!(status, 200, "{made}");
    let (status, refused) = pair.post(1, "/api/my/meshes/%FF/invites", None, &body);
    assert_eq!(status, 400, "{refused}");
}

/// What the link says of where the broker is.
fn names(link: &str, text: &str) -> bool {
    let bytes = link.rsplit('/').next().unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(bytes).unwrap();
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[test]
fn a_link_from_behind_a_proxy_that_does_tls_names_the_encrypted_address() {
    let pair = pair(&["--behind-proxy"]);
    let path = "/api/my/meshes/team/invites";
    let (status, made) = pair.post(0, path, None, &json!({"role": "owner"}));
    assert_eq!(status, 200, "{made}");
    let own = format!("wss://{}/", pair.brokers[0].listen());
    assert!(names(link_of(&made), &own), "{made}");
    // In clear where nothing encrypts.
    let team = Team::on(None);
    let admin = format!("Bearer {}", team.admin());
    let (_, made) = team.post(
        path,
        &[("Authorization", &admin)],
        &json!({"role": "owner"}),
    );
    assert!(
        names(link_of(&made), &format!("ws://{}/", team.broker.listen())),
        "{made}"
    );
}
