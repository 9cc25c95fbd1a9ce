//! Whether the way to the database is encrypted, and by whose word it is the right one.
//!
//! On this machine it is plain unless asked for. To another machine it is TLS with a verified certificate,
//! unless the address says `sslmode=disable`: then somebody else must protect the way.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use deadpool_postgres::{Manager, ManagerConfig};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::OpenError;
use super::wires::carry;
use crate::authorities::Authorities;

#[derive(Clone)]
pub(super) enum Tls {
    Plain,
    Verified(MakeRustlsConnect),
}

impl Tls {
    /// As the address asks for; `ca` is a file of certificates to trust instead of the machine's.
    pub(super) fn choose(config: &mut Config, ca: Option<&Path>) -> Result<Self, OpenError> {
        let is_here = stays_here(config);
        let is_plain = match config.get_ssl_mode() {
            SslMode::Disable => true,
            SslMode::Prefer => is_here && ca.is_none(),
            _ => false,
        };
        if is_plain {
            config.ssl_mode(SslMode::Disable);
            return Ok(Self::Plain);
        }
        config.ssl_mode(SslMode::Require);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| OpenError::Address(error.to_string()))?
            .with_root_certificates(roots(ca)?)
            .with_no_client_auth();
        Ok(Self::Verified(MakeRustlsConnect::new(client)))
    }

    pub(super) fn manager(&self, config: Config, how: ManagerConfig) -> Manager {
        match self {
            Self::Plain => Manager::from_config(config, NoTls, how),
            Self::Verified(tls) => Manager::from_config(config, tls.clone(), how),
        }
    }

    /// A connection of its own, and what it is notified of.
    pub(super) async fn listen(
        &self,
        config: &Config,
    ) -> Result<(Client, mpsc::Receiver<Notification>), tokio_postgres::Error> {
        Ok(match self {
            Self::Plain => {
                let (client, connection) = config.connect(NoTls).await?;
                (client, carry(connection))
            }
            Self::Verified(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                (client, carry(connection))
            }
        })
    }
}

/// Whether every address that is dialled is this machine's. `hostaddr` is dialled where it is given, whatever `host` says.
fn stays_here(config: &Config) -> bool {
    config.get_hosts().iter().all(is_here) && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

fn is_here(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|a| a.is_loopback())
        }
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, OpenError> {
    let Some(file) = ca else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let read = Authorities::read(file).map_err(|why| OpenError::Option {
        option: "--database-ca",
        why,
    })?;
    Ok(read.roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_plain(url: &str) -> bool {
        let mut config: Config = url.parse().unwrap();
        matches!(Tls::choose(&mut config, None), Ok(Tls::Plain))
    }

    #[test]
    fn a_database_elsewhere_is_only_reached_in_clear_when_the_address_says_so() {
        assert!(is_plain("postgres://u@127.0.0.1/d"));
        assert!(is_plain("postgres://u@localhost/d"));
        assert!(is_plain("host=/run/postgresql user=u"));
        assert!(is_plain("postgres://u@192.0.2.7/d?sslmode=disable"));
        assert!(!is_plain("postgres://u@192.0.2.7/d"));
        assert!(!is_plain("postgres://u@db.example/d?sslmode=require"));
        assert!(!is_plain("postgres://u@127.0.0.1/d?sslmode=require"));
        // What is dialled is the address, and not the name beside it.
        assert!(is_plain("hostaddr=127.0.0.1 user=u"));
        assert!(!is_plain("hostaddr=192.0.2.7 user=u"));
        assert!(!is_plain("host=localhost hostaddr=192.0.2.7 user=u"));
        assert!(!is_plain(
            "host=localhost,db hostaddr=127.0.0.1,192.0.2.7 user=u"
        ));
    }
}
