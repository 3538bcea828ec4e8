use crate::client::body;
use crate::fixtures::{network, stock_guest, upload_ref};
use crate::support::TestHost;
use frostline_wire::{
    Description, DescriptionRequest, ErrorClass, GuestInfo, Load, ModelInfo, ObjectPage, Pixels,
};
use http::{Method, StatusCode};

#[tokio::test(flavor = "multi_thread")]
async fn only_health_and_metrics_are_available_without_a_token() {
    let test = TestHost::start().await;
    let mut stranger = test.client.clone();
    for token in ["", "wrong", &test.client.token[1..]] {
        stranger.token = token.to_owned();
        let (status, error) = stranger.refused(Method::GET, "/v1/load", "").await;
        assert_eq!(
            (status, error.class),
            (StatusCode::UNAUTHORIZED, ErrorClass::Unauthorized)
        );
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(
            stranger.send(Method::GET, path, "").await.status(),
            StatusCode::OK,
            "{path}"
        );
    }
    assert_eq!(test.client.get::<Load>("/v1/load").await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_are_versions_that_survive_a_restart() {
    let mut test = TestHost::start().await;
    let (guest, model) = test.upload().await;
    let again = test
        .client
        .send(Method::PUT, "/v1/guests/prefix", stock_guest())
        .await;
    assert_eq!(
        again.status(),
        StatusCode::OK,
        "uploading the same bytes creates no version"
    );

    let mut other = network();
    other.set_metadata("note", "another version");
    let answer = test
        .client
        .send(Method::PUT, "/v1/models/tiny", other.to_bytes().unwrap())
        .await;
    assert_eq!(answer.status(), StatusCode::CREATED);

    test.host
        .take()
        .unwrap()
        .shutdown(std::time::Duration::from_secs(10))
        .await;
    let test = TestHost::start_in(test.folder, |_| ()).await;
    let (_, shown) = test.client.get::<GuestInfo>("/v1/guests/prefix").await;
    assert_eq!(shown.sha256, guest.sha256);
    assert_eq!(
        test.client.get::<Vec<GuestInfo>>("/v1/guests").await.1,
        vec![shown]
    );
    let (_, newest) = test.client.get::<ModelInfo>("/v1/models/tiny").await;
    assert_ne!(newest.sha256, model.sha256);
    let path = format!("/v1/models/tiny?sha256={}", model.sha256);
    let (_, older) = test.client.get::<ModelInfo>(&path).await;
    assert_eq!(older.sha256, model.sha256);
    let path = format!("/v1/models/tiny@sha256:{}", model.sha256);
    assert_eq!(test.client.get::<ModelInfo>(&path).await.1, older);
    assert_eq!(
        test.client.get::<ModelInfo>("/v1/models/tiny:latest").await.1,
        newest
    );
    assert_eq!(older.input_shape, [3, 8, 8]);
    let cuts: Vec<&str> = older.cuts.iter().map(|cut| cut.name.as_str()).collect();
    assert_eq!(cuts, ["active", "pooled", "flat", "classes"]);
    let path = format!("/v1/models/tiny?sha256={}", "0".repeat(64));
    assert_eq!(
        test.client.refused(Method::GET, &path, "").await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_uploads_are_refused_and_not_stored() {
    let test = TestHost::with(|settings| settings.limits.guest_bytes = 200_000).await;
    let wrong_hash = format!("/v1/guests/prefix?sha256={}", "0".repeat(64));
    let guest = stock_guest();
    let model = network().to_bytes().unwrap();
    for (path, bytes, status, word) in [
        (
            wrong_hash.as_str(),
            guest.clone(),
            StatusCode::BAD_REQUEST,
            "SHA-256",
        ),
        (
            "/v1/guests/prefix",
            b"no wasm".to_vec(),
            StatusCode::BAD_REQUEST,
            "guest",
        ),
        (
            "/v1/guests/prefix",
            vec![0; 200_001],
            StatusCode::PAYLOAD_TOO_LARGE,
            "200000",
        ),
        ("/v1/guests/Prefix", guest, StatusCode::BAD_REQUEST, "name"),
        (
            "/v1/models/tiny",
            b"no onnx".to_vec(),
            StatusCode::BAD_REQUEST,
            "ONNX",
        ),
        (
            "/v1/models/tiny?sah256=1",
            model.clone(),
            StatusCode::BAD_REQUEST,
            "sah256",
        ),
        ("/v1/models/..%2ftiny", model, StatusCode::BAD_REQUEST, "name"),
    ] {
        let (actual, error) = test.client.refused(Method::PUT, path, bytes).await;
        assert_eq!(actual, status, "{path}: {error}");
        assert!(error.message.contains(word), "{path}: {error}");
    }
    for path in ["/v1/guests/prefix", "/v1/models/tiny"] {
        assert_eq!(
            test.client.refused(Method::GET, path, "").await.0,
            StatusCode::NOT_FOUND
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_uploads_are_not_found() {
    let test = TestHost::start().await;
    test.upload().await;
    for path in ["/v1/guests/prefix", "/v1/models/tiny"] {
        assert_eq!(
            test.client.send(Method::DELETE, path, "").await.status(),
            StatusCode::NO_CONTENT
        );
        assert_eq!(
            test.client.refused(Method::DELETE, path, "").await.0,
            StatusCode::NOT_FOUND
        );
        assert_eq!(
            test.client.refused(Method::GET, path, "").await.0,
            StatusCode::NOT_FOUND
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_addresses_and_methods_are_answered_in_json() {
    let test = TestHost::start().await;
    let (status, error) = test.client.refused(Method::GET, "/v2/guests", "").await;
    assert_eq!(
        (status, error.class),
        (StatusCode::NOT_FOUND, ErrorClass::Request)
    );
    let (status, _) = test.client.refused(Method::POST, "/v1/guests/prefix", "").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_describes_itself_for_a_model() {
    let test = TestHost::start().await;
    let (guest, model) = test.upload().await;
    let ask = |guest: &frostline_wire::UploadRef| {
        serde_json::to_vec(&DescriptionRequest {
            guest: guest.clone(),
            model: model.clone(),
            parameters: String::new(),
        })
        .unwrap()
    };
    let answer = test
        .client
        .send(Method::POST, "/v1/descriptions", ask(&guest))
        .await;
    assert_eq!(answer.status(), StatusCode::OK);
    let description: Description = serde_json::from_slice(&body(answer).await).unwrap();
    assert!(matches!(description.pixels, Pixels::Spec(spec) if (spec.crop_height, spec.resize) == (8, 10)));
    assert_eq!(description.cuts.len(), 4);
    let (status, error) = test
        .client
        .refused(Method::POST, "/v1/descriptions", ask(&upload_ref("prefix", b"x")))
        .await;
    assert_eq!(
        (status, error.class),
        (StatusCode::CONFLICT, ErrorClass::NotFound)
    );
    assert!(error.message.contains(&guest.sha256), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_come_in_pages_and_only_from_granted_roots() {
    let test = TestHost::start().await;
    for key in [
        "train/a/1.png",
        "train/a/2.png",
        "train/b/1.png",
        "train/b/2.png",
        "train/b/3.png",
        "train/b/3\n.png",
    ] {
        test.write(key, key.as_bytes());
    }
    let root = format!("{}/train", test.root());
    let mut keys = Vec::new();
    let mut after = String::new();
    let mut left_out = Vec::new();
    loop {
        let path = format!("/v1/objects?root={root}&limit=2{after}");
        let (_, page) = test.client.get::<ObjectPage>(&path).await;
        left_out.extend(page.left_out.names);
        assert!(page.objects.len() <= 2);
        keys.extend(page.objects.into_iter().map(|object| object.sample.key));
        let Some(next) = page.next else { break };
        after = format!("&after={next}");
    }
    assert_eq!(keys, ["a/1.png", "a/2.png", "b/1.png", "b/2.png", "b/3.png"]);
    assert_eq!(left_out, ["b/3\\n.png"]);
    for root in [
        format!("{}/..", test.root()),
        "/etc".to_owned(),
        format!("{}2", test.root()),
    ] {
        let (status, error) = test
            .client
            .refused(Method::GET, &format!("/v1/objects?root={root}"), "")
            .await;
        assert_eq!(
            (status, error.class),
            (StatusCode::NOT_FOUND, ErrorClass::NotFound),
            "{root}"
        );
    }
    let (status, _) = test
        .client
        .refused(Method::GET, "/v1/objects?root=here", "")
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_models_are_refused_and_nothing_is_stored() {
    let test = TestHost::start().await;
    for hostile in frostline_hostile::models() {
        let (status, error) = test
            .client
            .refused(Method::PUT, "/v1/models/tiny", hostile.file)
            .await;
        assert_eq!(
            (status, error.class),
            (StatusCode::BAD_REQUEST, ErrorClass::Request),
            "{}: {error}",
            hostile.name
        );
        let named = hostile
            .expected_fragments
            .iter()
            .all(|word| error.message.contains(word));
        assert!(named, "{}: {error}", hostile.name);
    }
    let (status, _) = test.client.refused(Method::GET, "/v1/models/tiny", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn model_metadata_is_limited_per_tenant() {
    // Model metadata needs about 500 bytes.
    let test = TestHost::limited(|_| (), |config| config.limits.facts_bytes = 800).await;
    let model = || network().to_bytes().unwrap();
    let first = test.client.send(Method::PUT, "/v1/models/first", model()).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    let (status, error) = test
        .client
        .refused(Method::PUT, "/v1/models/second", model())
        .await;
    assert_eq!(
        (status, error.class),
        (StatusCode::BAD_REQUEST, ErrorClass::Request)
    );
    assert!(error.message.contains("delete a model first"), "{error}");
    let deleted = test.client.send(Method::DELETE, "/v1/models/first", "").await;
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    let second = test.client.send(Method::PUT, "/v1/models/second", model()).await;
    assert_eq!(second.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages() {
    let test = TestHost::start().await;
    for name in ["b", "c", "a"] {
        let path = format!("/v1/models/{name}");
        let stored = test
            .client
            .send(Method::PUT, &path, network().to_bytes().unwrap())
            .await;
        assert_eq!(stored.status(), StatusCode::CREATED);
    }
    for (query, expected) in [
        ("", vec!["a", "b", "c"]),
        ("?limit=2", vec!["a", "b"]),
        ("?limit=2&after=b", vec!["c"]),
        ("?after=c", vec![]),
    ] {
        let path = format!("/v1/models{query}");
        let (_, models) = test.client.get::<Vec<ModelInfo>>(&path).await;
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, expected, "{query}");
    }
    let (_, guests) = test.client.get::<Vec<GuestInfo>>("/v1/guests?limit=1").await;
    assert!(guests.is_empty());
}
