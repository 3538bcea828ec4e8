//! A store that fails for a while, or says something else than before.

use crate::server::{Fault, S3Server};
use bytes::Bytes;
use frostline_objects::{LARGEST_READ, ObjectError};

fn photo() -> Bytes {
    (0..200_000u32).map(|byte| byte as u8).collect()
}

/// A read whose first requests fail as told, and how many requests it took.
async fn read_with(faults: &[Fault]) -> (Result<Bytes, ObjectError>, usize) {
    let server = S3Server::start().await;
    server.contents.put("root/a.jpg", photo());
    let store = server.open("s3://photos/root");
    server.fail(faults.iter().copied());
    (store.read("a.jpg").await, server.gets())
}

#[tokio::test]
async fn what_passes_is_tried_again() {
    for faults in [
        vec![Fault::SlowDown, Fault::SlowDown],
        vec![Fault::Reset],
        vec![Fault::Truncate],
        vec![Fault::Truncate, Fault::SlowDown, Fault::Truncate],
    ] {
        let (read, gets) = read_with(&faults).await;
        assert!(read.unwrap() == photo(), "{faults:?}");
        // On a slow machine an attempt may be hedged, once.
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
async fn what_does_not_pass_is_told_and_never_short() {
    let (read, gets) = read_with(&[Fault::SlowDown; 50]).await;
    let error = read.unwrap_err();
    assert!(
        matches!(&error, ObjectError::Store { key, reason, passing: true, .. } if key == "a.jpg" && reason.to_string().contains("SlowDown")),
        "{error}"
    );
    assert!(gets <= 10, "{gets} requests for a store that asks to slow down");
    for fault in [Fault::Truncate, Fault::Reset] {
        let (read, _) = read_with(&[fault; 50]).await;
        let error = read.unwrap_err();
        assert!(
            matches!(&error, ObjectError::Store { passing: true, .. }),
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
        let part = store.read_range("a.jpg", 1000..151_000).await.unwrap();
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
    server.fail((0..200).map(|number| match number % 50 {
        7 => Fault::Stall,
        21 => Fault::Reset,
        33 => Fault::SlowDown,
        _ => Fault::None,
    }));
    let reads = (0..200).map(|number| {
        let store = store.clone();
        async move {
            let read = store.read(&format!("{number}.jpg")).await.unwrap();
            assert_eq!(read, format!("photo {number}"));
        }
    });
    futures::future::join_all(reads).await;
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
        wrong.size("a.jpg").await.map(drop).unwrap_err(),
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
