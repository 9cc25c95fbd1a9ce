//! Certificates of authorities in a file: whose word counts for a server, instead of those that the machine trusts.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The file's text, and what is in it: at least one certificate, all of them readable.
pub(crate) struct Authorities {
    pub(crate) pem: Vec<u8>,
    pub(crate) roots: RootCertStore,
}

impl Authorities {
    /// The error names the file.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let bad = |why: String| format!("{}: {why}", file.display());
        let pem = std::fs::read(file).map_err(|error| bad(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots
                .add(certificate)
                .map_err(|error| bad(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(bad("it holds no certificate".to_owned()));
        }
        Ok(Self { pem, roots })
    }
}
