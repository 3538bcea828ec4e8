use crate::client::{Client, End, Rows, rows};
use crate::fixtures::{network, sample, upload_ref};
use crate::support::TestHost;
use bytes::Bytes;
use frostline_engine::{Session, SessionOptions};
use frostline_images::DecodeLimits;
use frostline_tensor::{Data, OpErrorCode, PixelSpec, Tensor};
use frostline_wire::{
    Compression, Encoding, ErrorClass, ExtractionRequest, Load, RowFormat, Values, object_digest,
};
use http::StatusCode;

const PHOTOS: u32 = 11;

/// Expected pixels before normalization, computed without a host.
fn crop(photo: &Bytes) -> Vec<u8> {
    frostline_images::load(photo, &PixelSpec::imagenet(8, 8), &DecodeLimits::default()).unwrap()
}

/// Expected activations at `cut`, computed without a host.
fn expected(photo: &Bytes, cut: &str) -> Vec<u8> {
    let batch = Tensor::new([1, 3, 8, 8], Data::U8(crop(photo))).unwrap();
    let pixels = frostline_images::normalize(&batch, &PixelSpec::imagenet(8, 8)).unwrap();
    if cut == "input" {
        return pixels.as_bytes().to_vec();
    }
    let part = network().slice(None, Some(cut)).unwrap().to_bytes().unwrap();
    let mut session = Session::open(&part, &SessionOptions::default()).unwrap();
    session
        .run(&[("pixels", &pixels)])
        .unwrap()
        .remove(0)
        .1
        .as_bytes()
        .to_vec()
}

async fn all(client: &Client, request: &ExtractionRequest, format: RowFormat) -> Rows {
    let (rows, end) = rows(format, request, client.extract(request).await).await;
    assert_eq!(end, End::Clean);
    assert_eq!(rows.len(), request.samples.len());
    rows
}

fn assert_close(actual: &[u8], expected: &[u8]) {
    assert_within(1e-5, actual, expected);
}

fn assert_within(tolerance: f32, actual: &[u8], expected: &[u8]) {
    assert_eq!(actual.len(), expected.len());
    for (a, b) in actual.chunks(4).zip(expected.chunks(4)) {
        let [a, b] = [a, b].map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{a} is not {b}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_encoding_is_within_its_tolerance() {
    let test = TestHost::start().await;
    let photos = test.photos(PHOTOS);
    let (guest, model) = test.upload().await;
    for split in ["input", "active", "flat"] {
        let shape = if split == "flat" { vec![3] } else { vec![3, 8, 8] };
        for compression in Compression::ALL {
            // The range of the values is up to 5, so half an int8 step is 0.01.
            for (values, tolerance) in [(Values::F32, 1e-5), (Values::F16, 5e-4), (Values::Int8, 0.01)] {
                let mut request = test.request(split, PHOTOS);
                (request.guest, request.model) = (Some(guest.clone()), Some(model.clone()));
                request.encoding = Encoding { values, compression };
                let rows = all(&test.client, &request, values.rows(shape.clone())).await;
                for (index, photo) in photos.iter().enumerate() {
                    let row = rows[&(index as u32 * 10)].as_deref().unwrap();
                    assert_within(tolerance, row, &expected(photo, split));
                }
            }
        }
    }
    test.wait_until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_split_matches_local_results_over_both_protocols() {
    let test = TestHost::start().await;
    let photos = test.photos(PHOTOS);
    let (guest, model) = test.upload().await;
    for client in [&test.client, &test.http2()] {
        let raw = all(client, &test.request("none", PHOTOS), RowFormat::Object).await;
        let mut request = test.request("none", PHOTOS);
        request.digests = true;
        let digests = all(client, &request, RowFormat::Object).await;
        let mut request = test.request("input", PHOTOS);
        (request.guest, request.model) = (Some(guest.clone()), Some(model.clone()));
        let pixels = all(client, &request, RowFormat::Tensor(Values::F32, vec![3, 8, 8])).await;
        request.encoding = Encoding::U8;
        let bytes = all(client, &request, RowFormat::Tensor(Values::U8, vec![3, 8, 8])).await;
        request.encoding = Encoding::F32;
        request.split = "active".into();
        let active = all(client, &request, RowFormat::Tensor(Values::F32, vec![3, 8, 8])).await;
        request.split = "classes".into();
        let classes = all(client, &request, RowFormat::Tensor(Values::F32, vec![4])).await;
        for (index, photo) in photos.iter().enumerate() {
            let position = index as u32 * 10;
            assert_eq!(raw[&position].as_deref(), Ok(photo.as_ref()));
            let digest = object_digest(photo).to_le_bytes();
            assert_eq!(digests[&position].as_deref(), Ok(&digest[..]));
            assert_eq!(bytes[&position], Ok(crop(photo)));
            assert_close(pixels[&position].as_deref().unwrap(), &expected(photo, "input"));
            assert_close(active[&position].as_deref().unwrap(), &expected(photo, "active"));
            assert_close(
                classes[&position].as_deref().unwrap(),
                &expected(photo, "classes"),
            );
        }
    }
    test.wait_until_idle().await;
    let load = test.load().await;
    assert!(load.samples_per_second > 0.0);
    assert_eq!(load.share, Some(1.0), "no other tenant is active");
    let active = load.stage(&model.sha256, "active").unwrap();
    assert!(active.efficient_batch > 0 && active.seconds_per_row > 0.0);
    assert!(load.grant.is_some_and(|samples| samples > 0));
    assert!(
        load.waited_seconds.is_some(),
        "the wait is reported even if it is zero"
    );
    assert!(load.memory.is_some_and(|memory| memory.held <= memory.budget));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_shows_only_stages_with_own_rows() {
    let test = TestHost::start().await;
    test.photos(2);
    let (guest, model) = test.upload().await;
    let neighbor = test.tenant("neighbor", &[]).await;
    assert_eq!(neighbor.upload().await.1, model, "both tenants have the network");
    let mut request = test.request("classes", 2);
    (request.guest, request.model) = (Some(guest), Some(model.clone()));
    all(&test.client, &request, RowFormat::Tensor(Values::F32, vec![4])).await;
    test.wait_until_idle().await;
    let stage = |load: Load| load.stage(&model.sha256, "classes").is_some();
    assert!(stage(test.load().await));
    assert!(!stage(neighbor.get("/v1/load").await.1));
    all(&neighbor, &request, RowFormat::Tensor(Values::F32, vec![4])).await;
    test.wait_until_idle().await;
    assert!(stage(neighbor.get("/v1/load").await.1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_sample_is_a_row_with_an_error_whatever_the_split() {
    let test = TestHost::start().await;
    test.photos(6);
    test.write("broken.png", b"\x89PNG\r\n\x1a\nand no more");
    let (guest, model) = test.upload().await;
    for (split, format) in [
        ("none", RowFormat::Object),
        ("input", RowFormat::Tensor(Values::F32, vec![3, 8, 8])),
        ("flat", RowFormat::Tensor(Values::F32, vec![3])),
    ] {
        let mut request = test.request(split, 6);
        (request.guest, request.model) = (Some(guest.clone()), Some(model.clone()));
        request.samples.insert(2, sample(7, "broken.png"));
        request.samples.insert(5, sample(8, "absent.png"));
        let rows = all(&test.client, &request, format).await;
        let absent = rows[&8].as_ref().unwrap_err();
        assert_eq!(absent.code, OpErrorCode::NotFound, "{split}: {absent}");
        assert!(absent.message.contains("absent.png"), "{split}: {absent}");
        assert_eq!(rows[&7].is_err(), split != "none", "{split}");
        assert_eq!(
            rows.values().filter(|row| row.is_ok()).count(),
            if split == "none" { 7 } else { 6 }
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_only_errors_ends_cleanly() {
    let test = TestHost::start().await;
    let (guest, model) = test.upload().await;
    let mut request = test.request("flat", 9);
    (request.guest, request.model) = (Some(guest), Some(model));
    let rows = all(&test.client, &request, RowFormat::Tensor(Values::F32, vec![3])).await;
    assert!(rows.values().all(Result::is_err));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_changed_since_it_was_listed_fails() {
    let test = TestHost::start().await;
    test.photos(1);
    let mut request = test.request("none", 1);
    request.samples[0].sample.etag = Some("\"another\"".to_owned());
    let rows = all(&test.client, &request, RowFormat::Object).await;
    assert!(rows[&0].is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_be_right_are_refused_before_anything_runs() {
    let test = TestHost::with(|settings| settings.limits.samples = 20).await;
    test.photos(2);
    let (guest, model) = test.upload().await;
    let good = || {
        let mut request = test.request("flat", 2);
        (request.guest, request.model) = (Some(guest.clone()), Some(model.clone()));
        request
    };
    let changed = |change: &dyn Fn(&mut ExtractionRequest)| {
        let mut request = good();
        change(&mut request);
        request
    };
    type Case<'a> = (&'a dyn Fn(&mut ExtractionRequest), StatusCode, &'a str);
    let cases: [Case<'_>; 17] = [
        (
            &|r| r.samples[1].position = 0,
            StatusCode::BAD_REQUEST,
            "duplicate",
        ),
        (&|r| r.samples.clear(), StatusCode::BAD_REQUEST, "0 samples"),
        (
            &|r| r.digests = true,
            StatusCode::BAD_REQUEST,
            "digests require the split 'none'",
        ),
        (
            &|r| r.root = "s3://me:geheim@photos".to_owned(),
            StatusCode::BAD_REQUEST,
            "data root \"s3://photos\": credentials are not allowed",
        ),
        (
            &|r| r.samples = (0..21).map(|i| sample(i, "x")).collect(),
            StatusCode::BAD_REQUEST,
            "21 samples",
        ),
        (&|r| r.root = "/etc".to_owned(), StatusCode::NOT_FOUND, "/etc"),
        (
            &|r| r.root = "s3://elsewhere".to_owned(),
            StatusCode::NOT_FOUND,
            "s3://elsewhere",
        ),
        (&|r| r.guest = None, StatusCode::BAD_REQUEST, "guest"),
        (
            &|r| r.model = Some(upload_ref("absent", b"")),
            StatusCode::NOT_FOUND,
            "PUT /v1/models/absent",
        ),
        (
            &|r| r.model = Some(upload_ref("tiny", b"")),
            StatusCode::CONFLICT,
            "upload yours again",
        ),
        (&|r| r.split = "absent".into(), StatusCode::BAD_REQUEST, "absent"),
        (&|r| r.encoding = Encoding::U8, StatusCode::BAD_REQUEST, "u8"),
        (
            &|r| (r.split, r.encoding) = ("none".into(), Encoding::F16),
            StatusCode::BAD_REQUEST,
            "f16",
        ),
        (
            &|r| r.terms.fixed_batch = Some(0),
            StatusCode::BAD_REQUEST,
            "1 to 1024",
        ),
        (
            &|r| r.terms.fixed_batch = Some(1025),
            StatusCode::BAD_REQUEST,
            "1 to 1024",
        ),
        (
            &|r| r.parameters = "{\"resize\":".to_owned(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "guest",
        ),
        (
            &|r| r.parameters = "x".repeat(70_000),
            StatusCode::BAD_REQUEST,
            "parameters",
        ),
    ];
    for (change, status, word) in cases {
        let (actual, error) = test.client.extract_refused(&changed(change)).await;
        assert_eq!(actual, status, "{word}: {error}");
        assert!(error.message.contains(word), "{word}: {error}");
        assert_ne!(error.class, ErrorClass::Host, "{error}");
    }
    assert_eq!(test.client.extract(&good()).await.status(), StatusCode::OK);
}
