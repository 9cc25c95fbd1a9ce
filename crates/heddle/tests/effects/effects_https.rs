//! An effect is verified over HTTPS: by a server that this machine trusts, under its own name, and by nobody else.

use crate::support;

use std::path::{Path, PathBuf};

use support::broker_process::BrokerProcess;
use support::effect_pair::run;
use support::effect_proxy::said;
use support::{Home, Ran};

fn fixture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    folder.join(name)
}

/// Something that answers over TLS: a broker does.
fn server(house: &Home) -> (BrokerProcess, String) {
    let data = house.path().parent().unwrap().join("broker");
    let [cert, key] = ["broker.pem", "broker.key"].map(|name| fixture(name).display().to_string());
    let args = ["--tls-cert", cert.as_str(), "--tls-key", key.as_str()];
    let broker = BrokerProcess::start(house, &data, "127.0.0.1:0", &args);
    let port = broker.listen().rsplit_once(':').unwrap().1.to_owned();
    (broker, port)
}

#[test]
fn a_url_is_asked_over_tls_and_only_a_trusted_answer_closes_the_effect() {
    let (house, home) = (Home::new(), Home::new());
    let (_server, port) = server(&house);
    let _daemon = home.up();
    let check = |key: &str, url: &str, trusted: bool| {
        let args = run(
            key,
            &["--verify-url", url, "--verify-timeout", "0s"],
            "true",
        );
        let mut command = home.command(&args);
        if trusted {
            command.env("SSL_CERT_FILE", fixture("ca.pem"));
        }
        Ran::from(command.output().unwrap())
    };
    let healthy = format!("https://localhost:{port}/healthz");
    let closed = check("good", &healthy, true).ok();
    assert_eq!(said(&closed), "closed");
    let detail = closed.json()["verify_detail"].to_string();
    assert!(detail.contains("answered 200"), "{detail}");
    // It says no. Nobody vouches for it here, or it has another name: then nobody has answered, and nothing is recorded.
    let other_name = format!("https://[::1]:{port}/healthz");
    let by_number = format!("https://127.0.0.1:{port}/no/such/page");
    let missing = format!("https://localhost:{port}/no/such/page");
    let failed = check("missing", &missing, true);
    assert_eq!(
        (failed.code, said(&failed).as_str()),
        (1, "verify_failed"),
        "{failed:?}"
    );
    let detail = failed.json()["verify_detail"].to_string();
    assert!(detail.contains("answered 426"), "{detail}");
    assert_eq!(said(&check("number", &by_number, true)), "verify_failed");
    for (key, url, trusted) in [("stranger", &healthy, false), ("name", &other_name, true)] {
        let open = check(key, url, trusted);
        assert_eq!(
            (open.code, said(&open).as_str()),
            (3, "finished"),
            "{open:?}"
        );
        let detail = open.json()["detail"].to_string();
        assert!(detail.contains("did not answer"), "{detail}");
    }
    // And the same call again, with somebody who answers, closes it without a second run.
    let closed = check("stranger", &healthy, true).ok();
    assert_eq!(said(&closed), "closed");
    // In clear elsewhere, or with a password: refused before anything is registered.
    for url in ["ftp://localhost/", "https://me:secret@localhost/"] {
        assert_eq!(check("never", url, true).code, 2, "{url}");
    }
    assert_eq!(home.cli(&["effect", "status", "never"]).code, 4);
}

#[test]
fn a_verdict_that_was_left_is_given_over_https() {
    let (house, home) = (Home::new(), Home::new());
    let (_server, port) = server(&house);
    let _daemon = home.up();
    home.cli(&run("k", &["--verify-later"], "true")).ok();
    let url = format!("https://localhost:{port}/healthz");
    let args = ["effect", "verify", "k", "--url", &url, "--json"];
    let mut command = home.command(&args);
    let command = command.env("SSL_CERT_FILE", fixture("ca.pem"));
    let verified = Ran::from(command.output().unwrap()).ok();
    assert_eq!(said(&verified), "closed");
}
