//! Whether the brokers that the settings of a home name can be reached, and take what this home presents to them.
//!
//! For a home in which no daemon runs: the connection is made and closed again before anything is said in it, so nobody
//! is thrown out by it and nothing is sent.

use std::path::Path;

use heddle_wire::ipc::Finding;

use super::look::{fine, wrong};
use crate::config::{Config, HOME_MESH};
use crate::link::{Connector as _, UrlConnector};

/// What to do where what config.toml says of the way to a broker is wrong.
pub(crate) const SETTINGS_NEXT: &str = "Correct token_file, ca_file or url in config.toml (`heddle broker serve` writes broker_token into its data folder; ca_file is the certificate of the authority that signed the broker's); a running daemon tries again by itself with what those files hold then, for another line in config.toml restart it with `heddle down` and `heddle up`. What was accepted waits.";

/// One finding for each of them; none where the settings cannot be read, which is told elsewhere.
pub async fn broker_findings(home: &Path) -> Vec<Finding> {
    let Ok(config) = Config::load(&home.join("config.toml")) else {
        return Vec::new();
    };
    let own = config.broker.url.as_ref().map(|url| {
        let name = HOME_MESH.to_owned();
        let own = &config.broker;
        (
            name,
            url.clone(),
            own.token_file.clone(),
            own.ca_file.clone(),
        )
    });
    let others = config.mesh.iter().map(|mesh| {
        let name = mesh.name.to_string();
        let (token, ca) = (mesh.token_file.clone(), mesh.ca_file.clone());
        (name, mesh.url.clone(), token, ca)
    });
    let mut findings = Vec::new();
    for (mesh, url, token_file, ca_file) in own.into_iter().chain(others) {
        let connector = UrlConnector::new(url)
            .with_token_file(token_file.map(|file| home.join(file)))
            .with_ca_file(ca_file.map(|file| home.join(file)));
        findings.push(finding(&mesh, &connector).await);
    }
    findings
}

async fn finding(mesh: &str, connector: &UrlConnector) -> Finding {
    let check = format!("broker of mesh {mesh}");
    match connector.connect().await {
        Ok(mut stream) => {
            // Politely, but the answer is no matter.
            let _ = stream.close(None).await;
            fine(&check, format!("{} answers", connector.label()))
        }
        Err(error) if error.is_ours => wrong(&check, error.to_string(), SETTINGS_NEXT),
        // A network comes back by itself.
        Err(error) => {
            let says = format!("it cannot be reached now: {error}; what is sent waits for it");
            fine(&check, says)
        }
    }
}
