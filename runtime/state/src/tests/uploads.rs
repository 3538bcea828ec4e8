//! Uploads and their versions if requests to the store fail.

use super::{LIMITS, content, files, has, hash, host, local, put, uncharged};
use crate::{FindResult, SharedState, StateError, UploadLimits};
use frostline_fake_store::{Fault, S3, creates_change};
use futures::FutureExt;
use http::Method;
use std::sync::Arc;

#[tokio::test]
async fn a_version_keeps_its_bytes_whatever_the_store_answers() {
    let server = S3::start().await;
    let one = host(server.store()).await;
    // All requests after the change fail, so the outcome is unknown to the host.
    let done = std::sync::atomic::AtomicBool::new(false);
    server.script(move |asked| {
        use std::sync::atomic::Ordering::Relaxed;
        match (creates_change(asked), done.load(Relaxed)) {
            (true, false) => {
                done.store(true, Relaxed);
                Fault::LoseAnswer
            }
            (_, true) if asked.1.starts_with("log/") => Fault::Break,
            _ => Fault::None,
        }
    });
    let error = put(&one, "a", "bytes").await.unwrap_err();
    assert!(matches!(error, StateError::OutcomeUnknown { .. }), "{error}");
    server.heal();
    let two = host(server.store()).await;
    for host in [&one, &two] {
        host.journal.catch_up().await.unwrap();
        let FindResult::Version(version) = host.guests.owned_by("acme").find("a", None) else {
            panic!("it was made")
        };
        assert_eq!(host.guests.read(&version).await.unwrap(), "bytes");
    }
    assert!(!put(&one, "a", "bytes").await.unwrap(), "it is there");
}

#[tokio::test]
async fn bytes_whose_version_was_surely_not_made_go() {
    let server = S3::start().await;
    let one = host(server.store()).await;
    server.once(Fault::Break, creates_change);
    assert!(
        put(&one, "a", "bytes").await.unwrap(),
        "should retry after a single failure"
    );
    server.script(
        |(method, key)| match *method == Method::GET && key.starts_with("log/") {
            true => Fault::Break,
            false => Fault::None,
        },
    );
    let error = put(&one, "b", "others").await.unwrap_err();
    assert!(matches!(error, StateError::Store(_)), "{error}");
    server.heal();
    assert_eq!(server.keys("blobs/").len(), 1);
}

#[tokio::test]
async fn bytes_whose_answer_was_lost_are_there() {
    let server = S3::start().await;
    let one = host(server.store()).await;
    server.once(Fault::DoneAnd503, |(method, key)| {
        method == Method::PUT && key.starts_with("blobs/")
    });
    assert!(put(&one, "a", "bytes").await.unwrap());
    assert_eq!(one.guests.bytes_of(&hash("bytes")).await.unwrap(), "bytes");
}

#[tokio::test]
async fn damaged_and_lost_bytes_are_told_and_can_be_uploaded_again() {
    let server = S3::start().await;
    let one = host(server.store()).await;
    assert!(put(&one, "a", "bytes").await.unwrap());
    let key = server.keys("blobs/").remove(0);
    server.put(&key, "bites");
    let error = one.guests.bytes_of(&hash("bytes")).await.unwrap_err();
    assert!(
        matches!(&error, StateError::Damaged { found, .. } if *found == hash("bites")),
        "{error}"
    );
    assert!(put(&one, "a", "bytes").await.unwrap(), "not 'already there'");
    assert_eq!(one.guests.bytes_of(&hash("bytes")).await.unwrap(), "bytes");
    let keys = server.keys("blobs/");
    assert!(keys.len() == 1 && keys[0] != key, "{keys:?}");
    server.store().delete(&keys[0]).await.unwrap();
    assert!(put(&one, "a", "bytes").await.unwrap());
    assert_eq!(one.guests.bytes_of(&hash("bytes")).await.unwrap(), "bytes");
}

#[tokio::test]
async fn one_tenants_deletion_takes_nothing_from_another() {
    let server = S3::start().await;
    let one = host(server.store()).await;
    let two = host(server.store()).await;
    for tenant in ["acme", "beta"] {
        let of = one.guests.owned_by(tenant);
        of.put("a", content("same"), |_| Ok(())).await.unwrap();
    }
    two.journal.catch_up().await.unwrap();
    // The other host has not read the deletion yet.
    assert!(one.guests.owned_by("acme").delete("a").await.unwrap());
    assert_eq!(two.guests.bytes_of(&hash("same")).await.unwrap(), "same");
    let found = two.guests.owned_by("acme").find("a", None);
    let FindResult::Version(version) = found else {
        panic!("{found:?}")
    };
    let error = two.guests.read(&version).await.unwrap_err();
    assert!(
        matches!(error, StateError::Gone { .. }) && !error.to_string().contains("blobs"),
        "{error}"
    );
}

#[tokio::test]
async fn a_host_sees_what_another_uploads_and_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let one = host(local(folder.path())).await;
    let two = host(local(folder.path())).await;
    put(&one, "a", "bytes").await.unwrap();
    two.journal.catch_up().await.unwrap();
    assert!(has(&two, "a"));
    assert_eq!(two.guests.bytes_of(&hash("bytes")).await.unwrap(), "bytes");
    assert!(two.guests.owned_by("acme").disable("a", true).await.unwrap());
    one.journal.catch_up().await.unwrap();
    assert!(one.guests.owned_by("acme").disabled("a"));
    assert!(two.guests.owned_by("acme").delete("a").await.unwrap());
    one.journal.catch_up().await.unwrap();
    assert!(!has(&one, "a"));
}

#[tokio::test]
async fn hosts_that_did_not_hear_of_each_other_keep_to_one_quota_together() {
    let folder = tempfile::tempdir().unwrap();
    let one = host(local(folder.path())).await;
    let two = host(local(folder.path())).await;
    let put = async |host: &SharedState<()>, name: &str, bytes: &'static str| {
        let fits = |more| match host.guests.owned_by("acme").bytes() + more {
            wanted @ 6.. => Err(StateError::Full {
                tenant: "acme".to_owned(),
                requested: wanted,
                limit: 5,
            }),
            _ => Ok(()),
        };
        host.guests.owned_by("acme").put(name, content(bytes), fits).await
    };
    put(&one, "a", "four").await.unwrap();
    assert!(!has(&two, "a"), "should not know the upload yet");
    let refused = put(&two, "b", "more").await.unwrap_err();
    assert!(
        matches!(refused, StateError::Full { requested: 8, .. }),
        "{refused}"
    );
    put(&two, "b", "1").await.unwrap();
    one.journal.catch_up().await.unwrap();
    assert_eq!(one.guests.owned_by("acme").bytes(), 5);
    let blobs = folder.path().join("blobs/guests/acme");
    assert_eq!(files(&blobs), 2, "should not store refused uploads");
}

#[tokio::test]
async fn bytes_that_two_hosts_store_are_one_version_and_push_out_no_other() {
    let server = S3::start().await;
    let one = host(server.store()).await;
    let two = host(server.store()).await;
    for bytes in ["good", "same"] {
        put(&one, "a", bytes).await.unwrap();
        assert!(
            !put(&two, "a", bytes).await.unwrap(),
            "should find the other host's upload"
        );
    }
    // The first host adds this version while the second host is uploading the same bytes.
    let first = Arc::new(parking_lot::Mutex::new(Some(one)));
    server.script_waiting(move |(method, key)| {
        let first = Arc::clone(&first);
        let writes = *method == Method::PUT && key.starts_with("blobs/");
        async move {
            let one = if writes { first.lock().take() } else { None };
            if let Some(one) = one {
                put(&one, "a", "third").await.unwrap();
            }
            Fault::None
        }
        .boxed()
    });
    let guests = two.guests.owned_by("acme");
    let put = guests.put("a", content("third"), |_| Ok(()));
    let (third, _) = put.await.unwrap();
    assert_eq!(two.guests.read(&third).await.unwrap(), "third");
    let versions = guests.names().remove(0).versions;
    let hashes: Vec<&str> = versions.iter().map(|version| &*version.sha256).collect();
    assert_eq!(hashes, [hash("good"), hash("same"), hash("third")]);
    assert_eq!(guests.bytes(), 4 + 4 + 5);
    assert_eq!(server.keys("blobs/").len(), 3);
}

#[tokio::test]
async fn an_older_version_that_is_stored_again_becomes_the_newest() {
    let server = S3::start().await;
    let one = host(server.store()).await;
    for bytes in ["good", "bad"] {
        put(&one, "a", bytes).await.unwrap();
    }
    let guests = one.guests.owned_by("acme");
    let full = |_| {
        Err(StateError::TooMany {
            kind: "bytes",
            limit: 0,
        })
    };
    let put = guests.put("a", content("good"), full).await;
    assert!(put.is_ok(), "should not need additional space");
    let versions = guests.names().remove(0).versions;
    let hashes: Vec<&str> = versions.iter().map(|version| &*version.sha256).collect();
    assert_eq!(hashes, [hash("bad"), hash("good")]);
    assert_eq!(server.keys("blobs/").len(), 2);
}

#[tokio::test]
async fn hosts_that_did_not_hear_of_each_other_keep_no_more_names_than_they_may() {
    let folder = tempfile::tempdir().unwrap();
    let limits = UploadLimits { names: 1, ..LIMITS };
    let open = || SharedState::<()>::open(local(folder.path()), limits, uncharged);
    let one = open().await.unwrap();
    let two = open().await.unwrap();
    put(&one, "a", "one").await.unwrap();
    let refused = put(&two, "b", "two").await.unwrap_err();
    assert!(
        matches!(refused, StateError::TooMany { limit: 1, .. }),
        "{refused}"
    );
}
