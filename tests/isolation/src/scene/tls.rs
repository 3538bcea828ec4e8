//! Host with TLS.

use super::text;
use super::world::{Host, World};
use crate::tap::Target;
use anyhow::Result;
use rcgen::{CertificateParams, KeyPair};
use std::fs;
use std::net::{Ipv6Addr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Starts the second host of a world with a new certificate. It uses IPv6 if available.
pub(super) fn host(world: &World, command: Command, arguments: &[&str]) -> Result<Host> {
    let key = KeyPair::generate()?;
    let certificate =
        CertificateParams::new(["127.0.0.1".to_owned(), "::1".to_owned()])?.self_signed(&key)?;
    let [certificate_file, key_file] = ["cert.pem", "key.pem"].map(|name| world.folder.path().join(name));
    fs::write(&certificate_file, certificate.pem())?;
    fs::write(&key_file, key.serialize_pem())?;
    let listen = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => "[::1]:0",
        Err(_) => "127.0.0.1:0",
    };
    let tls = [
        "--listen",
        listen,
        "--tls-certificate",
        text(&certificate_file)?,
        "--tls-key",
        text(&key_file)?,
    ];
    let host = world.host(command, "second", &[&tls, arguments].concat())?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone())?;
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Host {
        target: Target {
            tls: Some(TlsConnector::from(Arc::new(config))),
            ..host.target
        },
        ..host
    })
}
