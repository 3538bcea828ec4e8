//! Concurrent changes of documents by multiple hosts.

use super::{Things, files, local};
use crate::{StateError, log};
use frostline_fake_store::{Fault, S3, creates_change};
use futures::future::join_all;

#[tokio::test]
async fn no_update_is_lost_between_two_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = [Things::at(folder.path()).await, Things::at(folder.path()).await];
    for sum in join_all((0..20).map(|index| hosts[index % 2].add_one("sum"))).await {
        sum.unwrap();
    }
    for host in &hosts {
        host.journal.catch_up().await.unwrap();
        assert_eq!(host.get("sum"), Some(20));
    }
    assert_eq!(Things::at(folder.path()).await.get("sum"), Some(20));
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let host = Things::at(folder.path()).await;
    host.set("a", 1).await.unwrap();
    let refuse = |_: Option<&u32>| {
        Err::<Option<u32>, _>(StateError::TooMany {
            kind: "things",
            limit: 1,
        })
    };
    assert!(host.documents.update("a", refuse).await.is_err());
    assert_eq!(host.get("a"), Some(1));
    assert_eq!(files(&folder.path().join("log")), 1);
}

#[tokio::test]
async fn deleted_is_gone_everywhere_and_may_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let one = Things::at(folder.path()).await;
    let two = Things::at(folder.path()).await;
    one.set("acme/a", 1).await.unwrap();
    assert_eq!(two.set("acme/a", None).await.unwrap(), None);
    one.journal.catch_up().await.unwrap();
    assert_eq!(one.get("acme/a"), None);
    assert_eq!(Things::at(folder.path()).await.get("acme/a"), None);
    one.set("acme/a", 2).await.unwrap();
    two.journal.catch_up().await.unwrap();
    assert_eq!(two.get("acme/a"), Some(2));
}

#[tokio::test]
async fn names_below_a_prefix_are_listed_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let host = Things::at(folder.path()).await;
    for name in ["acme/a", "acme/b", "acme2/a", "b/acme"] {
        host.set(name, 1).await.unwrap();
    }
    let names = |prefix: &str| -> Vec<String> {
        let listed = host.documents.list(prefix).into_iter();
        listed.map(|(name, _)| name).collect()
    };
    assert_eq!(names("acme/"), ["acme/a", "acme/b"]);
    assert_eq!(names("").len(), 4);
}

#[tokio::test]
async fn a_change_that_is_no_json_is_named() {
    let folder = tempfile::tempdir().unwrap();
    Things::at(folder.path()).await.set("a", 1).await.unwrap();
    let key = log::key(2);
    std::fs::write(folder.path().join(&key), "{").unwrap();
    let error = Things::open(local(folder.path())).await.map(drop).unwrap_err();
    assert!(error.to_string().contains(&key), "{error}");
    // A change without any field is ignored.
    std::fs::write(folder.path().join(&key), "{}").unwrap();
    let host = Things::at(folder.path()).await;
    host.set("b", 2).await.unwrap();
    assert_eq!((host.get("a"), host.get("b")), (Some(1), Some(2)));
}

#[tokio::test]
async fn what_stays_equal_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let host = Things::at(folder.path()).await;
    for _ in 0..2 {
        assert_eq!(host.set("a", 1).await.unwrap().as_deref(), Some(&1));
    }
    assert_eq!(files(&folder.path().join("log")), 1);
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_made_once() {
    for fault in [Fault::LoseAnswer, Fault::DoneAnd503, Fault::Break] {
        let server = S3::start().await;
        let host = Things::open(server.store()).await.unwrap();
        server.once(fault, creates_change);
        assert_eq!(
            host.add_one("sum").await.unwrap().as_deref(),
            Some(&1),
            "{fault:?}"
        );
        assert_eq!(
            host.add_one("sum").await.unwrap().as_deref(),
            Some(&2),
            "{fault:?}"
        );
        let late = Things::open(server.store()).await.unwrap();
        assert_eq!(late.get("sum"), Some(2), "{fault:?}");
        assert_eq!(server.keys("log/").len(), 2, "{fault:?}");
    }
}

#[tokio::test]
async fn removing_a_missing_document_does_not_wait_for_the_append_lock() {
    let folder = tempfile::tempdir().unwrap();
    let things = Things::at(folder.path()).await;
    let other = Things::at(folder.path()).await;
    let adding = things.journal.adding("things", "b").await.unwrap();
    // If this needed the lock, it would fail with [`StateError::Contended`].
    assert_eq!(things.set("a", None).await.unwrap(), None);
    drop(adding);
    other.set("a", 1).await.unwrap();
    things.set("a", None).await.unwrap();
    other.journal.catch_up().await.unwrap();
    assert_eq!(
        other.get("a"),
        None,
        "should delete the document added by the other host"
    );
}
