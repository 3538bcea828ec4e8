//! Parsers of bytes from clients that the host does not know yet, for the fuzz target `request_head`.

use super::proxy::client;
use super::references::Reference;
use crate::tenants::PresentedToken;
use http::Uri;
use std::net::IpAddr;
use std::time::Duration;

/// Timeout for reading a PROXY protocol header from memory, which never waits.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Result of parsing the same bytes as every part of a request head. Parts that are not valid are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// Client address in a PROXY protocol header.
    pub client: Option<IpAddr>,
    /// Tenant and id of a token.
    pub token: Option<(String, String)>,
    /// Name and SHA-256 of a guest or model in a path with a query.
    pub reference: Option<(String, Option<String>)>,
}

impl RequestHead {
    /// Parses bytes of any length.
    pub async fn parse(mut bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let token = PresentedToken::parse(text);
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let uri: Option<Uri> = format!("/?{query}").parse().ok();
        let reference = uri.and_then(|uri| {
            let reference = Reference::parse(path, &uri).ok()?;
            Some((reference.name.to_owned(), reference.sha256))
        });
        Self {
            token: token.map(|token| (token.tenant.to_owned(), token.id.to_owned())),
            reference,
            client: client(&mut bytes, TIMEOUT).await.ok().flatten(),
        }
    }
}
