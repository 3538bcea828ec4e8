//! Tenants on one host: administration and isolation.

use crate::admin_host::AdminHost;
use crate::harness::{events, frostline};
use frostline_e2e::finish;
use std::fs;
use std::path::Path;

#[test]
fn tenants_train_side_by_side_and_see_nothing_of_each_other() {
    let place = AdminHost::new();
    let (acme, other) = (place.add("acme"), place.add("other"));
    let url = place.host.url();
    let flags = [
        "--host",
        &url,
        "--token-file",
        acme.to_str().unwrap(),
        "--split",
        "features",
    ];
    assert!(!events(&place.scratch.train(&flags)).is_empty());
    let seen = place.guests(&acme).objects().unwrap();
    let guest = seen[0]["name"].as_str().unwrap();
    assert_eq!(place.guests(&other).stdout, "");
    let shown = place.tenant(&other, &["guest", "show", guest]);
    assert_eq!(shown.code, Some(1));
    assert!(shown.stderr.contains("unknown guest"), "{}", shown.stderr);
    let removed = place.tenant(&other, &["guest", "remove", guest]);
    assert_eq!(removed.code, Some(1));
    assert_eq!(place.tenant(&acme, &["guest", "show", guest]).code, Some(0));
}

#[test]
fn a_tenant_reads_what_it_was_granted_and_nothing_else() {
    let place = AdminHost::new();
    let acme = place.add("acme");
    let elsewhere = place.scratch.path("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let url = place.host.url();
    let data = elsewhere.to_str().unwrap();
    let flags = [
        "--host",
        &url,
        "--token-file",
        acme.to_str().unwrap(),
        "--data",
        data,
    ];
    let run = place.scratch.train(&flags);
    place.scratch.assert_failed(&run, &["elsewhere", "not granted"]);
    place.answer(&["tenant", "set", "acme", "--data", data]);
    let photos = place.scratch.path("photos");
    let flags = [
        "--host",
        &url,
        "--token-file",
        acme.to_str().unwrap(),
        "--data",
        photos.to_str().unwrap(),
    ];
    place
        .scratch
        .assert_failed(&place.scratch.train(&flags), &["photos", "not granted"]);
}

#[test]
fn tokens_are_rotated_revoked_and_disabled() {
    let place = AdminHost::new();
    let old = place.add("acme");
    assert_eq!(place.guests(&old).code, Some(0));
    let given = place.answer(&["tenant", "rotate", "acme", "--others", "1h"]);
    let new = place.write_token("new", &given);
    for token in [&old, &new] {
        assert_eq!(place.guests(token).code, Some(0));
    }
    let shown = place.answer(&["tenant", "show", "acme"]);
    let id = shown["tokens"][0]["id"].as_str().unwrap();
    place.admin(&["tenant", "revoke", "acme", id]);
    let refused = |token: &Path, word: &str| {
        let run = place.guests(token);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains(word), "{}", run.stderr);
        let secret = fs::read_to_string(token).unwrap();
        assert!(!run.stderr.contains(&secret));
    };
    refused(&old, "token");
    place.answer(&["tenant", "disable", "acme"]);
    refused(&new, "disabled");
    place.answer(&["tenant", "enable", "acme"]);
    assert_eq!(place.guests(&new).code, Some(0));
    place.answer(&["tenant", "rotate", "acme", "--others", "0s"]);
    refused(&new, "expired");
    assert_eq!(
        place.admin(&["tenant", "remove", "acme"]).code,
        Some(1),
        "not confirmed"
    );
    place.answer(&["tenant", "remove", "acme", "--yes", "--erase"]);
    let listed = place.answers(&["tenant", "list"]);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["name"], "default");
}

#[test]
fn a_removed_tenant_can_be_restored_until_it_is_erased() {
    let place = AdminHost::new();
    let token = place.scratch.path("first-token");
    fs::rename(place.add("acme"), &token).unwrap();
    let url = place.host.url();
    let flags = ["--host", &url, "--split", "features", "--token-file"];
    let flags = [&flags[..], &[token.to_str().unwrap()]].concat();
    assert!(!events(&place.scratch.train(&flags)).is_empty());
    let guests = place.guests(&token).stdout;
    let removed = place.answer(&["tenant", "remove", "acme", "--yes"]);
    assert!(removed["kept_until"].is_u64(), "{removed}");
    assert!(place.guests(&token).stderr.contains("token"));
    for refused in [
        &["tenant", "add", "acme"][..],
        &["tenant", "enable", "acme"],
        &["tenant", "rotate", "acme"],
        &["quota", "set", "acme", "running=1"],
        &["tenant", "remove", "acme", "--yes"],
    ] {
        let run = place.admin(refused);
        assert!(
            run.stderr.contains("tenant restore acme"),
            "{refused:?}: {}",
            run.stderr
        );
    }
    let restored = place.answer(&["tenant", "restore", "acme"]);
    assert!(restored["kept_until"].is_null(), "{restored}");
    assert_eq!(place.guests(&token).stdout, guests);
    place.answer(&["tenant", "remove", "acme", "--yes"]);
    place.answer(&["tenant", "remove", "acme", "--yes", "--erase"]);
    assert!(
        place
            .admin(&["tenant", "restore", "acme"])
            .stderr
            .contains("unknown tenant")
    );
    let new = place.add("acme");
    assert_eq!(place.guests(&new).stdout, "", "a new tenant finds nothing");
    assert!(place.guests(&token).stderr.contains("token"));
}

#[test]
fn invalid_admin_commands_are_explained() {
    let place = AdminHost::new();
    place.add("acme");
    for (arguments, word) in [
        (&["tenant", "add", "acme"][..], "already"),
        (&["tenant", "add", "Acme"], "invalid name"),
        (&["tenant", "add", "default"], "another name"),
        (&["tenant", "show", "nobody"], "unknown tenant"),
        (&["tenant", "revoke", "acme", "00000000"], "unknown token"),
        (&["tenant", "remove", "nobody", "--yes"], "unknown tenant"),
    ] {
        let run = place.admin(arguments);
        assert_eq!(run.code, Some(1), "{arguments:?}");
        assert!(run.stderr.contains(word), "{arguments:?}: {}", run.stderr);
    }
    let query = place.admin(&["tenant", "add", "b", "--data", "s3://bucket?x=1"]);
    assert_eq!(query.code, Some(2), "{}", query.stderr);
    let nobody =
        finish(frostline().args(["admin", "--socket", "/nowhere/admin.sock", "tenant", "list"])).unwrap();
    assert!(nobody.stderr.contains("/nowhere/admin.sock"), "{}", nobody.stderr);
}

#[test]
fn only_the_owner_may_use_the_socket() {
    use std::os::unix::fs::PermissionsExt;
    let place = AdminHost::new();
    let socket = place.scratch.path("state/admin.sock");
    assert_eq!(fs::metadata(socket).unwrap().permissions().mode() & 0o777, 0o600);
}
