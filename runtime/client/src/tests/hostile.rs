//! Malicious hosts: the client reads a limited amount of data and reports the problem.

use crate::{ClientError, Deadlines, HostClient, Hosts, Trust};
use bytes::Bytes;
use frostline_fake_host::{FakeHost, Reply};
use frostline_tensor::{DType, PixelSpec};
use frostline_wire::{
    Activation, CutInfo, Description, DescriptionRequest, ErrorBody, ErrorClass, GuestLine, GuestLog, Layout,
    ModelInfo, ObjectInfo, ObjectPage, Pixels, SampleRef, ServedCut, SkippedNames, TensorInfo, UploadRef,
};
use futures::{StreamExt, stream};
use std::time::Duration;

/// Maximum number of bytes that any test may read from a host.
const MUCH: u64 = 64 << 20;

fn client(host: &FakeHost) -> HostClient {
    HostClient::with(&host.url, None, &Trust::default(), Deadlines::default()).unwrap()
}

/// Starts a host that answers the n-th request with `page(n)`.
async fn listing_host(page: impl Fn(usize) -> ObjectPage + Send + Sync + 'static) -> FakeHost {
    FakeHost::start(move |number, _, _| Reply::json(&page(number))).await
}

/// Returns the error of a listing. All listing methods must fail.
async fn refused(host: &FakeHost) -> String {
    let packed = client(host).listing("data", Layout::Auto).await.unwrap_err();
    let hosts = Hosts::from(client(host));
    let of_several = hosts.listing("data", Layout::Auto).await.unwrap_err();
    let unpacked = client(host).objects("data", Layout::Auto).await.unwrap_err();
    for error in [&packed, &of_several, &unpacked] {
        assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
    }
    assert!(host.sent() < MUCH, "{} bytes", host.sent());
    packed.to_string()
}

fn object(key: String) -> ObjectInfo {
    ObjectInfo {
        sample: SampleRef::new(key),
        size: 1,
        label: None,
        changed: None,
    }
}

#[tokio::test]
async fn pages_without_objects_end() {
    let host = listing_host(|number| ObjectPage {
        next: Some(format!("{number:09}")),
        ..ObjectPage::default()
    })
    .await;
    let why = refused(&host).await;
    assert!(why.contains("empty pages"), "{why}");
    assert!(host.calls() < 1000, "{}", host.calls());
}

#[tokio::test]
async fn texts_of_megabytes_are_refused() {
    let long = || "k".repeat(4 << 20);
    let keys = listing_host(move |number| ObjectPage {
        objects: vec![object(format!("{number:09}{}", long()))],
        next: Some(format!("{number:09}")),
        ..ObjectPage::default()
    });
    let versions = listing_host(move |number| ObjectPage {
        objects: vec![ObjectInfo {
            sample: SampleRef {
                key: format!("{number:09}"),
                etag: Some(long()),
            },
            size: 1,
            label: None,
            changed: None,
        }],
        next: Some(format!("{number:09}")),
        ..ObjectPage::default()
    });
    let classes = listing_host(move |number| ObjectPage {
        objects: vec![ObjectInfo {
            label: Some(long()),
            ..object(format!("{number:09}"))
        }],
        next: Some(format!("{number:09}")),
        ..ObjectPage::default()
    });
    let names = listing_host(move |number| ObjectPage {
        objects: vec![object(format!("{number:09}"))],
        next: Some(format!("{number:09}")),
        left_out: SkippedNames {
            count: u64::MAX,
            names: vec![long()],
            ..SkippedNames::default()
        },
    });
    let next = listing_host(move |number| ObjectPage {
        objects: vec![object(format!("{number:09}"))],
        next: Some(format!("{number:09}{}", long())),
        ..ObjectPage::default()
    });
    let hosts = tokio::join!(keys, versions, classes, names, next);
    for host in [hosts.0, hosts.1, hosts.2, hosts.3, hosts.4] {
        let why = refused(&host).await;
        assert!(why.contains("a text longer than"), "{why}");
        assert!(why.len() < 1000, "{} bytes", why.len());
    }
}

#[tokio::test]
async fn what_was_left_out_may_be_counted_without_end() {
    let host = listing_host(|number| ObjectPage {
        objects: vec![object(format!("{number:09}"))],
        next: (number < 3).then(|| format!("{number:09}")),
        left_out: SkippedNames {
            count: u64::MAX,
            names: vec!["a".to_owned()],
            ..SkippedNames::default()
        },
    })
    .await;
    let listing = client(&host).listing("data", Layout::Auto).await.unwrap();
    assert_eq!((listing.len(), listing.no_keys.count), (4, u64::MAX));
}

#[tokio::test]
async fn a_log_ends() {
    let line = |number: u64, text: String| GuestLine {
        number,
        at: 0.0,
        level: "info".to_owned(),
        extraction: "1".to_owned(),
        text,
    };
    let host = FakeHost::start(move |number, parts, _| {
        let number = number as u64 + 1;
        let lines = match parts.uri.path() {
            "/v1/guests/empty/log" => vec![],
            "/v1/guests/endless/log" => vec![line(number, "a".to_owned())],
            "/v1/guests/many/log" => (0..70_000).map(|at| line(at, "a".to_owned())).collect(),
            "/v1/guests/large/log" => (0..2000).map(|at| line(at, "a".repeat(4000))).collect(),
            _ => vec![line(number, "a".repeat(4 << 20))],
        };
        Reply::json(&GuestLog {
            lines,
            next: number,
            more: true,
            dropped: false,
        })
    })
    .await;
    for (guest, words) in [
        ("empty", "more than 64 pages"),
        ("endless", "more than 64 pages"),
        ("many", "more than 64000 items"),
        ("large", "more than 16777216 bytes"),
        ("long", "a text longer than"),
    ] {
        let error = client(&host).guest_log(guest, 0).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(host.sent() < MUCH, "{} bytes", host.sent());
}

/// An endless body.
fn endless() -> Reply {
    Reply::Stream(stream::repeat(Bytes::from_static(&[b' '; 4096])).boxed())
}

#[tokio::test]
async fn bodies_without_an_end_are_read_only_so_far() {
    let host = FakeHost::start(|_, _, _| endless()).await;
    for error in [
        client(&host).load().await.unwrap_err(),
        client(&host).models().await.unwrap_err(),
        client(&host).probe().await.unwrap_err(),
        client(&host).first_objects("data", 1).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("an answer larger than"), "{error}");
    }
    // Bytes in flight when the client closes the connection make the count inexact.
    assert!(host.sent() < 2 * MUCH, "{} bytes", host.sent());
}

#[tokio::test]
async fn an_answer_that_trickles_ends_at_its_deadline() {
    let host = FakeHost::start(|_, _, _| {
        let pieces = stream::repeat(Bytes::from_static(b" ")).then(|piece| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            piece
        });
        Reply::Stream(pieces.boxed())
    })
    .await;
    let deadlines = Deadlines {
        answer: Duration::from_millis(500),
        ..Deadlines::default()
    };
    let client = HostClient::with(&host.url, None, &Trust::default(), deadlines).unwrap();
    let error = client.load().await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted { .. }), "{error}");
}

#[tokio::test]
async fn a_refusal_is_repeated_only_so_far() {
    let host = FakeHost::start(|_, _, _| {
        Reply::Answered(
            400,
            serde_json::to_vec(&ErrorBody {
                class: ErrorClass::Request,
                message: "no ".repeat(20_000),
            })
            .unwrap()
            .into(),
        )
    })
    .await;
    let error = client(&host).guests().await.unwrap_err();
    assert_eq!(error.class(), Some(ErrorClass::Request));
    assert!(
        error.to_string().len() < 5000,
        "{} bytes",
        error.to_string().len()
    );
}

#[tokio::test]
async fn rows_that_no_machine_holds_are_refused() {
    let cut = |shape: Vec<usize>| ServedCut {
        name: "last".to_owned(),
        activation: Activation::Custom(vec![TensorInfo {
            name: "last".to_owned(),
            dtype: DType::F32,
            shape,
        }]),
    };
    let crop = PixelSpec {
        crop_height: u32::MAX,
        ..PixelSpec::imagenet(224, 224)
    };
    let described = [
        (Pixels::Own, vec![cut(vec![1 << 40])]),
        (Pixels::Own, vec![cut(vec![usize::MAX, 2])]),
        (Pixels::Spec(crop), vec![]),
    ];
    let host = FakeHost::start(move |number, parts, _| {
        if parts.uri.path().starts_with("/v1/models") {
            return Reply::json(&ModelInfo {
                name: "m".to_owned(),
                sha256: String::new(),
                bytes: 1,
                uploaded_at: 0,
                input: "x".to_owned(),
                input_shape: vec![1],
                joined_inputs: Vec::new(),
                cuts: vec![CutInfo {
                    name: "last".to_owned(),
                    shape: vec![1 << 20, 1 << 20],
                    bytes_per_sample: 1,
                    compute_share: 1.0,
                    tensors: Vec::new(),
                }],
                shared: false,
            });
        }
        let (pixels, cuts) = described[number].clone();
        Reply::json(&Description {
            name: "g".to_owned(),
            version: "1".to_owned(),
            pixels,
            cuts,
            media_types: Vec::new(),
            max_samples: None,
        })
    })
    .await;
    let pin = || UploadRef {
        name: "a".to_owned(),
        sha256: String::new(),
    };
    let request = DescriptionRequest {
        guest: pin(),
        model: pin(),
        parameters: String::new(),
    };
    for _ in 0..3 {
        let error = client(&host).describe(&request).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
    }
    let error = client(&host).model("m").await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
}
