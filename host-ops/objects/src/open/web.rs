//! `http(s)://host/folder`: a web server, to read from only.

use super::address::{prefix, refused};
use super::opened::{Listing, Opened};
use super::settings::{Variables, client, plain_http, retry};
use crate::ObjectError;
use crate::kind::{Credentials, Kind};
use crate::names::Connector;
use object_store::http::HttpBuilder;
use std::sync::Arc;
use url::Url;

/// What allows plain HTTP to another machine.
const PERMISSION: &str = "FROSTLINE_ALLOW_HTTP";

/// A web server's folder. Its keys are listed by WebDAV, where the server speaks it.
pub(super) fn open(root: &str, url: &Url, variables: &Variables) -> Result<Opened, ObjectError> {
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        let reason = "a web server is read without credentials; write https://host/folder, without user, password and query";
        return Err(refused(root, reason));
    }
    let plain = plain_http(root, "it", Some(url.as_str()), variables, PERMISSION)?;
    // Listings name objects by the whole path of their address, so the folder is a prefix like any other.
    let mut server = url.clone();
    server.set_path("/");
    server.set_fragment(None);
    let store = HttpBuilder::new()
        .with_http_connector(Connector)
        .with_url(server)
        .with_client_options(client().with_allow_http(plain))
        .with_retry(retry())
        .build()
        .map_err(|error| refused(root, error.to_string()))?;
    Ok(Opened {
        store: Arc::new(store),
        listing: Listing::Whole,
        prefix: prefix(root, url)?,
        kind: Kind::Web,
        credentials: Credentials::Given,
    })
}

#[cfg(test)]
mod tests {
    use crate::open::tests::with;

    #[test]
    fn a_folder_of_a_server_is_a_prefix() {
        let opened = with("https://web.example/photos/a%20b/", &[]).unwrap();
        assert_eq!(opened.prefix.as_ref(), "photos/a b");
        assert!(with("http://web.example/photos", &[]).is_err());
        with("http://web.example/photos", &[("FROSTLINE_ALLOW_HTTP", "true")]).unwrap();
        with("http://127.0.0.1:8080/photos", &[]).unwrap();
    }
}
