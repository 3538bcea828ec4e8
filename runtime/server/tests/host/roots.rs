//! Data roots in a store that fails: who is told what, and what becomes of requests.

use crate::bucket::{Bucket, Mood};
use crate::client::{End, STUCK, body, rows};
use crate::fixtures::{photo, sample};
use crate::log::Log;
use crate::metrics::{metrics, operator};
use crate::support::{TestHost, done_alone};
use frostline_server::{HostSettings, StoreSettings};
use frostline_tensor::OpError;
use frostline_wire::RowFormat;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const ROOT: &str = "s3://photos/set";

/// Lets the host read the bucket by keys in a file.
fn reads(bucket: &Bucket, folder: &Path) -> impl FnOnce(&mut HostSettings) + use<> {
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

/// Waits until what is shown to whoever runs the host has the line.
async fn shown(test: &TestHost, line: &str) -> String {
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

/// The error of the only sample.
async fn sample_error(test: &TestHost) -> OpError {
    let mut request = test.request("none", 0);
    (request.root, request.samples) = (ROOT.to_owned(), vec![sample(0, "0.png")]);
    let answer = test.client.extract(&request).await;
    let (mut rows, end) = rows(RowFormat::Object, &request, answer).await;
    assert_eq!(end, End::Clean);
    rows.remove(&0).unwrap().unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_lets_nobody_in_spoils_no_sample() {
    let (bucket, folder) = (Bucket::start(photo(0)).await, tempfile::tempdir().unwrap());
    let test = TestHost::with(reads(&bucket, folder.path())).await;
    for mood in [Mood::Denied, Mood::Gone, Mood::Busy] {
        bucket.feel(mood);
        let error = sample_error(&test).await;
        assert!(error.host_caused, "{mood:?}: {error}");
        assert!(
            !error.message.contains("AWS_") && !error.message.contains("[store"),
            "{error}"
        );
    }
    bucket.feel(Mood::Private);
    let error = sample_error(&test).await;
    assert!(!error.host_caused, "the others can be read: {error}");
    bucket.feel(Mood::Denied);
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
    let (bucket, folder) = (Bucket::start(photo(0)).await, tempfile::tempdir().unwrap());
    let test = TestHost::with(reads(&bucket, folder.path())).await;
    let add = |name: &str, root: &str, unchecked: bool| json!({"name": name, "data": [root], "unchecked": unchecked});
    let missing = folder.path().join("missing");
    bucket.feel(Mood::Gone);
    for (root, says) in [
        ("s4://x", "not supported"),
        ("/etc", "system folders"),
        (ROOT, "--unchecked"),
        (missing.to_str().unwrap(), "--unchecked"),
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
    bucket.feel(Mood::Fine);
    test.admin(Method::PATCH, "/v1/tenants/acme", &json!({"data": [ROOT]}))
        .await;
}

/// All files below a folder, as text.
fn written(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            written(&path, all);
        } else if let Ok(bytes) = std::fs::read(&path) {
            all.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_is_reached_with_is_written_nowhere() {
    if done_alone("roots::what_a_store_is_reached_with_is_written_nowhere") {
        return;
    }
    let log = Log::start(tracing::Level::TRACE);
    let (bucket, keys) = (Bucket::start(photo(0)).await, tempfile::tempdir().unwrap());
    let test = TestHost::with(reads(&bucket, keys.path())).await;
    let mut all = String::new();
    for mood in [Mood::Fine, Mood::Denied, Mood::Gone, Mood::Busy, Mood::Private] {
        bucket.feel(mood);
        let listing = test
            .client
            .send(Method::GET, &format!("/v1/objects?root={ROOT}"), "")
            .await;
        all.push_str(&String::from_utf8_lossy(&body(listing).await));
        let added = json!({"name": format!("{mood:?}").to_lowercase(), "data": [ROOT]});
        let (_, added) = test.ask_admin(Method::POST, "/v1/tenants", &added).await;
        all.push_str(&String::from_utf8_lossy(&added));
        if mood != Mood::Fine {
            all.push_str(&sample_error(&test).await.message);
        }
        if mood == Mood::Denied {
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
    written(test.folder.path(), &mut all);
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
    async fn a_root_that_fails_is_named_to_whoever_runs_the_host() {
        let (bucket, folder) = (Bucket::start(photo(0)).await, tempfile::tempdir().unwrap());
        let test = TestHost::with(reads(&bucket, folder.path())).await;
        shown(&test, "frostline_root_up{root=\"s3://photos/set\"} 1").await;
        assert_eq!(ready(&operator(&test)).await, "ready\n");
        for (mood, fault) in [
            (Mood::Denied, "denied"),
            (Mood::Busy, "busy"),
            (Mood::Gone, "no_bucket"),
        ] {
            bucket.feel(mood);
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
        // Strangers are told that something fails, not what.
        assert_eq!(ready(&test.client).await, "ready\ndata roots failing: 1\n");
        let text = metrics(&test.client).await;
        assert!(
            text.contains("frostline_store_errors_total{fault=\"denied\"}") && !text.contains("photos"),
            "{text}"
        );
        bucket.feel(Mood::Fine);
        shown(&test, "frostline_root_up{root=\"s3://photos/set\"} 1").await;
        assert_eq!(ready(&operator(&test)).await, "ready\n");
    }
}
