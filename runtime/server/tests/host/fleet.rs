//! Several hosts with the same state: clocks, jobs, draining and revocations.

use crate::client::{Client, STUCK, body};
use crate::support::TestHost;
use frostline_server::{LocalClock, RunningHost};
use frostline_wire::{AuditEntry, DayUsage, ExtractionRequest, HostInfo, JobInfo, TRACEPARENT, TenantInfo};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const DAY: i64 = 86_400;

/// Starts a host with the state of `first`.
async fn join(first: &TestHost, name: &str, local: &Path, clock: LocalClock) -> TestHost {
    TestHost::limited(
        |settings| {
            settings.name = Some(name.to_owned());
            settings.state = first.folder.path().join("state").to_str().unwrap().to_owned();
            settings.data = vec![first.root()];
            settings.local = Some(local.to_owned());
        },
        |config| config.clock = clock,
    )
    .await
}

/// Starts the first host of a state, with a separate local directory.
async fn first_host(name: &str, local: &Path) -> TestHost {
    TestHost::with(|settings| {
        settings.name = Some(name.to_owned());
        settings.local = Some(local.to_owned());
    })
    .await
}

/// Calls `ready` until it returns true.
async fn wait_until(what: &str, mut ready: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !ready().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK, waiting).await.expect(what);
}

async fn hosts(test: &TestHost) -> Vec<HostInfo> {
    serde_json::from_value(test.admin(Method::GET, "/v1/hosts", &Value::Null).await).unwrap()
}

async fn jobs(test: &TestHost) -> Vec<JobInfo> {
    serde_json::from_value(test.admin(Method::GET, "/v1/jobs", &Value::Null).await).unwrap()
}

/// Waits until `test` has read the records of `count` hosts.
async fn know_each_other(test: &TestHost, count: usize) {
    wait_until("hosts do not know each other", async || {
        hosts(test).await.len() == count
    })
    .await;
}

/// Sends an extraction of a job and returns the status. The answer is read completely.
async fn extract(client: &Client, request: &ExtractionRequest, job: &str) -> StatusCode {
    let parent = format!("00-{job}-00f067aa0ba902b7-01");
    let body = serde_json::to_vec(request).unwrap();
    let headers = [(TRACEPARENT, parent.as_str())];
    let answer = client.send_with(Method::POST, "/v1/extractions", &headers, body);
    let answer = answer.await;
    let status = answer.status();
    self::body(answer).await;
    status
}

/// Returns the id of a job.
fn job_id(number: usize) -> String {
    format!("{:032x}", number + 1)
}

fn folders() -> [tempfile::TempDir; 3] {
    [(); 3].map(|()| tempfile::tempdir().unwrap())
}

async fn stop(host: Option<RunningHost>) {
    host.unwrap().shutdown(STUCK).await;
}

/// Images of all days and all tenants. Each host writes its usage before it answers.
async fn images(hosts: [&TestHost; 3]) -> u64 {
    let path = "/v1/usage?from=1970-01-01&to=9999-12-31";
    let mut last = Value::Null;
    for test in hosts {
        last = test.admin(Method::GET, path, &Value::Null).await;
    }
    let days: Vec<DayUsage> = serde_json::from_value(last).unwrap();
    days.iter().map(|day| day.usage.images).sum()
}

async fn audit(test: &TestHost) -> Vec<AuditEntry> {
    serde_json::from_value(test.admin(Method::GET, "/v1/audit", &Value::Null).await).unwrap()
}

async fn tokens(test: &TestHost) -> Vec<(String, Option<u64>)> {
    let shown = test.admin(Method::GET, "/v1/tenants/acme", &Value::Null).await;
    let tenant: TenantInfo = serde_json::from_value(shown).unwrap();
    let tokens = tenant.tokens.into_iter();
    tokens.map(|token| (token.id, token.expires_at)).collect()
}

/// Moves the clock of one of three hosts during jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_changes_neither_usage_nor_audit_nor_tokens_nor_jobs() {
    let locals = folders();
    let clock = LocalClock::default();
    let good = first_host("good", locals[0].path()).await;
    let bad = join(&good, "bad", locals[1].path(), clock.clone()).await;
    // The record of a host that starts later is known to be recent.
    let other = join(&good, "other", locals[2].path(), LocalClock::default()).await;
    know_each_other(&bad, 3).await;
    good.photos(2);
    let new = json!({"name": "acme", "data": [good.root()], "token_seconds": 30 * DAY});
    let given = good.admin(Method::POST, "/v1/tenants", &new).await;
    let token = given["token"].as_str().unwrap();
    let request = good.request("none", 2);
    let path = format!("/v1/jobs/{}", job_id(0));
    for host in [&bad, &other] {
        wait_until("the tenant is unknown", async || {
            extract(&host.client_of(token), &request, &job_id(0)).await == StatusCode::OK
        })
        .await;
    }
    bad.admin(Method::DELETE, &path, &Value::Null).await;
    wait_until("the job is not refused", async || {
        extract(&good.client_of(token), &request, &job_id(0)).await == StatusCode::FORBIDDEN
    })
    .await;
    let mut sent = images([&bad, &other, &good]).await;
    let mut before = tokens(&good).await;
    let mut done = audit(&good).await.len();
    for (number, shift) in [
        500 * DAY,
        100 * DAY,
        DAY,
        300,
        -300,
        -DAY,
        -100 * DAY,
        -700 * DAY,
        0,
    ]
    .into_iter()
    .enumerate()
    {
        clock.shift(shift);
        for host in [&bad, &good, &other] {
            let status = extract(&host.client_of(token), &request, &job_id(number + 1)).await;
            assert_eq!(status, StatusCode::OK, "{shift}");
            sent += 2;
        }
        let others = json!({"others_seconds": 2 * DAY});
        let mut given = bad.admin(Method::POST, "/v1/tenants/acme/tokens", &others).await;
        let rotated: TenantInfo = serde_json::from_value(given["tenant"].take()).unwrap();
        done += 1;
        // Only the end of the old tokens may change, and not to a time before the requested one.
        let kept: Vec<String> = rotated.tokens.iter().map(|token| token.id.clone()).collect();
        assert!(before.iter().all(|(id, _)| kept.contains(id)), "{shift}");
        before = tokens(&bad).await;
        let today = frostline_primitives::now();
        let soonest = before.iter().filter_map(|(_, expires)| *expires).min();
        assert!(soonest.is_some_and(|at| at > today + 86_400), "{shift}");
        assert_eq!(images([&bad, &other, &good]).await, sent, "{shift}");
        assert_eq!(audit(&bad).await.len(), done, "{shift}");
        assert_eq!(audit(&good).await.len(), done, "{shift}");
        for host in [&bad, &good] {
            let status = extract(&host.client_of(token), &request, &job_id(0)).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{shift}: the job was cancelled");
            assert!(jobs(host).await.iter().any(|job| job.cancelled), "{shift}");
        }
        if shift.abs() > 60 {
            let skew = hosts(&bad).await[0].clock_skew_seconds.unwrap();
            assert!((skew - shift).abs() <= 60, "{skew}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_cancelled_on_all_hosts_and_stays_so() {
    let locals = folders();
    let first = first_host("first", locals[0].path()).await;
    let mut second = join(&first, "second", locals[1].path(), LocalClock::default()).await;
    first.photos(1);
    let request = first.request("none", 1);
    assert_eq!(
        extract(&second.client, &request, &job_id(0)).await,
        StatusCode::OK
    );
    assert_eq!(extract(&first.client, &request, &job_id(1)).await, StatusCode::OK);
    let id = job_id(0);
    // The second host writes its next record within ten seconds.
    wait_until("the job of the other host is unknown", async || {
        jobs(&first)
            .await
            .iter()
            .any(|job| job.id == id && job.hosts == ["second"])
    })
    .await;
    first
        .admin(Method::DELETE, &format!("/v1/jobs/{id}"), &Value::Null)
        .await;
    assert_eq!(extract(&first.client, &request, &id).await, StatusCode::FORBIDDEN);
    wait_until("the other host does not refuse the job", async || {
        extract(&second.client, &request, &id).await == StatusCode::FORBIDDEN
    })
    .await;
    for number in 2..70 {
        assert_eq!(
            extract(&second.client, &request, &job_id(number)).await,
            StatusCode::OK
        );
    }
    assert_eq!(
        extract(&second.client, &request, &id).await,
        StatusCode::FORBIDDEN
    );
    stop(second.host.take()).await;
    let second = join(&first, "second", locals[1].path(), LocalClock::default()).await;
    assert_eq!(
        extract(&second.client, &request, &id).await,
        StatusCode::FORBIDDEN
    );
    let shown = second
        .admin(Method::GET, &format!("/v1/jobs/{id}"), &Value::Null)
        .await;
    assert_eq!(shown["cancelled"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_drained_by_name_until_it_restarts() {
    let locals = folders();
    let first = first_host("first", locals[0].path()).await;
    let mut second = join(&first, "second", locals[1].path(), LocalClock::default()).await;
    know_each_other(&first, 2).await;
    let ready =
        async |test: &TestHost| test.client.send(Method::GET, "/readyz", "").await.status() == StatusCode::OK;
    let path = "/v1/hosts/second/drain";
    for _ in 0..2 {
        first.admin(Method::POST, path, &Value::Null).await;
        wait_until("the host is not drained", async || !ready(&second).await).await;
        assert!(ready(&first).await);
        first.admin(Method::DELETE, path, &Value::Null).await;
        wait_until("the host stays drained", async || ready(&second).await).await;
    }
    let (status, refusal) = first
        .ask_admin(Method::POST, "/v1/hosts/third/drain", &Value::Null)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(String::from_utf8_lossy(&refusal).contains("first, second"));
    first.admin(Method::POST, path, &Value::Null).await;
    wait_until("the host is not drained", async || !ready(&second).await).await;
    stop(second.host.take()).await;
    let second = join(&first, "second", locals[1].path(), LocalClock::default()).await;
    assert!(ready(&second).await);
    second.admin(Method::POST, "/v1/drain", &Value::Null).await;
    assert!(!ready(&second).await);
    second.admin(Method::DELETE, "/v1/drain", &Value::Null).await;
    assert!(ready(&second).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_revoked_while_the_state_fails() {
    let locals = folders();
    let mut first = first_host("first", locals[0].path()).await;
    let second = join(&first, "second", locals[1].path(), LocalClock::default()).await;
    know_each_other(&first, 2).await;
    let (token, id) = first.add_tenant("acme").await;
    let uses = async |test: &TestHost| {
        test.client_of(&token)
            .send(Method::GET, "/v1/load", "")
            .await
            .status()
    };
    wait_until("the tenant is unknown", async || {
        uses(&second).await == StatusCode::OK
    })
    .await;
    let log = first.folder.path().join("state/log");
    let aside = first.folder.path().join("log");
    std::fs::rename(&log, &aside).unwrap();
    std::fs::write(&log, "").unwrap();
    let path = format!("/v1/tenants/acme/tokens/{id}");
    let revoked = first.admin(Method::DELETE, &path, &Value::Null).await;
    assert_eq!(revoked["unaware"], json!(["second"]), "{revoked}");
    assert!(revoked["pending"].is_string(), "{revoked}");
    assert_eq!(uses(&first).await, StatusCode::UNAUTHORIZED);
    assert_eq!(uses(&second).await, StatusCode::OK);
    let kept = std::fs::read_to_string(locals[0].path().join("revocations.json")).unwrap();
    assert!(kept.contains(&id), "{kept}");
    stop(first.host.take()).await;
    std::fs::remove_file(&log).unwrap();
    std::fs::rename(&aside, &log).unwrap();
    let first = TestHost::start_in(first.folder, |settings| {
        settings.name = Some("first".to_owned());
        settings.local = Some(locals[0].path().to_owned());
    })
    .await;
    assert_eq!(
        uses(&first).await,
        StatusCode::UNAUTHORIZED,
        "the revocation survives the restart"
    );
    wait_until("the revocation is not written", async || {
        uses(&second).await == StatusCode::UNAUTHORIZED
    })
    .await;
    assert!(tokens(&second).await.is_empty());
    let settled = locals[0].path().join("revocations.json");
    wait_until("the revocation stays pending", async || {
        std::fs::read_to_string(&settled).unwrap() == "[]"
    })
    .await;
}
