//! Changes to tenants by an admin, including the configured tenant.

use crate::support::TestHost;
use frostline_server::{StateLocation, Stores, back_up_state, restore_state};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const DEFAULT: &str = "/v1/tenants/default";

/// Starts another host with the state and the token of `told`, and with a separate local folder.
async fn second_host(told: &TestHost, local: &Path) -> TestHost {
    TestHost::with(|settings| {
        settings.state = told.folder.path().join("state").to_str().unwrap().to_owned();
        settings.local = Some(local.to_owned());
        settings.token_file = told.host.as_ref().map(|host| host.token_file().to_owned());
    })
    .await
}

async fn status(test: &TestHost) -> StatusCode {
    test.client.send(Method::GET, "/v1/guests", "").await.status()
}

/// Waits until the host answers requests of the configured tenant with `wanted`.
async fn answers(test: &TestHost, wanted: StatusCode) {
    let answers = async {
        while status(test).await != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::client::STUCK, answers).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configured_tenant_is_disabled_and_enabled_on_every_host() {
    let told = TestHost::start().await;
    let local = tempfile::tempdir().unwrap();
    let other = second_host(&told, local.path()).await;
    assert_eq!(status(&told).await, StatusCode::OK);
    let shown = told
        .admin(Method::PATCH, DEFAULT, &json!({"disabled": true}))
        .await;
    assert_eq!(
        (&shown["disabled"], &shown["data"][0]),
        (&json!(true), &json!(format!("file://{}", told.root())))
    );
    for host in [&told, &other] {
        answers(host, StatusCode::FORBIDDEN).await;
    }
    let listed = told.admin(Method::GET, "/v1/tenants", &Value::Null).await;
    assert_eq!(
        (&listed[0]["name"], &listed[0]["disabled"]),
        (&json!("default"), &json!(true))
    );
    told.admin(Method::PATCH, DEFAULT, &json!({"disabled": false}))
        .await;
    for host in [&told, &other] {
        answers(host, StatusCode::OK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_the_configured_token_applies_on_every_host() {
    let told = TestHost::start().await;
    let local = tempfile::tempdir().unwrap();
    let other = second_host(&told, local.path()).await;
    let shown = told.admin(Method::GET, DEFAULT, &Value::Null).await;
    let id = shown["tokens"][0]["id"].as_str().unwrap();
    told.admin(Method::DELETE, &format!("{DEFAULT}/tokens/{id}"), &Value::Null)
        .await;
    for host in [&told, &other] {
        answers(host, StatusCode::UNAUTHORIZED).await;
    }
    let shown = told.admin(Method::GET, DEFAULT, &Value::Null).await;
    assert_eq!(shown["tokens"], json!([]));
    let new = "a".repeat(64);
    std::fs::write(told.host.as_ref().unwrap().token_file(), &new).unwrap();
    let enters = async {
        let client = told.client_of(&new);
        while client.send(Method::GET, "/v1/guests", "").await.status() != StatusCode::OK {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::client::STUCK, enters).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configured_tenant_can_only_be_changed_in_the_configuration() {
    let test = TestHost::start().await;
    let data = json!({"data": ["/elsewhere"]});
    for (method, path, body) in [
        (Method::PATCH, DEFAULT, &data),
        (Method::POST, "/v1/tenants/default/tokens", &json!({})),
        (Method::DELETE, DEFAULT, &Value::Null),
        (
            Method::DELETE,
            "/v1/tenants/default/tokens/00000000",
            &Value::Null,
        ),
    ] {
        let (status, answer) = test.ask_admin(method, path, body).await;
        assert!(status.is_client_error(), "{path}: {answer:?}");
    }
    assert_eq!(status(&test).await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_inherits_the_lifetime_of_the_previous_one() {
    let test = TestHost::start().await;
    let lifetime = |given: &Value| {
        let newest = given["tenant"]["tokens"].as_array().unwrap().last().unwrap();
        let ends = newest["expires_at"].as_u64();
        ends.map(|ends| ends - newest["created_at"].as_u64().unwrap())
    };
    let add = async |new: Value| lifetime(&test.admin(Method::POST, "/v1/tenants", &new).await);
    assert_eq!(
        add(json!({"name": "bolt", "data": []})).await,
        Some(90 * 24 * 3600)
    );
    let never = json!({"name": "core", "data": [], "token_seconds": u64::MAX});
    assert_eq!(add(never).await, None);
    let new = json!({"name": "acme", "data": [], "token_seconds": 9000});
    assert_eq!(add(new).await, Some(9000));
    let rotate = async |asked: Value| {
        let path = "/v1/tenants/acme/tokens";
        lifetime(&test.admin(Method::POST, path, &asked).await)
    };
    assert_eq!(rotate(json!({"others_seconds": 60})).await, Some(9000));
    assert_eq!(rotate(json!({"token_seconds": 70})).await, Some(70));
    assert_eq!(rotate(json!({})).await, Some(70));
    assert_eq!(rotate(json!({"token_seconds": u64::MAX})).await, None);
    assert_eq!(rotate(json!({})).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_tenant_leaves_no_compiled_guest() {
    let test = TestHost::start().await;
    let (token, _) = test.add_tenant("acme").await;
    test.upload().await;
    test.client_of(&token).upload().await;
    let artifacts = test.folder.path().join("state/artifacts");
    let compiled = || {
        let files = std::fs::read_dir(&artifacts).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".cwasm")).count()
    };
    assert_eq!(compiled(), 2);
    test.admin(Method::DELETE, "/v1/tenants/acme?erase=true", &Value::Null)
        .await;
    assert_eq!(compiled(), 1, "other tenants are not affected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_never_valid_and_a_tenant_that_never_runs_are_refused() {
    let test = TestHost::start().await;
    let refused = async |method, path: &str, body| {
        let (status, bytes) = test.ask_admin(method, path, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let add = json!({"name": "acme", "data": [], "token_seconds": 0});
    let told = refused(Method::POST, "/v1/tenants", add).await;
    assert!(told.contains("never be valid"), "{told}");
    test.add_tenant("acme").await;
    let told = refused(
        Method::POST,
        "/v1/tenants/acme/tokens",
        json!({"token_seconds": 0}),
    )
    .await;
    assert!(told.contains("never be valid"), "{told}");
    let told = refused(Method::PATCH, "/v1/tenants/acme/quota", json!({"running": 0})).await;
    assert!(told.contains("1 or more") && told.contains("disable"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_is_recorded_in_the_audit() {
    let mut test = TestHost::start().await;
    let backup = StateLocation::Directory(test.folder.path().join("backup"));
    let state = StateLocation::Directory(test.folder.path().join("state"));
    let stores = Stores::default();
    back_up_state(&state, &backup, &stores).await.unwrap();
    test.host.take().unwrap().shutdown(Duration::ZERO).await;
    restore_state(&backup, &state, None, &stores).await.unwrap();
    let TestHost { folder, .. } = test;
    let test = TestHost::start_in(folder, |_| ()).await;
    let audit = test
        .admin(Method::GET, "/v1/audit", &serde_json::Value::Null)
        .await;
    let entries = audit.as_array().unwrap();
    let restored = entries
        .iter()
        .find(|entry| entry["what"] == "state restored")
        .unwrap();
    assert!(restored["who"].as_str().unwrap().starts_with("admin uid "));
    assert!(
        restored["detail"].as_str().unwrap().contains("/backup"),
        "{restored}"
    );
}
