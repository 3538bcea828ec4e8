//! TLS server configuration with a certificate that is reloaded when the files change.

use crate::config::TlsFiles;
use frostline_tensor::Cause;
use parking_lot::RwLock;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Error when loading a certificate or key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read the TLS file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file has invalid content, which is never part of the message.
    #[error("invalid TLS file {}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        reason: Cause,
    },
    /// The TLS library rejected the default settings.
    #[error("cannot set up TLS: {detail}")]
    Setup {
        /// Message from the library.
        #[source]
        detail: Cause,
    },
}

/// Certificate that the host presents to clients.
#[derive(Debug)]
pub(crate) struct Certificate {
    files: TlsFiles,
    current: RwLock<LoadedCertificate>,
}

#[derive(Debug)]
struct LoadedCertificate {
    /// Digest of both files, to detect changes.
    digest: [u8; 32],
    key: Arc<CertifiedKey>,
    expires_at: Option<i64>,
}

impl LoadedCertificate {
    fn new(digest: [u8; 32], key: CertifiedKey) -> Self {
        Self {
            digest,
            expires_at: expiry(&key),
            key: Arc::new(key),
        }
    }
}

impl Certificate {
    /// Reads both files.
    pub(crate) fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let (chain, key) = contents(&files)?;
        let current = LoadedCertificate::new(digest(&chain, &key), certified(&files, &chain, &key)?);
        let current = RwLock::new(current);
        Ok(Self { files, current })
    }

    /// Reads both files again and returns true if they contain a new certificate or key. If the files are
    /// unusable, the current certificate stays in use.
    pub(crate) fn refresh(&self) -> Result<bool, TlsError> {
        let (chain, key) = contents(&self.files)?;
        let digest = digest(&chain, &key);
        if digest == self.current.read().digest {
            return Ok(false);
        }
        let current = LoadedCertificate::new(digest, certified(&self.files, &chain, &key)?);
        *self.current.write() = current;
        Ok(true)
    }

    /// Returns the expiry of the current certificate in Unix seconds, or `None` if it is not valid X.509.
    pub(crate) fn expires_at(&self) -> Option<i64> {
        self.current.read().expires_at
    }

    /// Creates an acceptor for TLS 1.2 and 1.3 that offers HTTP/2 and HTTP/1.1 by ALPN. If `client_ca` is set,
    /// clients must present a certificate that an authority in this file has signed.
    pub(crate) fn acceptor(self: &Arc<Self>, client_ca: Option<&Path>) -> Result<TlsAcceptor, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup { detail: error.into() })?;
        let clients = match client_ca {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(path) => client_verifier(path)?,
        };
        let mut config = builder
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Returns a verifier that requires certificates of clients that an authority in `path` has signed.
fn client_verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let pem = read(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| invalid(path, error))?;
        roots.add(certificate).map_err(|error| invalid(path, error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    verifier.map_err(|error| invalid(path, error))
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read();
        Some(Arc::clone(&current.key))
    }
}

/// Returns the expiry of the first certificate in the chain, as Unix seconds.
fn expiry(key: &CertifiedKey) -> Option<i64> {
    let (_, certificate) = x509_parser::parse_x509_certificate(key.cert.first()?).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn contents(files: &TlsFiles) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    Ok((read(&files.certificate)?, read(&files.key)?))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}

fn invalid(path: &Path, reason: impl Into<Cause>) -> TlsError {
    TlsError::Content {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

fn digest(chain: &[u8], key: &[u8]) -> [u8; 32] {
    let mut both = Sha256::new();
    both.update((chain.len() as u64).to_le_bytes());
    both.update(chain);
    both.update(key);
    both.finalize().into()
}

fn certified(files: &TlsFiles, chain: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(&files.certificate, Cause::with_message("not PEM", error)))?;
    if chain.is_empty() {
        return Err(invalid(&files.certificate, "no certificate in PEM"));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| invalid(&files.key, Cause::with_message("no private key in PEM", error)))?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
        invalid(
            &files.key,
            Cause::with_message("the key does not match the certificate", error),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::generate_simple_self_signed;
    use std::path::Path;

    fn write(folder: &Path, certificate: Option<&str>, key: Option<&str>) {
        for (name, text) in [("cert.pem", certificate), ("key.pem", key)] {
            if let Some(text) = text {
                std::fs::write(folder.join(name), text).unwrap();
            }
        }
    }

    fn files(folder: &Path) -> TlsFiles {
        TlsFiles {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        }
    }

    fn pair() -> (String, String) {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn shown(certificate: &Certificate) -> Arc<CertifiedKey> {
        Arc::clone(&certificate.current.read().key)
    }

    #[test]
    fn changed_files_are_used_once_certificate_and_key_match() {
        let folder = tempfile::tempdir().unwrap();
        let (old, old_key) = pair();
        let (new, new_key) = pair();
        write(folder.path(), Some(&old), Some(&old_key));
        let certificate = Arc::new(Certificate::read(files(folder.path())).unwrap());
        assert!(certificate.acceptor(None).is_ok());
        let first = shown(&certificate);
        assert!(!certificate.refresh().unwrap());
        write(folder.path(), Some(&new), None);
        let error = certificate.refresh().unwrap_err().to_string();
        assert!(error.contains("does not match the certificate"), "{error}");
        assert!(Arc::ptr_eq(&first, &shown(&certificate)));
        write(folder.path(), None, Some(&new_key));
        assert!(certificate.refresh().unwrap());
        assert_ne!(first.cert, shown(&certificate).cert);
    }

    #[test]
    fn expiry_is_that_of_the_current_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let write_until = |parameters: &rcgen::CertificateParams| {
            let key = rcgen::KeyPair::generate().unwrap();
            let made = parameters.self_signed(&key).unwrap();
            write(folder.path(), Some(&made.pem()), Some(&key.serialize_pem()));
        };
        parameters.not_after = rcgen::date_time_ymd(2030, 1, 1);
        write_until(&parameters);
        let certificate = Certificate::read(files(folder.path())).unwrap();
        assert_eq!(certificate.expires_at(), Some(1_893_456_000));
        parameters.not_after = rcgen::date_time_ymd(2031, 1, 1);
        write_until(&parameters);
        assert!(certificate.refresh().unwrap());
        assert_eq!(certificate.expires_at(), Some(1_924_992_000));
    }

    #[test]
    fn unusable_files_are_named_without_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = pair();
        let refused = || Certificate::read(files(folder.path())).unwrap_err().to_string();
        assert!(refused().contains("cert.pem"));
        write(folder.path(), Some(&key), Some(&key));
        assert!(refused().contains("no certificate in PEM"));
        write(folder.path(), Some(&certificate), Some(&certificate));
        let error = refused();
        assert!(
            error.contains("key.pem") && error.contains("no private key"),
            "{error}"
        );
        write(folder.path(), None, Some(&key.replace("MI", "XX")));
        let error = refused();
        let line = key.lines().nth(1).unwrap();
        assert!(error.contains("key.pem") && !error.contains(line), "{error}");
    }
}
