//! Hosts with TLS, and remote administration.

use crate::harness::{STUCK, Scratch, events, frostline};
use crate::hints::follow;
use frostline_e2e::{Finished, HostProcess, finish};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Creates a certificate authority in the test's folder, and a certificate for 127.0.0.1 signed by it.
fn certify(scratch: &Scratch, authority: &str) {
    certify_as(scratch, authority, ["cert.pem", "key.pem"]);
}

/// Like [`certify`], with the files of the certificate and its key.
fn certify_as(scratch: &Scratch, authority: &str, [file, key_file]: [&str; 2]) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    fs::write(scratch.path(authority), certificate.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(scratch.path(key_file), key.serialize_pem()).unwrap();
    fs::write(scratch.path(file), certificate.pem()).unwrap();
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
    let doctor = |more: &[&str]| {
        let mut command = frostline();
        command.args(["doctor", "--json", "--host", &url, "--token-file", token]);
        finish(command.args(more)).unwrap()
    };
    let checked = doctor(&[]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.stdout.contains("try again with --ca FILE"), "{checked:?}");
    assert_eq!(doctor(&["--ca", ca.to_str().unwrap()]).code, Some(0));
}

/// Host with remote admins from `admins`, the content of `[admins]` in its configuration.
struct AdminHost {
    scratch: Scratch,
    host: HostProcess,
}

impl AdminHost {
    fn start(admins: &str, arguments: &[&str]) -> Self {
        let scratch = Scratch::with_photos(1, 1);
        let config = scratch.path("host.toml");
        fs::write(&config, admins).unwrap();
        let config = ["--config", config.to_str().unwrap()];
        let listen = ["--admin-listen", "127.0.0.1:0"];
        let host = host(&scratch, &[&config, &listen, arguments].concat());
        Self { scratch, host }
    }

    /// Returns the token file of an admin.
    fn token(&self, name: &str) -> PathBuf {
        let local = self.host.token_file().with_file_name("state");
        match name {
            "admin" => local.join("admin-token"),
            name => local.join("admins").join(name),
        }
    }

    /// Runs `frostline admin` with the token of `name`.
    fn admin(&self, name: &str, arguments: &[&str]) -> Finished {
        self.admin_at(self.host.admin_url().unwrap(), &self.token(name), arguments)
    }

    fn admin_at(&self, url: &str, token: &Path, arguments: &[&str]) -> Finished {
        finish(&mut self.command(url, token, arguments)).unwrap()
    }

    fn command(&self, url: &str, token: &Path, arguments: &[&str]) -> Command {
        let mut command = frostline();
        command.args(["admin", "--json", "--host", url, "--token-file"]);
        command.arg(token).arg("--ca").arg(self.scratch.path("ca.pem"));
        command.args(arguments);
        command
    }
}

#[test]
fn remote_admins_use_tokens_over_tls() {
    let host = AdminHost::start("", &[]);
    let added = host.admin("admin", &["tenant", "add", "acme"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let listed = host.admin("admin", &["tenant", "list"]);
    assert!(listed.stdout.contains("acme"), "{listed:?}");
    let audit = host.admin("admin", &["audit"]);
    assert!(audit.stdout.contains("admin admin at 127.0.0.1"), "{audit:?}");
    let url = host.host.admin_url().unwrap();
    let admin_token = host.token("admin");
    for (url, token, word) in [
        (url, host.host.token_file(), "the token of an admin"),
        (
            &host.host.url(),
            admin_token.as_path(),
            "unknown path /v1/tenants",
        ),
        (
            &url.replace("https", "http"),
            admin_token.as_path(),
            "only sent over TLS",
        ),
    ] {
        let refused = host.admin_at(url, token, &["tenant", "list"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
        let secret = fs::read_to_string(token).unwrap();
        assert!(!refused.stderr.contains(secret.trim()));
    }
}

#[test]
fn admins_have_names_roles_and_dates() {
    let host = AdminHost::start(
        "[admins.alice]\nrole = \"tenants\"\n[admins.dashboard]\nrole = \"read\"\n\
         [admins.bob]\nrole = \"all\"\nexpires = \"2026-01-01\"",
        &[],
    );
    let changes_of_tenants = [
        &["tenant", "add", "other"][..],
        &["tenant", "disable", "other"],
        &["quota", "set", "other", "running=1"],
        &["tenant", "remove", "other", "--yes"],
    ];
    for name in ["alice", "dashboard"] {
        for look in [
            &["tenant", "list"][..],
            &["usage"],
            &["audit"],
            &["top", "--once"],
        ] {
            let seen = host.admin(name, look);
            assert_eq!(seen.code, Some(0), "{look:?}: {seen:?}");
        }
        let refused = host.admin(name, &["drain", "--yes"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("requires all"), "{refused:?}");
    }
    for change in changes_of_tenants {
        let refused = host.admin("dashboard", change);
        assert_eq!(refused.code, Some(1), "{change:?}: {refused:?}");
        let words = "the admin dashboard has the role read, and this request requires tenants";
        assert!(refused.stderr.contains(words), "{refused:?}");
        let changed = host.admin("alice", change);
        assert_eq!(changed.code, Some(0), "{change:?}: {changed:?}");
    }
    let audit = host.admin("admin", &["audit", "--tenant", "other"]);
    assert_eq!(
        audit.stdout.matches("admin alice at 127.0.0.1").count(),
        4,
        "{audit:?}"
    );
    let refused = host.admin("bob", &["tenant", "list"]);
    assert!(
        refused.stderr.contains("the token of the admin bob expired"),
        "{refused:?}"
    );
}

#[test]
fn an_admin_is_removed_by_a_reload() {
    let host = AdminHost::start("[admins.alice]\nrole = \"read\"", &[]);
    assert_eq!(host.admin("alice", &["tenant", "list"]).code, Some(0));
    let config = host.scratch.path("host.toml");
    fs::write(&config, "[admins.carol]\nrole = \"read\"").unwrap();
    let id = host.host.id().to_string();
    finish(Command::new("kill").args(["-HUP", &id])).unwrap();
    let until = Instant::now() + STUCK;
    while host.admin("alice", &["tenant", "list"]).code == Some(0) {
        assert!(Instant::now() < until, "the reload takes too long");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(host.admin("carol", &["tenant", "list"]).code, Some(0));
}

#[test]
fn the_admin_port_can_require_certificates_of_clients() {
    let (scratch, other) = (Scratch::with_photos(1, 1), Scratch::with_photos(1, 1));
    certify_as(&scratch, "clients.pem", ["alice.pem", "alice.key"]);
    certify_as(&other, "clients.pem", ["alice.pem", "alice.key"]);
    let authority = scratch.path("clients.pem");
    let host = AdminHost::start("", &["--admin-client-ca", authority.to_str().unwrap()]);
    let list = |client: Option<&Scratch>| {
        let certificate = client.map(|client| [client.path("alice.pem"), client.path("alice.key")]);
        let flags = certificate.as_ref().map_or(vec![], |[certificate, key]| {
            let [certificate, key] = [certificate, key].map(|path| path.to_str().unwrap());
            vec!["--client-certificate", certificate, "--client-key", key]
        });
        host.admin("admin", &[&flags[..], &["tenant", "list"]].concat())
    };
    assert_eq!(list(Some(&scratch)).code, Some(0));
    let [certificate, key] = ["alice.pem", "alice.key"].map(|name| scratch.path(name));
    let values = [
        ("client_certificate", certificate.to_str().unwrap()),
        ("client_key", key.to_str().unwrap()),
    ];
    let (url, token) = (host.host.admin_url().unwrap(), host.token("admin"));
    let next = follow(&host.command(url, &token, &["tenant", "list"]), &values);
    let refused = list(Some(&other));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(refused.failure().unwrap()["next"], Value::from(next));
    assert_eq!(
        guests(
            &host.host,
            &["--ca", host.scratch.path("ca.pem").to_str().unwrap()]
        )
        .code,
        Some(0)
    );
}

mod needs_curl {
    use super::*;

    #[test]
    fn a_proxy_names_the_user_and_nobody_else_can() {
        let host = AdminHost::start(
            "[admins.sso]\nrole = \"tenants\"\nuser_header = \"X-Auth-Request-Email\"\n[admins.alice]\nrole = \"tenants\"",
            &[],
        );
        let url = format!("{}/v1/tenants", host.host.admin_url().unwrap());
        let add = |admin: &str, tenant: &str, users: &[&str]| {
            let token = fs::read_to_string(host.token(admin)).unwrap();
            let mut curl = Command::new("curl");
            // With HTTP/2, curl fails if a refusal precedes the end of the request.
            curl.args(["--silent", "--show-error", "--insecure", "--http1.1"]);
            curl.args(["--header", &format!("Authorization: Bearer {}", token.trim())]);
            for user in users {
                curl.args(["--header", &format!("X-Auth-Request-Email: {user}")]);
            }
            curl.args(["--header", "Content-Type: application/json", "--data"]);
            curl.arg(format!("{{\"name\": \"{tenant}\", \"data\": []}}"))
                .arg(&url);
            let Finished { stdout, stderr, .. } = finish(&mut curl).unwrap();
            stdout + &stderr
        };
        let added = add("sso", "by-proxy", &["eve@example.org"]);
        assert!(added.contains("frost_by-proxy_"), "{added}");
        for users in [&[][..], &[""], &["eve@example.org", "root@example.org"]] {
            let refused = add("sso", "unnamed", users);
            assert!(
                refused.contains("must name the user once"),
                "{users:?}: {refused}"
            );
        }
        let forged = add("alice", "by-alice", &["eve@example.org"]);
        assert!(forged.contains("frost_by-alice_"), "{forged}");
        let audit = |tenant| host.admin("admin", &["audit", "--tenant", tenant]).stdout;
        let entry = audit("by-proxy");
        assert!(entry.contains("admin eve@example.org through sso at"), "{entry}");
        let entry = audit("by-alice");
        assert!(
            entry.contains("admin alice at") && !entry.contains("eve"),
            "{entry}"
        );
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
        let until = Instant::now() + STUCK;
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
