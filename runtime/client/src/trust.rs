use crate::ClientError;
use crate::transport::Connector;
use frostline_tensor::Cause;
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Trusted certificate authorities for `https` hosts, and the certificate of the client, if any. The default is the
/// system's trust store, which `SSL_CERT_FILE` and `SSL_CERT_DIR` override.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// The only trusted authorities, or `None` for the system's.
    authorities: Option<Arc<RootCertStore>>,
    certificate: Option<Arc<ClientCertificate>>,
}

/// Certificate chain and private key of a client.
#[derive(Debug)]
struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Trust {
    /// Trusts only the PEM certificates in a file. These are private authorities or the host's own
    /// certificate.
    ///
    /// # Errors
    /// Returns [`ClientError::Authorities`] with the name of the file if the file cannot be read, contains an
    /// invalid certificate, or contains no certificate.
    pub fn read(path: &Path) -> Result<Self, ClientError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots
                .add(certificate)
                .map_err(|error| refused(path, Cause::with_message("unusable certificate", error)))?;
        }
        Ok(Self {
            authorities: Some(Arc::new(roots)),
            certificate: None,
        })
    }

    /// Presents the certificate in a PEM file, with its private key in `key`, to hosts that require one.
    ///
    /// # Errors
    /// Returns [`ClientError::Authorities`] with the name of the file that cannot be read or has invalid content.
    pub fn with_certificate(self, certificate: &Path, key: &Path) -> Result<Self, ClientError> {
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| refused(key, Cause::with_message("unusable private key", error)))?;
        let certificate = ClientCertificate {
            chain: certificates(certificate)?,
            key: private,
        };
        Ok(Self {
            certificate: Some(Arc::new(certificate)),
            ..self
        })
    }

    /// Creates a connector for HTTP/2 to a host, with TLS if `encrypted`. The certificate must be valid for
    /// the address, or for `verified_as` if set.
    pub(crate) fn connector(
        &self,
        encrypted: bool,
        verified_as: Option<&str>,
        deadline: Duration,
    ) -> Result<Connector, ClientError> {
        let mut tcp = tcp(encrypted);
        tcp.set_connect_timeout(Some(deadline));
        tcp.set_nodelay(true);
        let scheme = self.scheme(encrypted)?;
        let scheme = match verified_as {
            None => scheme,
            Some(name) => {
                let name = ServerName::try_from(name.to_owned())
                    .map_err(|error| ClientError::Authorities { reason: error.into() })?;
                scheme.with_server_name_resolver(FixedServerNameResolver::new(name))
            }
        };
        Ok(scheme.enable_http2().wrap_connector(tcp))
    }

    /// Creates a connector for HTTP/1.1 to a server other than a Frostline host, either for `https` or, without
    /// `encrypted`, for `http` addresses. It refuses the others.
    ///
    /// # Errors
    /// Returns [`ClientError::Authorities`] if the certificates cannot be used.
    pub fn web_connector(&self, encrypted: bool) -> Result<Connector, ClientError> {
        let scheme = self.scheme(encrypted)?;
        Ok(scheme.enable_http1().wrap_connector(tcp(encrypted)))
    }

    fn scheme(&self, encrypted: bool) -> Result<HttpsConnectorBuilder<WantsProtocols1>, ClientError> {
        let config = self
            .config(encrypted)
            .map_err(|error| ClientError::Authorities { reason: error.into() })?;
        let scheme = HttpsConnectorBuilder::new().with_tls_config(config);
        Ok(if encrypted {
            scheme.https_only()
        } else {
            scheme.https_or_http()
        })
    }

    fn config(&self, encrypted: bool) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        if !encrypted {
            let nobody = config.with_root_certificates(RootCertStore::empty());
            return Ok(nobody.with_no_client_auth());
        }
        let config = config.dangerous();
        let config = config.with_custom_certificate_verifier(self.verifier(provider)?);
        match self.certificate.as_deref() {
            None => Ok(config.with_no_client_auth()),
            Some(ClientCertificate { chain, key }) => {
                config.with_client_auth_cert(chain.clone(), key.clone_key())
            }
        }
    }

    fn verifier(&self, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, rustls::Error> {
        match &self.authorities {
            None => Ok(Arc::new(Verifier::new(provider)?)),
            Some(roots) => {
                let builder = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider);
                let verifier = builder.build();
                Ok(verifier.map_err(|error| rustls::Error::General(error.to_string()))?)
            }
        }
    }
}

/// Reads the certificates in a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let pem = std::fs::read(path).map_err(|error| refused(path, error.into()))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let certificates =
        certificates.map_err(|error| refused(path, Cause::with_message("invalid PEM", error)))?;
    if certificates.is_empty() {
        return Err(refused(path, "no PEM certificate found".into()));
    }
    Ok(certificates)
}

fn refused(path: &Path, reason: Cause) -> ClientError {
    ClientError::Authorities {
        reason: Cause::with_message(path.display().to_string(), reason),
    }
}

/// Returns a connector that refuses `https` addresses unless they are `encrypted` on top of it.
fn tcp(encrypted: bool) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(!encrypted);
    tcp
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;
    use std::error::Error;

    #[tokio::test]
    async fn a_connector_refuses_the_other_scheme() {
        let trust = Trust::default();
        for (encrypted, other) in [(false, "https://127.0.0.1:9"), (true, "http://127.0.0.1:9")] {
            let connector = trust.web_connector(encrypted).unwrap();
            let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
            let error = client.get(other.parse().unwrap()).await.unwrap_err();
            let causes = std::iter::successors(error.source(), |cause: &&dyn Error| (*cause).source());
            let causes: String = causes.map(ToString::to_string).collect();
            assert!(causes.contains("scheme"), "{causes}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        for content in [
            None,
            Some(""),
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ] {
            if let Some(content) = content {
                std::fs::write(&file, content).unwrap();
            }
            let error = Trust::read(&file).unwrap_err().to_string();
            assert!(error.contains("ca.pem"), "{error}");
        }
    }
}
