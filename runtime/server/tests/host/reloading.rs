//! Reloading of the configuration, and the data roots that a host probes.

use crate::bucket::{Behavior, Bucket};
use crate::client::STUCK;
use crate::fixtures::photo;
use crate::metrics::{metrics, operator, value};
use crate::roots::{ROOT, shown, with_bucket};
use crate::support::TestHost;
use frostline_server::HostSettings;
use frostline_wire::QuotaKey;
use http::{Method, StatusCode};
use serde_json::{Value, json};

impl TestHost {
    async fn reload(&self, settings: Result<&HostSettings, &str>) {
        self.host.as_ref().unwrap().reload(settings.cloned()).await;
    }

    /// Returns the status of a listing of `root`.
    async fn listing(&self, root: &str) -> StatusCode {
        let path = format!("/v1/objects?root={root}");
        self.client.send(Method::GET, &path, "").await.status()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_replaces_data_stores_and_quotas_or_nothing() {
    let bucket = Bucket::start(photo(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let mut settings = HostSettings::default();
    let test = TestHost::with(|with| {
        with.metrics_listen = Some("127.0.0.1:0".to_owned());
        settings = with.clone();
    })
    .await;
    let old = test.root();
    let failed = async || value(&metrics(&operator(&test)).await, "frostline_config_reload_failed");
    let running = async || {
        let quota = test
            .admin(Method::GET, "/v1/tenants/default/quota", &Value::Null)
            .await;
        let mut all = quota.as_array().unwrap().iter();
        all.find(|info| info["key"] == "running").unwrap()["value"].clone()
    };
    let missing = folder.path().join("missing").to_str().unwrap().to_owned();
    let invalid = HostSettings {
        data: vec![missing, ROOT.to_owned()],
        ..settings.clone()
    };
    for refused in [Err("host.toml: unknown field"), Ok(&invalid)] {
        test.reload(refused).await;
        assert_eq!(failed().await, 1.0);
        assert_eq!(test.listing(&old).await, StatusCode::OK);
        assert_eq!(test.listing(ROOT).await, StatusCode::NOT_FOUND);
    }
    let mut changed = settings.clone();
    with_bucket(&bucket, folder.path())(&mut changed);
    changed.quota.insert(QuotaKey::Running, 3);
    test.reload(Ok(&changed)).await;
    assert_eq!(failed().await, 0.0);
    assert_eq!(test.listing(&old).await, StatusCode::NOT_FOUND);
    assert_eq!(test.listing(ROOT).await, StatusCode::OK);
    assert_eq!(running().await, 3);
    // An open store is not used with the settings from before.
    let other = Bucket::start(photo(1)).await;
    other.set_behavior(Behavior::Denied);
    with_bucket(&other, folder.path())(&mut changed);
    test.reload(Ok(&changed)).await;
    assert_eq!(test.listing(ROOT).await, StatusCode::BAD_REQUEST);
    test.reload(Ok(&settings)).await;
    assert_eq!(test.listing(&old).await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_prefix_is_only_granted_unchecked() {
    let bucket = Bucket::start(photo(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::with(with_bucket(&bucket, folder.path())).await;
    let add = |name: &str, root: &str, unchecked: bool| json!({"name": name, "data": [root], "unchecked": unchecked});
    let typo = "s3://photos/typo";
    let (status, told) = test
        .ask_admin(Method::POST, "/v1/tenants", &add("acme", typo, false))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(
        told.contains("found no objects") && told.contains("set unchecked"),
        "{told}"
    );
    test.admin(Method::POST, "/v1/tenants", &add("acme", typo, true))
        .await;
    test.admin(
        Method::POST,
        "/v1/tenants",
        &add("bolt", "s3://photos/set", false),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_roots_that_tenants_have_are_probed_and_shown() {
    let bucket = Bucket::start(photo(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::with(with_bucket(&bucket, folder.path())).await;
    bucket.set_behavior(Behavior::Gone);
    let add = |root: &str, unchecked: bool| json!({"name": "acme", "data": [root], "unchecked": unchecked});
    let refused = add("s3://photos/typo", false);
    let (status, _) = test.ask_admin(Method::POST, "/v1/tenants", &refused).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    test.admin(Method::POST, "/v1/tenants", &add("s3://photos/acme", true))
        .await;
    let text = shown(&test, "frostline_root_up{root=\"s3://photos/acme\"} 0").await;
    assert!(text.contains("frostline_root_errors_total{root=\"s3://photos/acme\""));
    assert!(!text.contains("typo"), "{text}");
    test.admin(Method::DELETE, "/v1/tenants/acme", &Value::Null).await;
    let removed = async { while metrics(&operator(&test)).await.contains("s3://photos/acme") {} };
    tokio::time::timeout(STUCK, removed).await.unwrap();
    shown(&test, "frostline_root_up{root=\"s3://photos/set\"} 0").await;
}
