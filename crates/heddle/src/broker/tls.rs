//! The certificate that a broker shows, from two files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::cli::{CliError, exit};

/// `--tls-cert` and `--tls-key`.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

pub fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, CliError> {
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(&files.cert, &error))?;
    if chain.is_empty() {
        return Err(unusable(&files.cert, &"it holds no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| unusable(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&files.cert, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unusable(file: &Path, why: &dyn std::fmt::Display) -> CliError {
    CliError::new(exit::USAGE, format!("{}: {why}", file.display())).next(
        "--tls-cert names a PEM file with the certificate and those that vouch for it, --tls-key the PEM file \
         with its private key.",
    )
}
