use crate::client::Client;
use crate::fixtures::sample;
use crate::support::TestHost;
use frostline_wire::{
    ErrorClass, ExtractionRequest, Precision, Profile, ProfileRequest, QuotaKey, RequestedSample,
};
use http::{Method, StatusCode};
use std::time::Duration;

async fn request(test: &TestHost) -> ProfileRequest {
    let (guest, model) = test.upload().await;
    ProfileRequest {
        root: test.root(),
        guest,
        model,
        parameters: String::new(),
        cuts: ["active", "flat", "classes"].map(str::to_owned).to_vec(),
        samples: samples(3),
        view: None,
        precision: Precision::Full,
        wait_seconds: None,
    }
}

fn samples(count: u32) -> Vec<RequestedSample> {
    (0..count)
        .map(|index| sample(index, &format!("{index}.png")))
        .collect()
}

async fn profile(test: &TestHost, request: &ProfileRequest) -> Profile {
    profile_of(&test.client, request).await
}

async fn profile_of(client: &Client, request: &ProfileRequest) -> Profile {
    let body = serde_json::to_vec(request).unwrap();
    let answer = client.send(Method::POST, "/v1/profiles", body).await;
    let status = answer.status();
    let body = crate::client::body(answer).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

/// True if both are the same measurement. JSON may change the last digit of numbers.
fn same(left: &Profile, right: &Profile) -> bool {
    left.measured_at == right.measured_at
        && (left.measured_in_seconds - right.measured_in_seconds).abs() < 1e-9
}

async fn refused(test: &TestHost, request: &ProfileRequest) -> (StatusCode, String) {
    let body = serde_json::to_vec(request).unwrap();
    let (status, error) = test.client.refused(Method::POST, "/v1/profiles", body).await;
    assert_ne!(error.class, ErrorClass::Host, "{error}");
    (status, error.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_measured_once_and_kept_over_a_restart() {
    let mut test = TestHost::with(|settings| settings.engine.lanes = 2).await;
    test.photos(3);
    let request = request(&test).await;
    let (status, error) = test.client.refused(Method::GET, "/v1/profiles/tiny", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(error.message.contains("POST /v1/profiles"), "{error}");

    let measured = profile(&test, &request).await;
    let names: Vec<&str> = measured.cuts.iter().map(|cut| cut.name.as_str()).collect();
    assert_eq!(names, ["active", "flat", "classes"]);
    let bytes: Vec<u64> = measured.cuts.iter().map(|cut| cut.bytes_per_sample).collect();
    assert_eq!(bytes, [4 * 3 * 64, 4 * 3, 4 * 4]);
    for pair in measured.cuts.windows(2) {
        assert!(pair[0].compute.at(4.0) < pair[1].compute.at(4.0), "{pair:?}");
    }
    for cut in &measured.cuts {
        assert!(cut.busy_seconds_per_sample > 0.0);
        assert!(cut.encoded["f32"].bytes_per_sample >= cut.bytes_per_sample as f64);
    }
    // The pixels and the activations. The weights of the matrix product only count for cuts after it.
    assert_eq!(measured.cuts[0].memory.per_sample, 2.0 * 4.0 * 3.0 * 64.0);
    assert_eq!(
        (measured.cuts[1].memory.fixed, measured.cuts[2].memory.fixed),
        (0.0, 48.0)
    );
    assert!(measured.input["u8"].bytes_per_sample < measured.input["f32"].bytes_per_sample);
    assert!(measured.read_seconds_per_sample > 0.0 && measured.decode_seconds_per_sample > 0.0);
    assert_eq!(
        (measured.platform.lanes, measured.platform.device.as_str()),
        (2, "cpu")
    );
    assert!(
        measured.platform.library.starts_with("onnxruntime 1."),
        "{:?}",
        measured.platform
    );

    assert!(same(&profile(&test, &request).await, &measured));
    // A CPU always computes in full precision.
    for precision in [Precision::Tf32, Precision::F16] {
        let less_exact = ProfileRequest {
            precision,
            ..request.clone()
        };
        assert!(same(&profile(&test, &less_exact).await, &measured));
    }
    let other = ProfileRequest {
        cuts: vec!["flat".to_owned()],
        ..request.clone()
    };
    let other = profile(&test, &other).await;
    assert!(!same(&other, &measured) && other.cuts.len() == 1);
    assert_eq!(test.load().await.running, 0);

    test.host.take().unwrap().shutdown(Duration::from_secs(5)).await;
    let test = TestHost::start_in(test.folder, |settings| settings.engine.lanes = 2).await;
    assert!(same(&profile(&test, &request).await, &measured));
    let (status, shown): (_, Profile) = test.client.get("/v1/profiles/tiny").await;
    assert_eq!(status, StatusCode::OK);
    assert!(shown.platform == measured.platform && !shown.cuts.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_that_cannot_be_used_are_left_out_while_there_are_others() {
    let test = TestHost::start().await;
    test.photos(2);
    test.write("broken.png", b"\x89PNG\r\n\x1a\nand no more");
    let mut request = request(&test).await;
    request.samples = vec![
        sample(0, "absent.png"),
        sample(1, "broken.png"),
        sample(2, "1.png"),
    ];
    assert_eq!(profile(&test, &request).await.cuts.len(), 3);
    request.samples.truncate(2);
    request.cuts.truncate(1);
    let (status, message) = refused(&test, &request).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(message.contains("broken.png"), "{message}");
    request.samples.truncate(1);
    let (status, message) = refused(&test, &request).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(message.contains("absent.png"), "{message}");
}

/// An extraction that only ends after the client has read the answer.
fn unread_extraction(test: &TestHost) -> ExtractionRequest {
    test.write("large", &vec![7; 1 << 20]);
    let mut request = test.request("none", 0);
    request.samples = (0..64).map(|position| sample(position, "large")).collect();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_that_cannot_be_right_are_refused_before_anything_runs() {
    let test = TestHost::start().await;
    test.photos(1);
    let good = request(&test).await;
    let cuts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    type Case<'a> = (&'a dyn Fn(&mut ProfileRequest), StatusCode, &'a str);
    let cases: [Case<'_>; 8] = [
        (&|r| r.cuts.clear(), StatusCode::BAD_REQUEST, "0 cuts"),
        (
            &|r| r.cuts = vec!["flat".to_owned(); 65],
            StatusCode::BAD_REQUEST,
            "65 cuts",
        ),
        (&|r| r.cuts = cuts(&["absent"]), StatusCode::BAD_REQUEST, "absent"),
        (
            &|r| r.cuts = cuts(&["flat", "active"]),
            StatusCode::BAD_REQUEST,
            "order",
        ),
        (
            &|r| r.cuts = cuts(&["flat", "flat"]),
            StatusCode::BAD_REQUEST,
            "duplicate",
        ),
        (
            &|r| r.samples = samples(33),
            StatusCode::BAD_REQUEST,
            "33 samples",
        ),
        (&|r| r.root = "/etc".to_owned(), StatusCode::NOT_FOUND, "/etc"),
        (
            &|r| r.model.sha256 = "0".repeat(64),
            StatusCode::CONFLICT,
            "upload yours again",
        ),
    ];
    for (change, status, word) in cases {
        let mut request = good.clone();
        change(&mut request);
        let (actual, message) = refused(&test, &request).await;
        assert_eq!(actual, status, "{word}: {message}");
        assert!(message.contains(word), "{word}: {message}");
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn profiles_are_separate_per_tenant() {
        let test = TestHost::with(|settings| settings.extractions.running = 2).await;
        test.photos(3);
        let stranger = test.tenant("stranger", &[]).await;
        stranger.upload().await;
        let request = request(&test).await;
        let measured = profile(&test, &request).await;
        assert!(same(&profile(&test, &request).await, &measured));
        let (status, error) = stranger.refused(Method::GET, "/v1/profiles/tiny", "").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{error}");
        assert!(
            !same(&profile_of(&stranger, &request).await, &measured),
            "measured again"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_profile_skips_other_tenants_queues_and_reports_disturbance() {
        let test = TestHost::with(|settings| settings.extractions.running = 2).await;
        test.photos(3);
        let busy = test.tenant("busy", &[(QuotaKey::Running, 1)]).await;
        let extraction = unread_extraction(&test);
        let unread = busy.extract(&extraction).await;
        let queued = tokio::spawn({
            let busy = busy.clone();
            let extraction = extraction.clone();
            async move { busy.extract(&extraction).await }
        });
        while test.load().await.queued == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }

        // The other tenant's queue does not change until the answer is read.
        let request = request(&test).await;
        assert!(profile(&test, &request).await.disturbed);
        assert_eq!(test.load().await.queued, 1);
        let (status, _) = test.client.refused(Method::GET, "/v1/profiles/tiny", "").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "disturbed profiles are not stored");

        queued.abort();
        while test.load().await.queued > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(unread);
        test.wait_until_idle().await;
        let measured = profile(&test, &request).await;
        assert!(!measured.disturbed && same(&profile(&test, &request).await, &measured));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_profile_of_another_platform_is_not_used() {
        let mut test = TestHost::with(|settings| settings.engine.lanes = 2).await;
        test.photos(3);
        let request = request(&test).await;
        let measured = profile(&test, &request).await;
        test.host.take().unwrap().shutdown(Duration::from_secs(5)).await;
        let test = TestHost::start_in(test.folder, |settings| settings.engine.lanes = 1).await;
        let status = test
            .client
            .send(Method::GET, "/v1/profiles/tiny", "")
            .await
            .status();
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_ne!(profile(&test, &request).await.platform, measured.platform);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_profile_request_fails_after_its_wait_time() {
        let test = TestHost::with(|settings| settings.extractions.running = 1).await;
        test.photos(3);
        let mut request = request(&test).await;
        request.wait_seconds = Some(0);
        let unread = test.client.extract(&unread_extraction(&test)).await;
        let body = serde_json::to_vec(&request).unwrap();
        let answer = test.client.send(Method::POST, "/v1/profiles", body.clone()).await;
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait));
        let (_, error) = test.client.refused(Method::POST, "/v1/profiles", body).await;
        assert_eq!(error.class, ErrorClass::Busy);
        assert!(error.message.contains("continue without a profile"), "{error}");
        drop(unread);
        test.wait_until_idle().await;
        assert_eq!(profile(&test, &request).await.cuts.len(), 3, "the host is idle");
    }
}
