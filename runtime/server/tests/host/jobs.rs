//! Listing and cancelling jobs as an admin.

use crate::client::{Client, End, STUCK, body, rows};
use crate::support::TestHost;
use frostline_wire::{ErrorClass, ExtractionRequest, JobDetail, JobInfo, RowFormat, TRACEPARENT};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use std::time::Duration;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Sends an extraction with a trace id.
async fn extract(client: &Client, request: &ExtractionRequest) -> Response<Incoming> {
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let body = serde_json::to_vec(request).unwrap();
    let headers = [(TRACEPARENT, parent.as_str())];
    client
        .send_with(Method::POST, "/v1/extractions", &headers, body)
        .await
}

async fn job(test: &TestHost, id: &str) -> JobDetail {
    let path = format!("/v1/jobs/{id}");
    serde_json::from_value(test.admin(Method::GET, &path, &Value::Null).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_shows_the_time_of_images_by_stage() {
    let test = TestHost::start().await;
    let (guest, model) = test.upload().await;
    test.photos(6);
    let mut request = test.request("flat", 6);
    (request.guest, request.model) = (Some(guest), Some(model));
    for _ in 0..2 {
        let answer = extract(&test.client, &request).await;
        assert_eq!(answer.status(), StatusCode::OK);
        body(answer).await;
    }
    test.wait_until_ended().await;
    let detail = job(&test, &TRACE[..8]).await;
    let JobInfo {
        id,
        tenant,
        images,
        seconds,
        ..
    } = &detail.job;
    assert_eq!((id.as_str(), tenant.as_str(), *images), (TRACE, "default", 12));
    assert_eq!(detail.job.model.as_deref(), Some("tiny"));
    for (stage, spent) in [
        ("read", seconds.read),
        ("decode", seconds.decode),
        ("run", seconds.run),
        ("encode", seconds.encode),
    ] {
        assert!(spent > 0.0, "{stage}: {seconds:?}");
    }
    assert!(detail.summary().contains('%'), "{}", detail.summary());
    let unnamed = test.client.extract(&request).await;
    body(unnamed).await;
    let jobs: Vec<JobInfo> =
        serde_json::from_value(test.admin(Method::GET, "/v1/jobs", &Value::Null).await).unwrap();
    assert_eq!(jobs.len(), 2, "extractions without trace id are separate jobs");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_job_does_not_affect_others() {
    let test = TestHost::start().await;
    let request = test.large_request();
    let unread = extract(&test.client, &request).await;
    let other = test.client.extract(&request).await;
    assert_eq!(job(&test, TRACE).await.job.running, 1);
    let path = format!("/v1/jobs/{TRACE}");
    test.admin(Method::DELETE, &path, &Value::Null).await;
    let ended = async {
        while test.running().await > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK, ended)
        .await
        .expect("the job is still running");
    let (_, end) = rows(RowFormat::Object, &request, unread).await;
    assert_eq!(end, End::Aborted);
    let refused = extract(&test.client, &request).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let error: frostline_wire::ErrorBody = serde_json::from_slice(&body(refused).await).unwrap();
    assert_eq!(error.class, ErrorClass::Request);
    assert!(
        error.message.contains("cancelled the job") && error.message.contains(TRACE),
        "{error}"
    );
    assert!(job(&test, TRACE).await.job.cancelled);
    let (_, end) = rows(RowFormat::Object, &request, other).await;
    assert_eq!(
        end,
        End::Clean,
        "this extraction does not belong to the cancelled job"
    );
    let (status, _) = test.ask_admin(Method::GET, "/v1/jobs/none", &Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}
