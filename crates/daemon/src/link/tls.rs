//! TLS to a broker. The certificates that this machine trusts decide (`SSL_CERT_FILE` names others in their place), or, where
//! the settings name a file, those in it and no others.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use heddle_core::clock::WallMs;
use heddle_store::open_plain;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connector::Unreached;

/// As large as all authorities of a machine together, and more.
const CA_BYTES_MAX: u64 = 1 << 20;

pub(super) async fn connect(
    host: &str,
    ca: Option<&Path>,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Unreached> {
    let failed = |why: String| Unreached::Passing(why);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .with_root_certificates(roots(ca).map_err(Unreached::Ours)?)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let connected = connector.connect(name, stream).await;
    connected.map_err(|error| refused(&error, ca))
}

/// Read at every connection, which is rare: a certificate that was added is trusted without a restart.
fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = ca else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let bad = |why: String| format!("ca_file {}: {why}", file.display());
    // A plain file, and no more of it than authorities take.
    let mut pem = Vec::new();
    open_plain(file)
        .and_then(|plain| plain.take(CA_BYTES_MAX).read_to_end(&mut pem))
        .map_err(|e| bad(e.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|e| bad(e.to_string()))?;
        roots.add(certificate).map_err(|e| bad(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("it holds no certificate (PEM)".to_owned()));
    }
    Ok(roots)
}

/// What a person at this end can change about it is said with it.
fn refused(error: &std::io::Error, ca: Option<&Path>) -> Unreached {
    match certificate_error(error) {
        Some(CertificateError::UnknownIssuer) => Unreached::Ours(match ca {
            None => "this machine does not know the authority that signed its certificate; if that is your own, name \
                     the authority's certificate (PEM): --ca FILE of `heddle mesh join` and `mesh publish`, ca_file \
                     beside the url in config.toml"
                .to_owned(),
            Some(file) => format!(
                "its certificate is signed by none of the authorities in ca_file {}",
                file.display()
            ),
        }),
        // `openssl req -x509` makes such a one unless it is told otherwise.
        Some(CertificateError::Other(_)) if error.to_string().contains("CaUsedAsEndEntity") => {
            Unreached::Passing(
                "it shows the certificate of an authority as its own; its operator gives it one that the authority \
                 signed (CA:FALSE)"
                    .to_owned(),
            )
        }
        Some(why) => Unreached::Passing(in_words(why).unwrap_or_else(|| error.to_string())),
        None => Unreached::Passing(error.to_string()),
    }
}

/// What whoever runs the broker can change about its certificate.
fn in_words(why: &CertificateError) -> Option<String> {
    let at = |time: &UnixTime| {
        let ms = i64::try_from(time.as_secs()).ok()?.checked_mul(1_000)?;
        Some(WallMs(ms).to_rfc3339())
    };
    match why {
        CertificateError::ExpiredContext { not_after, .. } => Some(format!(
            "its certificate expired on {}: whoever runs it renews the certificate and restarts it (unless the clock of this \
             machine is wrong)",
            at(not_after)?
        )),
        CertificateError::NotValidYetContext { not_before, .. } => Some(format!(
            "its certificate is good from {} on: the clock of this machine is behind, or whoever runs it renews the certificate",
            at(not_before)?
        )),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => Some(format!(
            "its certificate is not for {}, but for {}: write such a name in its address, or whoever runs it gets one for this \
             name (subjectAltName)",
            expected.to_str(),
            presented.join(", ")
        )),
        _ => None,
    }
}

fn certificate_error(error: &std::io::Error) -> Option<&CertificateError> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(why) => Some(why),
        _ => None,
    }
}
