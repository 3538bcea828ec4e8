//! Temporary store failures and changed objects.

use crate::server::{Answer, Fault, S3Server, Server, whole};
use bytes::Bytes;
use frostline_objects::Fault::{Broken, Busy};
use frostline_objects::Store;
use frostline_objects::{LARGEST_READ, ObjectError};
use frostline_tensor::{OpError, SampleRef};
use futures::StreamExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn photo() -> Bytes {
    (0..200_000u32).map(|byte| byte as u8).collect()
}

/// Opens `root` on a server that answers every request with `answer`, given the path, the query and the host.
async fn store_with(
    root: &str,
    setting: Option<(&str, &str)>,
    answer: impl Fn(&str, &str, &str) -> Answer + Clone + Send + 'static,
) -> (Server, Store) {
    let server = Server::start(move |request: Request<Incoming>| {
        let host = request.headers().get("host").and_then(|host| host.to_str().ok());
        let uri = request.uri();
        let answer = answer(
            uri.path(),
            uri.query().unwrap_or_default(),
            host.unwrap_or_default(),
        );
        async move { Ok(answer) }
    })
    .await;
    let endpoint = format!("http://{}", server.address);
    let settings = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "key"),
    ];
    let settings = settings.into_iter().chain(setting);
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let store = Store::open_with(root, settings).unwrap();
    (server, store)
}

fn with_status(status: u16, body: &str) -> Answer {
    let mut answer = Response::new(whole(body.to_owned()));
    *answer.status_mut() = status.try_into().unwrap();
    answer
}

fn listing(entries: &str) -> Answer {
    with_status(
        200,
        &format!(
            "<ListBucketResult><Name>photos</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        ),
    )
}

fn entry(key: &str, class: &str) -> String {
    format!(
        "<Contents><Key>{key}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>\"1\"</ETag><Size>4</Size>\
         <StorageClass>{class}</StorageClass></Contents>"
    )
}

#[tokio::test]
async fn an_archived_object_is_named_with_the_storage_class_in_the_listing() {
    let (_server, store) = store_with("s3://photos/root", None, |path, query, _| {
        if path == "/photos/root/a.jpg" {
            return with_status(403, "<Error><Code>InvalidObjectState</Code></Error>");
        }
        assert!(query.contains("prefix=root%2Fa.jpg"), "{path} {query}");
        listing(&entry("root/a.jpg", "DEEP_ARCHIVE"))
    })
    .await;
    for error in [
        store.read("a.jpg").await.unwrap_err(),
        store
            .read_range(&SampleRef::new("a.jpg"), 0..2)
            .await
            .unwrap_err(),
    ] {
        let error = OpError::from(error);
        assert!(
            error.message.contains("DEEP_ARCHIVE") && error.message.contains("restore") && !error.host_caused,
            "{error}"
        );
        assert!(!error.message.contains("AWS_"), "{error}");
    }
}

#[tokio::test]
async fn a_compressed_object_is_refused_by_name() {
    let (_server, store) = store_with("s3://photos", None, |path, _, _| {
        let body: &[u8] = match path {
            "/photos/packed.jpg" => &[0x1f, 0x8b, 8, 0],
            _ => b"\xff\xd8 plain",
        };
        let encoding = match path {
            "/photos/chunked.jpg" => "aws-chunked",
            _ => "gzip",
        };
        Response::builder()
            .header("content-encoding", encoding)
            .header("etag", "\"1\"")
            .header("last-modified", "Wed, 01 Jan 2025 00:00:00 GMT")
            .body(whole(Bytes::from_static(body)))
            .unwrap()
    })
    .await;
    let error = store.read("packed.jpg").await.unwrap_err();
    assert!(
        matches!(&error, ObjectError::Compressed { encoding, .. } if encoding == "gzip"),
        "{error}"
    );
    assert!(!OpError::from(error).host_caused);
    // Some tools set the header for files that are not compressed.
    for key in ["mislabeled.jpg", "chunked.jpg"] {
        assert_eq!(store.read(key).await.unwrap(), &b"\xff\xd8 plain"[..], "{key}");
    }
}

#[tokio::test]
async fn a_store_that_requires_the_bucket_in_the_host_name_is_read_with_the_setting() {
    let answer = |path: &str, query: &str, _: &str| match path {
        "/photos" | "/photos/" => with_status(
            403,
            "<Error><Code>SecondLevelDomainForbidden</Code><Message>Please use virtual hosted style to access.</Message></Error>",
        ),
        _ => {
            assert!(path == "/" && query.contains("list-type=2"), "{path} {query}");
            listing(&entry("a.jpg", "STANDARD"))
        }
    };
    let (_server, store) = store_with("s3://photos", None, answer).await;
    let error = store.list(None, 10).await.unwrap_err().to_string();
    assert!(
        error.contains("AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true") && error.contains("https://BUCKET.HOST"),
        "{error}"
    );
    let setting = ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true");
    let (_server, store) = store_with("s3://photos", Some(setting), answer).await;
    let listed = store.list(None, 10).await.unwrap().objects;
    assert_eq!(listed[0].sample.key, "a.jpg");
}

/// Reads an object whose first requests fail with `faults`. Returns the result and the number of requests.
async fn read_with(faults: &[Fault]) -> (Result<Bytes, ObjectError>, usize) {
    let server = S3Server::start().await;
    server.contents.put("root/a.jpg", photo());
    let store = server.open("s3://photos/root");
    server.fail(faults.iter().copied());
    (store.read("a.jpg").await, server.gets())
}

#[tokio::test]
async fn temporary_failures_are_retried() {
    for faults in [
        vec![Fault::SlowDown, Fault::SlowDown],
        vec![Fault::Reset],
        vec![Fault::Truncate],
        vec![Fault::Truncate, Fault::SlowDown, Fault::Truncate],
    ] {
        let (read, gets) = read_with(&faults).await;
        assert!(read.unwrap() == photo(), "{faults:?}");
        // On a slow machine an attempt may be hedged once.
        let attempts = faults.len() + 1;
        assert!((attempts..=2 * attempts).contains(&gets), "{faults:?}: {gets}");
    }
}

#[tokio::test]
async fn a_stall_is_answered_by_a_second_request() {
    for stall in [Fault::Stall, Fault::StallHalfway] {
        let (read, gets) = read_with(&[stall]).await;
        assert!(read.unwrap() == photo(), "{stall:?}");
        assert_eq!(gets, 2, "{stall:?}");
    }
}

#[tokio::test]
async fn lasting_failures_are_errors_and_never_short_reads() {
    let (read, gets) = read_with(&[Fault::SlowDown; 50]).await;
    let error = read.unwrap_err();
    assert!(
        matches!(&error, ObjectError::Store { key, reason, fault: Busy, .. } if key == "a.jpg" && reason.to_string().contains("SlowDown")),
        "{error}"
    );
    assert!(gets <= 10, "{gets} requests for a store that asks to slow down");
    for fault in [Fault::Truncate, Fault::Reset] {
        let (read, _) = read_with(&[fault; 50]).await;
        let error = read.unwrap_err();
        assert!(
            matches!(&error, ObjectError::Store { fault: Broken, .. }),
            "{fault:?}: {error}"
        );
    }
}

#[tokio::test]
async fn parts_are_tried_again_too() {
    let server = S3Server::start().await;
    server.contents.put("a.jpg", photo());
    let store = server.open("s3://photos");
    for faults in [
        vec![Fault::Stall],
        vec![Fault::Truncate, Fault::SlowDown],
        vec![Fault::StallHalfway],
    ] {
        server.fail(faults.clone());
        let part = store
            .read_range(&SampleRef::new("a.jpg"), 1000..151_000)
            .await
            .unwrap();
        assert!(part == photo().slice(1000..151_000), "{faults:?}");
    }
}

#[tokio::test]
async fn many_reads_of_which_some_stall_all_arrive() {
    let server = S3Server::start().await;
    for number in 0..200 {
        server
            .contents
            .put(&format!("{number}.jpg"), format!("photo {number}"));
    }
    let store = server.open("s3://photos");
    // By key, because a second request must not be one of those that stall.
    server.fail_first((0..200).map(|number| {
        let fault = match number % 50 {
            7 => Fault::Stall,
            21 => Fault::Reset,
            33 => Fault::SlowDown,
            _ => Fault::None,
        };
        (format!("{number}.jpg"), fault)
    }));
    let reads = (0..200).map(|number| {
        let store = store.clone();
        async move {
            let read = store.read(&format!("{number}.jpg")).await.unwrap();
            assert_eq!(read, format!("photo {number}"));
        }
    });
    // If all were read at once on a busy machine, slow reads without a fault would use up the hedged requests
    // that the stalled reads need.
    let mut reads = futures::stream::iter(reads).buffer_unordered(8);
    while reads.next().await.is_some() {}
}

#[tokio::test]
async fn an_object_replaced_or_removed_since_it_was_listed_is_named() {
    let server = S3Server::start().await;
    for key in ["root/a.jpg", "root/b.jpg"] {
        server.contents.put(key, key);
    }
    let store = server.open("s3://photos/root");
    let listed = store.list(None, 10).await.unwrap().objects;
    server.contents.put("root/a.jpg", "another");
    server.contents.remove("root/b.jpg");
    let [a, b] = listed.as_slice() else {
        panic!("{listed:?}")
    };
    let error = store.read_sample(&a.sample, LARGEST_READ).await.unwrap_err();
    assert!(
        matches!(&error, ObjectError::Changed { key, .. } if key == "a.jpg"),
        "{error:?}"
    );
    let error = store.read_sample(&b.sample, LARGEST_READ).await.unwrap_err();
    assert!(
        matches!(&error, ObjectError::NotFound { key, .. } if key == "b.jpg"),
        "{error:?}"
    );
}

#[tokio::test]
async fn wrong_credentials_and_missing_buckets_are_told_apart() {
    let server = S3Server::start().await;
    server.contents.put("a.jpg", "a");
    let wrong = server.open_as("s3://photos", "id", "geheim");
    for error in [
        wrong.read("a.jpg").await.map(drop).unwrap_err(),
        wrong.list(None, 10).await.map(drop).unwrap_err(),
        wrong.put("a.jpg", Bytes::new()).await.unwrap_err(),
        wrong.size(&SampleRef::new("a.jpg")).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(&error, ObjectError::Denied { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("AWS_ACCESS_KEY_ID") && !text.contains("geheim"),
            "{text}"
        );
    }
    let nowhere = server.open("s3://nowhere/root");
    for error in [
        nowhere.list(None, 10).await.map(drop).unwrap_err(),
        nowhere.read("a.jpg").await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(&error, ObjectError::NoSuchRoot { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_the_objects_fault_only_if_the_root_can_be_listed() {
    let server = S3Server::start().await;
    server.contents.put("a.jpg", "photo");
    let store = server.open("s3://photos");
    server.fail([Fault::Denied]);
    assert_eq!(
        store.read("a.jpg").await.unwrap(),
        "photo",
        "the refusal was temporary"
    );
    server.fail([Fault::Denied; 2]);
    let of_object = OpError::from(store.read("a.jpg").await.unwrap_err());
    assert!(!of_object.host_caused, "{of_object}");
    server.fail_all(Fault::Denied);
    let error = store.read("a.jpg").await.unwrap_err();
    assert!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
    let lent = store.lend(|_, error| assert!(error.to_string().contains("AWS_ACCESS_KEY_ID")));
    for error in [
        lent.read("a.jpg").await.unwrap_err(),
        lent.read_range(&SampleRef::new("a.jpg"), 0..2).await.unwrap_err(),
        lent.list(None, 1).await.unwrap_err(),
    ] {
        let of_root = OpError::from(error);
        assert!(of_root.host_caused, "{of_root}");
        assert!(
            of_root.message.contains("AccessDenied") && !of_root.message.contains("AWS_"),
            "errors for a lent root must not mention settings: {of_root}"
        );
    }
    let gone = server.open("s3://nowhere").read("a.jpg").await.unwrap_err();
    assert!(OpError::from(gone).host_caused);
}

#[tokio::test]
async fn who_watches_a_root_is_told_how_it_fails() {
    let server = S3Server::start().await;
    let told: Arc<Mutex<Vec<&str>>> = Arc::default();
    let seen = Arc::clone(&told);
    let watched = |root: &str| {
        let seen = Arc::clone(&seen);
        server
            .open(root)
            .on_fault(move |fault, _| seen.lock().unwrap().push(fault.as_str()))
    };
    let store = watched("s3://photos");
    let deadline = Duration::from_secs(60);
    store.probe(deadline).await.unwrap();
    assert!(store.read("no.jpg").await.unwrap_err().is_not_found());
    assert!(
        told.lock().unwrap().is_empty(),
        "a missing object is not a failure"
    );
    for fault in [Fault::SlowDown, Fault::Denied, Fault::Reset, Fault::Truncate] {
        server.fail_all(fault);
        store.probe(deadline).await.unwrap_err();
    }
    server.fail_all(Fault::Stall);
    store.probe(Duration::from_millis(10)).await.unwrap_err();
    server.fail_all(Fault::None);
    watched("s3://nowhere")
        .below("set")
        .unwrap()
        .probe(deadline)
        .await
        .unwrap_err();
    store.probe(deadline).await.unwrap();
    drop(seen);
    let gone = store.clone();
    drop(server);
    gone.probe(deadline).await.unwrap_err();
    let told = told.lock().unwrap();
    assert_eq!(
        *told,
        [
            "busy",
            "denied",
            "broken",
            "broken",
            "timeout",
            "no_bucket",
            "unreachable"
        ]
    );
}
