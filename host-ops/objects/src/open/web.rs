//! Read-only web servers, as `http(s)://host/folder`.

use super::address::{prefix, refused};
use super::opened::{Listing, Opened};
use super::settings::{CONNECT, REQUEST, Variables, plain_http, retry};
use crate::ObjectError;
use crate::dates::AnswerDates;
use crate::kind::{Credentials, Kind};
use crate::names::Filter;
use crate::tls::ensure_provider;
use futures::FutureExt;
use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use object_store::http::HttpBuilder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use url::Url;

/// Setting that allows plain HTTP to another machine.
const PERMISSION: &str = "FROSTLINE_ALLOW_HTTP";

/// Setting with a comma-separated list of servers that are allowed to have inner addresses.
const INNER: &str = "FROSTLINE_INNER_HOSTS";

/// Maximum number of redirects per request, within the server.
const REDIRECTS: usize = 5;

/// Opens a folder of a web server. Its keys are listed by WebDAV if the server supports it.
pub(super) fn open(root: &str, url: &Url, variables: &Variables) -> Result<Opened, ObjectError> {
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        let reason = "web servers are read without credentials; write https://host/folder and remove user, password and query";
        return Err(refused(root, reason));
    }
    let plain = plain_http(root, "it", Some(url.as_str()), variables, PERMISSION)?;
    // Listings name objects by the full path of their address, so the folder is an ordinary prefix.
    let mut server = url.clone();
    server.set_path("/");
    server.set_fragment(None);
    let store = HttpBuilder::new()
        .with_http_connector(WebConnector::new(plain, variables))
        .with_url(server)
        .with_retry(retry())
        .build()
        .map_err(|error| refused(root, error.to_string()))?;
    Ok(Opened {
        store: Arc::new(store),
        listing: Listing::Whole,
        prefix: prefix(root, url)?,
        kind: Kind::Web,
        credentials: Credentials::Given,
        dates: AnswerDates::default(),
    })
}

/// Connects to web servers. Answers are visible to everyone with access to the root, so they must not come
/// from other servers: redirects stay on the server, and a name is refused if it resolves to an inner address
/// at the time of the connection. Granting a root by address or as `localhost` grants that address.
#[derive(Debug)]
struct WebConnector {
    plain: bool,
    names: Names,
}

impl WebConnector {
    fn new(plain: bool, variables: &Variables) -> Self {
        let inner = variables
            .get(INNER)
            .into_iter()
            .flat_map(|names| names.split(','));
        let inner = inner.map(|name| name.trim().to_ascii_lowercase());
        let inner = inner.chain(["localhost".to_owned()]).collect();
        let names = Names {
            inner: Arc::new(inner),
        };
        Self { plain, names }
    }
}

impl HttpConnector for WebConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        ensure_provider();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(REQUEST)
            .https_only(!self.plain)
            // Sizes and ranges refer to the uncompressed files.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .redirect(Policy::custom(|attempt| match follows(&attempt) {
                true => attempt.follow(),
                false => {
                    let reason = format!(
                        "it redirects to {}; grant that as a data root",
                        origin(attempt.url())
                    );
                    attempt.error(reason)
                }
            }))
            .dns_resolver(self.names.clone())
            .build();
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "web",
            source: error.into(),
        })?;
        Ok(HttpClient::new(Filter {
            client: HttpClient::new(client),
            dates: AnswerDates::default(),
        }))
    }
}

fn follows(attempt: &Attempt<'_>) -> bool {
    attempt.previous().len() <= REDIRECTS
        && attempt
            .previous()
            .first()
            .is_some_and(|from| from.origin() == attempt.url().origin())
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Resolves names and refuses inner addresses.
#[derive(Debug, Clone)]
struct Names {
    /// Lowercase names with permission for inner addresses.
    inner: Arc<BTreeSet<String>>,
}

impl Names {
    fn allowed(&self, name: &str, found: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        let granted = self.inner.contains(&name.to_ascii_lowercase());
        let (inner, outer): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|address| !granted && is_inner(address.ip()));
        match (inner.first(), outer.is_empty()) {
            (Some(address), true) => Err(io::Error::other(format!(
                "{name} resolves to the inner address {}; to read its files, add it to {INNER} in the environment of this process",
                address.ip()
            ))),
            _ => Ok(outer),
        }
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let names = self.clone();
        async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed = names.allowed(name.as_str(), found)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        }
        .boxed()
    }
}

/// Returns true if the address belongs to this machine or a network around it: loopback, link-local (where
/// clouds serve credentials), private, shared, multicast or reserved, also if embedded in an IPv6 address.
fn is_inner(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, third, _] = address.octets();
            address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || matches!(first, 0 | 224..)
                || (first == 100 && (64..128).contains(&second))
                || (first, second, third) == (192, 0, 0)
        }
        IpAddr::V6(address) => {
            let [first, second, .., seventh, eighth] = address.segments();
            let [_, _, third, ..] = address.segments();
            address.is_loopback()
                || address == Ipv6Addr::UNSPECIFIED
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.is_multicast()
                || (first, second) == (0x64, 0xff9b) && is_inner_embedded(seventh, eighth)
                || first == 0x2002 && is_inner_embedded(second, third)
                || first == 0 && is_inner_embedded(seventh, eighth)
        }
    }
}

/// Returns true if the IPv4 address in two segments of an IPv6 address is inner.
fn is_inner_embedded(high: u16, low: u16) -> bool {
    let bits = u32::from(high) << 16 | u32::from(low);
    is_inner(IpAddr::V4(bits.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::tests::with;

    #[test]
    fn inner_addresses_are_refused_whenever_a_name_resolves_to_one() {
        let inner = [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "::10.0.0.1",
        ];
        let outer = [
            "192.0.2.1",
            "8.8.8.8",
            "100.63.0.1",
            "2001:db8::1",
            "2606:4700::1111",
            "64:ff9b::808:808",
        ];
        let parse = |text: &&str| -> SocketAddr { (text.parse::<IpAddr>().unwrap(), 0).into() };
        let names = WebConnector::new(
            false,
            &[(INNER.to_owned(), "Photos.internal, b".to_owned())].into(),
        )
        .names;
        for text in inner {
            let address = vec![parse(&text)];
            let error = names
                .allowed("web.example", address.clone())
                .unwrap_err()
                .to_string();
            assert!(error.contains("web.example") && error.contains(INNER), "{error}");
            for granted in ["localhost", "photos.internal"] {
                assert_eq!(
                    names.allowed(granted, address.clone()).unwrap(),
                    address,
                    "{text}"
                );
            }
        }
        let all = inner.iter().chain(&outer).map(parse).collect();
        let allowed = names.allowed("web.example", all).unwrap();
        assert_eq!(allowed, outer.iter().map(parse).collect::<Vec<_>>());
    }

    #[test]
    fn a_folder_of_a_server_is_a_prefix() {
        let opened = with("https://web.example/photos/a%20b/", &[]).unwrap();
        assert_eq!(opened.prefix.as_ref(), "photos/a b");
        assert!(with("http://web.example/photos", &[]).is_err());
        with("http://web.example/photos", &[("FROSTLINE_ALLOW_HTTP", "true")]).unwrap();
        with("http://127.0.0.1:8080/photos", &[]).unwrap();
    }
}
