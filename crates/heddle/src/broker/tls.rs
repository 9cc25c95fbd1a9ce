//! The certificate that a broker shows, from two files, and whether it is good now.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_daemon::home::open_plain;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::cli::{CliError, exit};

/// More than any chain of certificates takes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// `--tls-cert` and `--tls-key`.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// What it serves with, and what those who come will say against the certificate.
pub fn acceptor(files: &TlsFiles, now: WallMs) -> Result<(TlsAcceptor, Vec<String>), CliError> {
    let chain = CertificateDer::pem_slice_iter(&read(&files.cert)?).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| unusable(&files.cert, &error))?;
    if chain.is_empty() {
        return Err(unusable(&files.cert, &"it holds no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?);
    let key = key.map_err(|error| unusable(&files.key, &error))?;
    let warnings = chain.iter().filter_map(|one| untimely(one, now));
    let warnings = warnings.map(|why| format!("{}: {why}", files.cert.display()));
    let warnings = warnings.collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&files.cert, &error))?;
    Ok((TlsAcceptor::from(Arc::new(config)), warnings))
}

/// A plain file and no more of it than that: whoever opened a pipe in its place would wait for ever.
fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut pem = Vec::new();
    open_plain(file)
        .and_then(|plain| plain.take(PEM_BYTES_MAX).read_to_end(&mut pem))
        .map_err(|error| unusable(file, &error))?;
    Ok(pem)
}

/// Why nobody takes this certificate now. The times of a certificate are looked at before who signed it, and that is all that
/// is asked here: as its own authority, for any name.
fn untimely(certificate: &CertificateDer<'_>, now: WallMs) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).ok()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let name = ServerName::try_from("broker").ok()?;
    let seconds = u64::try_from(now.0 / 1_000).ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let verified = verifier
        .build()
        .ok()?
        .verify_server_cert(certificate, &[], &name, &[], now);
    let at = |time: UnixTime| {
        let ms = i64::try_from(time.as_secs()).ok()?.checked_mul(1_000)?;
        Some(WallMs(ms).to_rfc3339())
    };
    match verified.err()? {
        rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after, ..
        }) => Some(format!(
            "the certificate expired on {}, so no home connects: renew it and start again (unless the clock of this machine \
                 is wrong)",
            at(not_after)?
        )),
        rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before,
            ..
        }) => Some(format!(
            "the certificate is good from {} on, so no home connects before: look at the clock of this machine, or get another one",
            at(not_before)?
        )),
        _ => None,
    }
}

fn unusable(file: &Path, why: &dyn std::fmt::Display) -> CliError {
    CliError::new(exit::USAGE, format!("{}: {why}", file.display())).next(
        "--tls-cert names a PEM file with the certificate and those that vouch for it, --tls-key the PEM file \
         with its private key.",
    )
}
