//! Failures of the store behind a data root, as seen by tenants, the operator and other clients.

use crate::bucket::{Behavior, Bucket};
use crate::client::{End, STUCK, body, rows};
use crate::fixtures::{photo, sample};
use crate::log::Log;
use crate::metrics::{metrics, operator};
use crate::support::{TestHost, rerun_in_own_process};
use frostline_server::{HostSettings, StoreSettings};
use frostline_tensor::OpError;
use frostline_wire::RowFormat;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

pub(crate) const ROOT: &str = "s3://photos/set";

/// Configures the host to read the bucket with credentials in a file.
pub(crate) fn with_bucket(bucket: &Bucket, folder: &Path) -> impl FnOnce(&mut HostSettings) + use<> {
    let keys = folder.join("keys");
    std::fs::write(
        &keys,
        "[default]\naws_access_key_id = KANARIENVOGELID\naws_secret_access_key = KANARIENVOGELGEHEIM\n\
         aws_session_token = KANARIENVOGELTOKEN\n",
    )
    .unwrap();
    let endpoint = bucket.endpoint();
    move |settings| {
        settings.data = vec![ROOT.to_owned()];
        settings.metrics_listen = Some("127.0.0.1:0".to_owned());
        let store = StoreSettings {
            endpoint: Some(endpoint),
            keys: Some(keys),
            ..StoreSettings::default()
        };
        settings.store.insert("photos".to_owned(), store);
    }
}

async fn ready(client: &crate::client::Client) -> String {
    let answer = client.send(Method::GET, "/readyz", "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    String::from_utf8(body(answer).await.to_vec()).unwrap()
}

/// Waits until the operator's metrics contain the line.
pub(crate) async fn shown(test: &TestHost, line: &str) -> String {
    let operator = operator(test);
    let shown = async {
        loop {
            let text = metrics(&operator).await;
            if text.lines().any(|shown| shown.starts_with(line)) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(STUCK, shown)
        .await
        .unwrap_or_else(|_| panic!("{line} is never shown"))
}

/// Extracts a single sample and returns the error.
async fn sample_error(test: &TestHost) -> OpError {
    let mut request = test.request("none", 0);
    (request.root, request.samples) = (ROOT.to_owned(), vec![sample(0, "0.png")]);
    let answer = test.client.extract(&request).await;
    let (mut rows, end) = rows(RowFormat::Object, &request, answer).await;
    assert_eq!(end, End::Clean);
    rows.remove(&0).unwrap().unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn store_failures_are_host_errors() {
    let bucket = Bucket::start(photo(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::with(with_bucket(&bucket, folder.path())).await;
    for mood in [Behavior::Denied, Behavior::Gone, Behavior::Busy] {
        bucket.set_behavior(mood);
        let error = sample_error(&test).await;
        assert!(error.host_caused, "{mood:?}: {error}");
        assert!(
            !error.message.contains("AWS_") && !error.message.contains("[store"),
            "{error}"
        );
    }
    bucket.set_behavior(Behavior::Private);
    let error = sample_error(&test).await;
    assert!(!error.host_caused, "other objects may be readable: {error}");
    bucket.set_behavior(Behavior::Denied);
    let (status, refused) = test
        .client
        .refused(Method::GET, &format!("/v1/objects?root={ROOT}"), "")
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        refused.message.contains("AccessDenied") && !refused.message.contains("[store"),
        "{}",
        refused.message
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_does_not_answer_is_granted_only_unchecked() {
    let bucket = Bucket::start(photo(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let test = TestHost::with(with_bucket(&bucket, folder.path())).await;
    let add = |name: &str, root: &str, unchecked: bool| json!({"name": name, "data": [root], "unchecked": unchecked});
    let missing = folder.path().join("missing");
    bucket.set_behavior(Behavior::Gone);
    for (root, says) in [
        ("s4://x", "not supported"),
        ("/etc", "system folders"),
        (ROOT, "set unchecked"),
        (missing.to_str().unwrap(), "set unchecked"),
    ] {
        let (status, refused) = test
            .ask_admin(Method::POST, "/v1/tenants", &add("acme", root, false))
            .await;
        let refused = String::from_utf8_lossy(&refused).into_owned();
        assert!(
            status == StatusCode::BAD_REQUEST && refused.contains(says),
            "{root}: {refused}"
        );
    }
    for root in ["s4://x", "/etc"] {
        let (status, _) = test
            .ask_admin(Method::POST, "/v1/tenants", &add("acme", root, true))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{root}");
    }
    test.admin(Method::POST, "/v1/tenants", &add("acme", ROOT, true))
        .await;
    let (status, _) = test
        .ask_admin(Method::PATCH, "/v1/tenants/acme", &json!({"data": [ROOT]}))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    bucket.set_behavior(Behavior::Fine);
    test.admin(Method::PATCH, "/v1/tenants/acme", &json!({"data": [ROOT]}))
        .await;
}

/// Appends the contents of all files below a folder.
fn collect_files(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, all);
        } else if let Ok(bytes) = std::fs::read(&path) {
            all.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_is_reached_with_is_written_nowhere() {
    if rerun_in_own_process("roots::what_a_store_is_reached_with_is_written_nowhere") {
        return;
    }
    let log = Log::start(tracing::Level::TRACE);
    let bucket = Bucket::start(photo(0)).await;
    let keys = tempfile::tempdir().unwrap();
    let test = TestHost::with(with_bucket(&bucket, keys.path())).await;
    let mut all = String::new();
    for mood in [
        Behavior::Fine,
        Behavior::Denied,
        Behavior::Gone,
        Behavior::Busy,
        Behavior::Private,
    ] {
        bucket.set_behavior(mood);
        let listing = test
            .client
            .send(Method::GET, &format!("/v1/objects?root={ROOT}"), "")
            .await;
        all.push_str(&String::from_utf8_lossy(&body(listing).await));
        let added = json!({"name": format!("{mood:?}").to_lowercase(), "data": [ROOT]});
        let (_, added) = test.ask_admin(Method::POST, "/v1/tenants", &added).await;
        all.push_str(&String::from_utf8_lossy(&added));
        if mood != Behavior::Fine {
            all.push_str(&sample_error(&test).await.message);
        }
        if mood == Behavior::Denied {
            all.push_str(&shown(&test, "frostline_root_up{root=\"s3://photos/set\"} 0").await);
            all.push_str(&ready(&operator(&test)).await);
        }
    }
    all.push_str(
        &test
            .admin(Method::GET, "/v1/activity", &Value::Null)
            .await
            .to_string(),
    );
    collect_files(test.folder.path(), &mut all);
    drop(test);
    let logged = log.text();
    assert!(
        logged.contains("data root store failed") && logged.contains(ROOT),
        "{logged}"
    );
    all.push_str(&logged);
    for secret in ["KANARIENVOGELGEHEIM", "KANARIENVOGELTOKEN", "KANARIENVOGELID"] {
        let at = all.find(secret);
        let around = at.map(|at| all.get(at.saturating_sub(300)..at + 40));
        assert_eq!(around, None, "{secret}");
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failing_root_is_named_on_the_operators_port() {
        let bucket = Bucket::start(photo(0)).await;
        let folder = tempfile::tempdir().unwrap();
        let test = TestHost::with(with_bucket(&bucket, folder.path())).await;
        shown(&test, "frostline_root_up{root=\"s3://photos/set\"} 1").await;
        assert_eq!(ready(&operator(&test)).await, "ready\n");
        for (mood, fault) in [
            (Behavior::Denied, "denied"),
            (Behavior::Busy, "busy"),
            (Behavior::Gone, "no_bucket"),
        ] {
            bucket.set_behavior(mood);
            shown(
                &test,
                &format!("frostline_root_errors_total{{root=\"{ROOT}\",fault=\"{fault}\"}}"),
            )
            .await;
            shown(&test, "frostline_root_up{root=\"s3://photos/set\"} 0").await;
        }
        let says = ready(&operator(&test)).await;
        assert!(says.contains(ROOT) && says.contains("no_bucket"), "{says}");
        let activity = test.admin(Method::GET, "/v1/activity", &Value::Null).await;
        assert_eq!(activity["failing_roots"][0]["root"], ROOT);
        // Clients without a token receive the number of failing roots, but no details.
        assert_eq!(ready(&test.client).await, "ready\ndata roots failing: 1\n");
        let text = metrics(&test.client).await;
        assert!(
            text.contains("frostline_store_errors_total{fault=\"denied\"}") && !text.contains("photos"),
            "{text}"
        );
        bucket.set_behavior(Behavior::Fine);
        shown(&test, "frostline_root_up{root=\"s3://photos/set\"} 1").await;
        assert_eq!(ready(&operator(&test)).await, "ready\n");
    }
}
