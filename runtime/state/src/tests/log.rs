//! Long logs and outdated hosts.

use super::{Things, content, hash, host, local};
use crate::documents::{Documents, Replica};
use crate::journal::{DocumentKind, Journal};
use crate::log;
use crate::record::FORMAT;
use crate::snapshot::Document;
use crate::{ActivationMemory, CheckedUpload, ModelFacts, SHARED, SharedState, StateError, Unknown};
use frostline_fake_store::{Asked, Fault, S3};
use futures::FutureExt;
use http::Method;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Barrier;

/// Requests since the last call, without repetitions: on a busy machine, some reads are hedged.
fn different_requests(server: &S3) -> HashSet<Asked> {
    server.take_requests().into_iter().collect()
}

#[tokio::test]
async fn deleted_documents_leave_no_objects() {
    let server = S3::start().await;
    let host = Things::open(server.store()).await.unwrap();
    host.set("stays", 1).await.unwrap();
    for round in 0..600 {
        let name = format!("{round}");
        host.set(&name, 1).await.unwrap();
        host.set(&name, None).await.unwrap();
    }
    host.journal.compact().await.unwrap();
    host.journal.compact().await.unwrap();
    assert_eq!(
        server.keys("snapshots/").len(),
        2 + 1,
        "expected 2 lists of parts and 1 part"
    );
    assert_eq!(server.keys("log/").len(), 1000, "changes to keep for other hosts");
    server.take_requests();
    let late = Things::open(server.store()).await.unwrap();
    assert_eq!((late.documents.list("").len(), late.get("stays")), (1, Some(1)));
    assert_eq!(
        different_requests(&server).len(),
        4,
        "expected to request a listing, the snapshot, the part and a missing change"
    );
}

#[tokio::test]
async fn many_changes_are_read_at_once() {
    let server = S3::start().await;
    let one = Things::open(server.store()).await.unwrap();
    let two = Things::open(server.store()).await.unwrap();
    for round in 0..100 {
        one.set("a", round).await.unwrap();
    }
    // These requests are only answered when all of them have arrived.
    let together = Arc::new(Barrier::new(32));
    let waits: Vec<String> = (32..64).map(log::key).collect();
    server.script_waiting(move |(method, key): &Asked| {
        let waits = *method == Method::GET && waits.contains(key);
        let together = Arc::clone(&together);
        async move {
            if waits {
                together.wait().await;
            }
            Fault::None
        }
        .boxed()
    });
    server.take_requests();
    two.journal.catch_up().await.unwrap();
    assert_eq!(two.get("a"), Some(99));
    assert!(
        server.take_requests().len() <= 127,
        "expected less than twice the number of changes"
    );
}

#[tokio::test]
async fn a_host_that_stood_still_resurrects_nothing_and_loses_nothing() {
    let server = S3::start().await;
    let one = Things::open(server.store()).await.unwrap();
    let late = Things::open(server.store()).await.unwrap();
    one.set("a", 1).await.unwrap();
    late.journal.catch_up().await.unwrap();
    one.set("a", None).await.unwrap();
    for round in 0..1100 {
        one.set("b", round).await.unwrap();
    }
    for _ in 0..2 {
        one.set("b", 0).await.unwrap();
        one.journal.snapshot().await.unwrap();
    }
    assert!(
        !server.keys("log/").contains(&log::key(2)),
        "the deletion should be compacted"
    );
    // The host creates the next change at the position of the deletion.
    assert_eq!(late.get("a"), Some(1));
    assert_eq!(
        *late.add_one("a").await.unwrap().unwrap(),
        1,
        "should start from a missing document"
    );
    assert!(!server.keys("log/").contains(&log::key(2)));
    one.journal.catch_up().await.unwrap();
    for host in [&one, &late, &Things::open(server.store()).await.unwrap()] {
        assert_eq!((host.get("a"), host.get("b")), (Some(1), Some(0)));
    }
}

#[tokio::test]
async fn a_host_that_is_far_behind_learns_what_was_revoked() {
    let server = S3::start().await;
    let one = Things::open(server.store()).await.unwrap();
    let late = Things::open(server.store()).await.unwrap();
    one.set("token", 1).await.unwrap();
    late.journal.catch_up().await.unwrap();
    one.set("token", None).await.unwrap();
    for round in 0..1100 {
        one.set("b", round).await.unwrap();
    }
    one.journal.snapshot().await.unwrap();
    late.journal.catch_up().await.unwrap();
    assert_eq!(late.get("token"), Some(1), "cannot read the next change");
    late.journal.review().await.unwrap();
    assert_eq!((late.get("token"), late.get("b")), (None, Some(1099)));
}

/// Uploads a model of `owner` with metadata of 3 MB, which the log contains once more for each version.
async fn put_large(host: &SharedState<()>, owner: &str, bytes: &'static str) -> Result<(), StateError> {
    let CheckedUpload { sha256, bytes, .. } = content(bytes);
    let facts = ModelFacts {
        input: "x".repeat(3 << 20),
        input_shape: Vec::new(),
        joined_inputs: Vec::new(),
        cuts: Vec::new(),
        alive: ActivationMemory::default(),
        unknown: Unknown::new(),
    };
    let upload = CheckedUpload { sha256, bytes, facts };
    host.models
        .owned_by(owner)
        .put("a", upload, |_| Ok(()))
        .await
        .map(drop)
}

#[tokio::test]
async fn a_tenant_appends_to_the_log_only_so_much_until_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(local(folder.path())).await;
    for bytes in ["one", "two", "three"] {
        put_large(&host, "acme", bytes).await.unwrap();
    }
    let full = |error| matches!(error, StateError::LogFull { .. });
    // Neither new bytes, nor bytes that are stored already, nor a removal.
    for bytes in ["four", "one"] {
        assert!(full(put_large(&host, "acme", bytes).await.unwrap_err()));
    }
    assert!(full(
        host.models
            .owned_by("acme")
            .delete_as_owner("a")
            .await
            .unwrap_err()
    ));
    put_large(&host, "bolt", "one").await.unwrap();
    put_large(&host, SHARED, "one").await.unwrap();
    // A host that starts now counts the same changes.
    let other = super::host(local(folder.path())).await;
    assert!(full(put_large(&other, "acme", "four").await.unwrap_err()));
    host.journal.compact().await.unwrap();
    assert!(host.models.owned_by("acme").delete_as_owner("a").await.unwrap());
    put_large(&host, "acme", "four").await.unwrap();
}

mod long {
    use super::*;

    #[tokio::test]
    async fn a_start_reads_a_hundred_thousand_documents_by_a_few_requests() {
        let server = S3::start().await;
        let known = Arc::new(Replica::<serde_json::Value>::new("guests"));
        let kinds = vec![Arc::clone(&known) as Arc<dyn DocumentKind>];
        let journal = Arc::new(Journal::open(server.store(), kinds).await.unwrap());
        let documents = Documents::new(Arc::clone(&known), Arc::clone(&journal));
        let first =
            |_: Option<&serde_json::Value>| Ok::<_, StateError>(Some(serde_json::json!({"versions": []})));
        documents.update("tenant-0/guest-0", first).await.unwrap();
        // Add the remaining documents directly, so that they are in the snapshot.
        let guest = |number: u32| {
            let sha256 = hash(&number.to_string());
            let version = serde_json::json!({"versions": [{
                "sha256": sha256, "bytes": 50_000, "uploaded_at": 1_700_000_000, "facts": null,
                "blob": format!("blobs/guests/tenant-{}/{sha256}-0123456789abcdef", number % 1000),
            }]});
            let name = format!("tenant-{}/guest-{number}", number % 1000);
            Document {
                format: FORMAT,
                kind: "guests".to_owned(),
                name,
                content: serde_json::value::to_raw_value(&version).unwrap(),
            }
        };
        let unread = known.replace((0..100_000).map(guest).collect());
        assert!(unread.is_empty());
        journal.snapshot().await.unwrap();
        server.take_requests();
        let started = Instant::now();
        let late = host(server.store()).await;
        println!(
            "start at 100,000 documents: {:.2} s",
            started.elapsed().as_secs_f64()
        );
        let asked = different_requests(&server);
        assert_eq!(late.guests.all_names().len(), 100_000);
        // The probe uses three requests, followed by a listing, the list of parts, up to twelve parts of 4
        // MB, and a missing change.
        assert!(asked.len() <= 3 + 2 + 12 + 1, "{asked:?}");
        late.journal.review().await.unwrap();
        let asked = different_requests(&server);
        assert_eq!(
            asked.len(),
            3,
            "expected a listing, the last known change and a missing change"
        );
    }
}
