//! Fuzz target for what clients send before a host knows them: PROXY protocol headers, tokens, and paths with
//! queries.

use frostline_server::RequestHead;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// Lengths of a token's id and secret in hexadecimal.
const ID: usize = 8;
const SECRET: usize = 64;

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// Parses the bytes as every part of a request head.
///
/// # Panics
/// Panics if a token has parts of a wrong length, if a name contains the separator of the version, or if the
/// runtime cannot be created.
pub fn request_head(data: &[u8]) {
    let runtime = RUNTIME.get_or_init(|| Builder::new_current_thread().enable_time().build().ok());
    assert!(runtime.is_some(), "cannot create a runtime");
    let Some(runtime) = runtime else { return };
    let head = runtime.block_on(RequestHead::parse(data));
    if let Some((tenant, id)) = head.token {
        assert_eq!(id.len(), ID);
        assert_eq!(data.len(), "frost_".len() + tenant.len() + 1 + ID + 1 + SECRET);
    }
    if let Some((name, _)) = head.reference {
        assert!(!name.contains('@'), "{name:?}");
    }
}

/// Returns headers of both versions of the PROXY protocol, tokens and references.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let version_2 = |command: u8, family: u8, body: &[u8]| {
        let length = (body.len() as u16).to_be_bytes();
        [signature, [command, family].as_slice(), &length, body].concat()
    };
    let token = format!("frost_acme_{}_{}", "0".repeat(ID), "a".repeat(SECRET));
    let texts = [
        "PROXY TCP4 192.0.2.7 10.0.0.2 1 2\r\n",
        "PROXY TCP6 2001::9 ::1 1 2\r\n",
        "PROXY UNKNOWN\r\n",
        "squeezenet:latest",
        "squeezenet@sha256:00ff?sha256=00ff",
        "a?sha256=%41%41&sha256=00",
        &token,
    ];
    let texts = texts.into_iter().map(|text| text.as_bytes().to_vec());
    texts
        .chain([
            version_2(0x21, 0x11, &[192, 0, 2, 7, 10, 0, 0, 2, 0, 1, 0, 2]),
            version_2(0x21, 0x21, &[9; 36]),
            version_2(0x20, 0, &[]),
        ])
        .collect()
}
