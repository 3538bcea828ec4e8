//! Hosts with TLS, and remote administration.

use crate::harness::{Scratch, events, frostline};
use frostline_e2e::{Finished, HostProcess, finish};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::fs;
use std::time::{Duration, Instant};

/// Timeout for loading a new certificate. Hosts check every few seconds.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates a certificate authority in the test's folder, and a certificate for 127.0.0.1 signed by it.
fn certify(scratch: &Scratch, authority: &str) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    fs::write(scratch.path(authority), certificate.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(scratch.path("key.pem"), key.serialize_pem()).unwrap();
    fs::write(scratch.path("cert.pem"), certificate.pem()).unwrap();
}

fn host(scratch: &Scratch, arguments: &[&str]) -> HostProcess {
    certify(scratch, "ca.pem");
    let (certificate, key) = (scratch.path("cert.pem"), scratch.path("key.pem"));
    let tls = [
        "--tls-certificate",
        certificate.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ];
    scratch.host(&[&tls, arguments].concat())
}

fn guests(host: &HostProcess, more: &[&str]) -> Finished {
    let mut command = frostline();
    command.args(["guest", "list", "--json", "--host", &host.url(), "--token-file"]);
    finish(command.arg(host.token_file()).args(more)).unwrap()
}

#[test]
fn a_job_runs_over_tls_with_trusted_hosts() {
    let scratch = Scratch::with_photos(4, 2);
    let host = host(&scratch, &[]);
    let (url, token) = (host.url(), host.token_file().to_str().unwrap());
    assert!(url.starts_with("https://"), "{url}");
    let ca = scratch.path("ca.pem");
    let flags = ["--host", &url, "--token-file", token, "--split", "features"];
    let run = scratch.train(&flags);
    scratch.assert_failed(&run, &["cannot reach the host", "certificate", "UnknownIssuer"]);
    let plain = url.replace("https://", "http://");
    let run = scratch.train(&["--host", &plain, "--token-file", token, "--split", "features"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let trusting = [&flags[..], &["--ca", ca.to_str().unwrap()]].concat();
    assert!(!events(&scratch.train(&trusting)).is_empty());
}

#[test]
fn remote_admins_use_tokens_over_tls() {
    let scratch = Scratch::with_photos(1, 1);
    let token = scratch.path("admin-token");
    let listen = ["--admin-listen", "127.0.0.1:0", "--admin-token-file"];
    let reader = scratch.path("reader");
    let reader_token = reader.to_str().unwrap();
    let tokens = [token.to_str().unwrap(), "--admin-read-token-file", reader_token];
    let host = host(&scratch, &[&listen[..], &tokens].concat());
    let url = host.admin_url().unwrap();
    let ca = scratch.path("ca.pem");
    let admin = |url: &str, token: &str, arguments: &[&str]| {
        let mut command = frostline();
        command.args(["admin", "--json", "--host", url, "--token-file", token, "--ca"]);
        finish(command.arg(&ca).args(arguments)).unwrap()
    };
    let admin_token = token.to_str().unwrap();
    let added = admin(url, admin_token, &["tenant", "add", "acme"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let listed = admin(url, admin_token, &["tenant", "list"]);
    assert!(listed.stdout.contains("acme"), "{listed:?}");
    for look in [
        &["tenant", "list"][..],
        &["usage"],
        &["audit"],
        &["quota", "show", "acme"],
    ] {
        let seen = admin(url, reader_token, look);
        assert_eq!(seen.code, Some(0), "{look:?}: {seen:?}");
    }
    for change in [
        &["tenant", "add", "other"][..],
        &["tenant", "disable", "acme"],
        &["tenant", "remove", "acme", "--yes"],
        &["quota", "set", "acme", "running=1"],
        &["drain", "--yes"],
    ] {
        let refused = admin(url, reader_token, change);
        assert_eq!(refused.code, Some(1), "{change:?}: {refused:?}");
        assert!(refused.stderr.contains("read-only"), "{refused:?}");
    }
    let audit = admin(url, admin_token, &["audit"]);
    assert!(audit.stdout.contains("admin at 127.0.0.1"), "{audit:?}");
    for (url, token, word) in [
        (url, host.token_file().to_str().unwrap(), "the admin's token"),
        (&host.url(), admin_token, "unknown path /v1/tenants"),
        (&url.replace("https", "http"), admin_token, "only sent over TLS"),
    ] {
        let refused = admin(url, token, &["tenant", "list"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
        let secret = fs::read_to_string(token).unwrap();
        assert!(!refused.stderr.contains(secret.trim()));
    }
}

mod long {
    use super::*;

    #[test]
    fn a_new_certificate_is_used_without_a_restart() {
        let scratch = Scratch::with_photos(1, 1);
        let host = host(&scratch, &[]);
        let (old, new) = (scratch.path("ca.pem"), scratch.path("new.pem"));
        let old = ["--ca", old.to_str().unwrap()];
        let new = ["--ca", new.to_str().unwrap()];
        assert_eq!(guests(&host, &old).code, Some(0));
        certify(&scratch, "new.pem");
        let until = Instant::now() + RELOAD_TIMEOUT;
        while guests(&host, &new).code != Some(0) {
            assert!(Instant::now() < until, "{:?}", guests(&host, &new));
            std::thread::sleep(Duration::from_millis(500));
        }
        assert_eq!(guests(&host, &old).code, Some(1));
        fs::write(scratch.path("key.pem"), "no key").unwrap();
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(
            guests(&host, &new).code,
            Some(0),
            "the host must ignore a broken file"
        );
    }
}
