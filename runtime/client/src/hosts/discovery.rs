//! Hosts found by a DNS name: `dns://frostline.storage:8443` refers to all addresses of the name.

use crate::address::any_of;
use crate::transport::Address;
use crate::{ClientError, Deadlines, HostClient, Token, Trust};
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of a DNS lookup.
const LOOKUP: Duration = Duration::from_secs(10);

/// Maximum number of addresses per name. Each address needs connections.
const MOST: usize = 1024;

/// DNS lookup function. The arguments are the name and port.
pub(crate) type Lookup =
    Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// A DNS name with the connection settings of the hosts.
pub(super) struct Discovery {
    url: String,
    scheme: &'static str,
    name: String,
    port: u16,
    token: Option<Token>,
    trust: Trust,
    deadlines: Deadlines,
    lookup: Lookup,
}

impl Discovery {
    /// Parses `url`. Returns `None` if it is the address of a single host.
    ///
    /// # Errors
    /// Returns [`ClientError::Address`] if a DNS address is not just a name and a port.
    pub(super) fn new(
        url: &str,
        token: Option<Token>,
        trust: &Trust,
        deadlines: Deadlines,
    ) -> Result<Option<Self>, ClientError> {
        let Some(any) = any_of(url) else { return Ok(None) };
        let parsed = url::Url::parse(&any).map_err(|error| refused(url, &error.to_string()))?;
        let scheme = if parsed.scheme() == "https" {
            "https"
        } else {
            "http"
        };
        let (Some(name), Some(port)) = (parsed.domain(), parsed.port_or_known_default()) else {
            return Err(refused(url, "a name is needed"));
        };
        let has_user = !parsed.username().is_empty() || parsed.password().is_some();
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() || has_user {
            return Err(refused(url, "it must be a name and a port only"));
        }
        Ok(Some(Self {
            url: url.to_owned(),
            scheme,
            name: name.to_owned(),
            port,
            token,
            trust: trust.clone(),
            deadlines,
            lookup: Arc::new(|name, port| {
                Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
            }),
        }))
    }

    /// Replaces the lookup function.
    #[cfg(test)]
    pub(super) fn with(self, lookup: Lookup) -> Self {
        Self { lookup, ..self }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Resolves the name to one or more addresses.
    ///
    /// # Errors
    /// Returns [`ClientError::Unreachable`] if the lookup fails, times out or finds no address.
    pub(super) async fn addresses(&self) -> Result<BTreeSet<SocketAddr>, ClientError> {
        let looking = (self.lookup)(self.name.clone(), self.port);
        let found = timeout(LOOKUP, looking).await;
        let found = found.map_err(|_| self.unreachable(format!("DNS lookup timed out for {}", self.name)))?;
        let found = found
            .map_err(|error| self.unreachable(format!("DNS lookup failed for {}: {error}", self.name)))?;
        let found: BTreeSet<SocketAddr> = found.into_iter().collect();
        if found.is_empty() {
            return Err(self.unreachable(format!("DNS has no records for {}", self.name)));
        }
        Ok(found.into_iter().take(MOST).collect())
    }

    fn unreachable(&self, reason: String) -> ClientError {
        ClientError::Unreachable {
            host: self.url.clone(),
            reason,
        }
    }

    /// Returns the URL of the host at `address` in the form that the client uses, without the default port of
    /// the scheme.
    pub(super) fn url_of(&self, address: SocketAddr) -> String {
        let url = format!("{}://{address}", self.scheme);
        url::Url::parse(&url).map_or(url, |url| url.as_str().trim_end_matches('/').to_owned())
    }

    /// Creates a client of the host at `address`. The certificate must be valid for the name.
    pub(super) fn client(&self, address: SocketAddr) -> Result<HostClient, ClientError> {
        let url = self.url_of(address);
        let address = Address {
            verified_as: Some(&self.name),
            ..Address::from_url(&url)
        };
        HostClient::at(address, self.token.clone(), &self.trust, self.deadlines)
    }
}

fn refused(url: &str, reason: &str) -> ClientError {
    let form = "use the form dns://frostline.storage:8443, or dns+http:// without TLS";
    ClientError::address(url, format!("{reason}; {form}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discovery(url: &str) -> Result<Option<Discovery>, ClientError> {
        Discovery::new(url, None, &Trust::default(), Deadlines::default())
    }

    #[test]
    fn a_name_and_a_port_are_taken_and_nothing_else() {
        let of = |url: &str| {
            let found = discovery(url).unwrap().unwrap();
            (found.scheme, found.name, found.port)
        };
        assert_eq!(of("dns://store:8443"), ("https", "store".to_owned(), 8443));
        assert_eq!(of("dns+https://a.b.svc/"), ("https", "a.b.svc".to_owned(), 443));
        assert_eq!(of("dns+http://store:7433"), ("http", "store".to_owned(), 7433));
        assert!(discovery("https://store:8443").unwrap().is_none());
        for wrong in [
            "dns://",
            "dns://store:1/path",
            "dns://10.0.0.1:8443",
            "dns://me@store:1",
            "dns://[::1]:1",
        ] {
            let error = discovery(wrong).err().unwrap().to_string();
            assert!(error.contains("dns://frostline.storage:8443"), "{error}");
        }
        assert_eq!(any_of("dns://store:8443").unwrap(), "https://store:8443");
        assert_eq!(any_of("http://store"), None);
    }

    #[test]
    fn hosts_are_called_as_their_clients_call_themselves() {
        for (name, address, called) in [
            ("dns://store", "10.0.0.1:443", "https://10.0.0.1"),
            ("dns+http://store:80", "10.0.0.1:80", "http://10.0.0.1"),
            ("dns+http://store:443", "10.0.0.1:443", "http://10.0.0.1:443"),
            ("dns://store:8443", "[fd00::1]:8443", "https://[fd00::1]:8443"),
            (
                "dns://store:8443",
                "[::ffff:10.0.0.1]:8443",
                "https://[::ffff:a00:1]:8443",
            ),
        ] {
            let discovery = discovery(name).unwrap().unwrap();
            let address = address.parse().unwrap();
            assert_eq!(discovery.url_of(address), called);
            assert_eq!(discovery.client(address).unwrap().url(), called);
        }
    }

    #[tokio::test]
    async fn a_name_without_addresses_is_told() {
        let lookup: Lookup = Arc::new(|_, _| Box::pin(async { Ok(Vec::new()) }));
        let discovery = discovery("dns://store:1").unwrap().unwrap().with(lookup);
        let error = discovery.addresses().await.unwrap_err().to_string();
        assert!(
            error.contains("dns://store:1") && error.contains("no records"),
            "{error}"
        );
    }
}
