//! Hosts on one state, in a folder and on a store that fails at chosen requests.

use super::journal::{Journal, Kind};
use super::s3::{Asked, Fault, S3, creates_change};
use super::*;
use crate::config::Limits;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use http::Method;
use sha2::{Digest, Sha256};
use std::path::Path;
use tokio::sync::Barrier;

/// A host's documents of one kind, and the journal they follow.
struct Things {
    documents: Documents<u32>,
    journal: Arc<Journal>,
}

impl Things {
    async fn open(store: Arc<Store>) -> Result<Self, StateError> {
        let known = Arc::new(Known::new("things"));
        let kinds = vec![Arc::clone(&known) as Arc<dyn Kind>];
        let journal = Arc::new(Journal::open(store, kinds).await?);
        Ok(Self {
            documents: Documents::new(known, Arc::clone(&journal)),
            journal,
        })
    }

    async fn at(folder: &Path) -> Self {
        Self::open(local(folder)).await.unwrap()
    }

    async fn set(&self, name: &str, value: impl Into<Option<u32>>) -> Result<Option<Arc<u32>>, StateError> {
        let value = value.into();
        self.documents.update(name, |_| Ok(value)).await
    }

    async fn add_one(&self, name: &str) -> Result<Option<Arc<u32>>, StateError> {
        let add = |now: Option<&u32>| Ok(Some(now.copied().unwrap_or(0) + 1));
        self.documents.update(name, add).await
    }

    fn get(&self, name: &str) -> Option<u32> {
        self.documents.get(name).map(|value| *value)
    }
}

fn local(folder: &Path) -> Arc<Store> {
    Arc::new(Store::open(folder.to_str().unwrap()).unwrap())
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

async fn host(store: Arc<Store>) -> SharedState {
    SharedState::open(store, &Limits::default()).await.unwrap()
}

fn hash(bytes: &str) -> String {
    hex::encode(Sha256::digest(bytes))
}

async fn put(host: &SharedState, name: &str, bytes: &'static str) -> Result<bool, StateError> {
    let put = host
        .guests
        .of("acme")
        .put(name, &hash(bytes), Bytes::from(bytes), ())
        .await;
    put.map(|(_, new)| new)
}

fn has(host: &SharedState, name: &str) -> bool {
    matches!(host.guests.of("acme").find(name, None), Found::Version(_))
}

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
    let (one, two) = (Things::at(folder.path()).await, Things::at(folder.path()).await);
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
async fn a_change_nobody_can_read_is_named_and_may_be_made_nothing() {
    let folder = tempfile::tempdir().unwrap();
    Things::at(folder.path()).await.set("a", 1).await.unwrap();
    let key = log::key(2);
    for broken in [
        "{",
        r#"{"kind":"things","name":"a","content":"x"}"#,
        r#"{"kind":"others","name":"a"}"#,
    ] {
        std::fs::write(folder.path().join(&key), broken).unwrap();
        let error = Things::open(local(folder.path())).await.map(drop).unwrap_err();
        assert!(error.to_string().contains(&key), "{error}");
    }
    std::fs::write(folder.path().join(&key), "{}").unwrap();
    let host = Things::at(folder.path()).await;
    host.set("b", 2).await.unwrap();
    assert_eq!((host.get("a"), host.get("b")), (Some(1), Some(2)));
}

#[tokio::test]
async fn what_was_deleted_leaves_nothing() {
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
        "two that name their parts, one has a part"
    );
    assert_eq!(
        server.keys("log/").len(),
        1000,
        "those that are kept for hosts behind"
    );
    server.asked();
    let late = Things::open(server.store()).await.unwrap();
    assert_eq!((late.documents.list("").len(), late.get("stays")), (1, Some(1)));
    assert_eq!(
        server.asked().len(),
        4,
        "a listing, a snapshot, its part, no news"
    );
}

#[tokio::test]
async fn a_start_reads_a_hundred_thousand_documents_by_a_few_requests() {
    let server = S3::start().await;
    let known = Arc::new(Known::<serde_json::Value>::new("guests"));
    let kinds = vec![Arc::clone(&known) as Arc<dyn Kind>];
    let journal = Arc::new(Journal::open(server.store(), kinds).await.unwrap());
    let documents = Documents::new(Arc::clone(&known), Arc::clone(&journal));
    let first = |_: Option<&serde_json::Value>| Ok::<_, StateError>(Some(serde_json::json!([])));
    documents.update("tenant-0/guest-0", first).await.unwrap();
    // As if all of them had been uploaded long ago.
    let guest = |number: u32| {
        let sha256 = hash(&number.to_string());
        let version = serde_json::json!([{
            "sha256": sha256, "bytes": 50_000, "uploaded_at": 1_700_000_000, "facts": null,
            "blob": format!("blobs/guests/tenant-{}/{sha256}-0123456789abcdef", number % 1000),
        }]);
        let name = format!("tenant-{}/guest-{number}", number % 1000);
        (name, serde_json::value::to_raw_value(&version).unwrap())
    };
    known.replace((0..100_000).map(guest).collect()).unwrap();
    journal.snapshot().await.unwrap();
    server.asked();
    let started = Instant::now();
    let late = host(server.store()).await;
    println!(
        "start at 100,000 documents: {:.2} s",
        started.elapsed().as_secs_f64()
    );
    let asked = server.asked();
    assert_eq!(late.guests.all().len(), 100_000);
    // The probe's three, a listing, what the parts are, twelve parts of 4 MB at most, and no news.
    assert!(asked.len() <= 3 + 2 + 12 + 1, "{} requests", asked.len());
    late.journal.review().await.unwrap();
    assert_eq!(server.asked().len(), 2, "a listing, no news");
}

#[tokio::test]
async fn many_changes_are_read_at_once() {
    let server = S3::start().await;
    let (one, two) = (
        Things::open(server.store()).await.unwrap(),
        Things::open(server.store()).await.unwrap(),
    );
    for round in 0..100 {
        one.set("a", round).await.unwrap();
    }
    // Nobody is answered before all of these have asked.
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
    server.asked();
    two.journal.catch_up().await.unwrap();
    assert_eq!(two.get("a"), Some(99));
    assert!(server.asked().len() <= 127, "at most as many again as there are");
}

#[tokio::test]
async fn a_host_that_stood_still_resurrects_nothing_and_loses_nothing() {
    let server = S3::start().await;
    let (one, late) = (
        Things::open(server.store()).await.unwrap(),
        Things::open(server.store()).await.unwrap(),
    );
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
        "the removal was forgotten"
    );
    // It creates the change after the last it knows where the removal was.
    assert_eq!(late.get("a"), Some(1));
    assert_eq!(*late.add_one("a").await.unwrap().unwrap(), 1, "on top of nothing");
    assert!(!server.keys("log/").contains(&log::key(2)));
    one.journal.catch_up().await.unwrap();
    for host in [&one, &late, &Things::open(server.store()).await.unwrap()] {
        assert_eq!((host.get("a"), host.get("b")), (Some(1), Some(0)));
    }
}

#[tokio::test]
async fn a_host_that_is_far_behind_learns_what_was_revoked() {
    let server = S3::start().await;
    let (one, late) = (
        Things::open(server.store()).await.unwrap(),
        Things::open(server.store()).await.unwrap(),
    );
    one.set("token", 1).await.unwrap();
    late.journal.catch_up().await.unwrap();
    one.set("token", None).await.unwrap();
    for round in 0..1100 {
        one.set("b", round).await.unwrap();
    }
    one.journal.snapshot().await.unwrap();
    late.journal.catch_up().await.unwrap();
    assert_eq!(
        late.get("token"),
        Some(1),
        "the next change it knows of is no more"
    );
    late.journal.review().await.unwrap();
    assert_eq!((late.get("token"), late.get("b")), (None, Some(1099)));
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
async fn a_version_keeps_its_bytes_whatever_the_store_answers() {
    let server = S3::start().await;
    let one = host(server.store()).await;
    // All that follows on the change fails: whether it was made cannot be found out.
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
    assert!(matches!(error, StateError::Unsure { .. }), "{error}");
    server.heal();
    let two = host(server.store()).await;
    for host in [&one, &two] {
        host.journal.catch_up().await.unwrap();
        let Found::Version(version) = host.guests.of("acme").find("a", None) else {
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
        "a single failure is tried again"
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
    let (one, two) = (host(server.store()).await, host(server.store()).await);
    for tenant in ["acme", "beta"] {
        let of = one.guests.of(tenant);
        of.put("a", &hash("same"), Bytes::from("same"), ()).await.unwrap();
    }
    two.journal.catch_up().await.unwrap();
    // The other host has not heard of it yet.
    assert!(one.guests.of("acme").delete("a").await.unwrap());
    assert_eq!(two.guests.bytes_of(&hash("same")).await.unwrap(), "same");
    let found = two.guests.of("acme").find("a", None);
    let Found::Version(version) = found else {
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
    let (one, two) = (host(local(folder.path())).await, host(local(folder.path())).await);
    put(&one, "a", "bytes").await.unwrap();
    two.journal.catch_up().await.unwrap();
    assert!(has(&two, "a"));
    assert_eq!(two.guests.bytes_of(&hash("bytes")).await.unwrap(), "bytes");
    assert!(two.guests.of("acme").disable("a", true).await.unwrap());
    one.journal.catch_up().await.unwrap();
    assert!(one.guests.of("acme").disabled("a"));
    assert!(two.guests.of("acme").delete("a").await.unwrap());
    one.journal.catch_up().await.unwrap();
    assert!(!has(&one, "a"));
}

#[tokio::test]
async fn what_an_earlier_version_kept_is_taken_over_once() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, version: u32, record: &str| {
        let folder = folder.path().join("things").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{version:020}.json")), record).unwrap();
    };
    write("acme/a", 9, r#"{"content":1}"#);
    write("acme/a", 10, r#"{"content":2}"#);
    write("acme/b", 1, r#"{"content":3}"#);
    write("acme/b", 2, r#"{"content":null}"#);
    let (one, two) = tokio::join!(Things::at(folder.path()), Things::at(folder.path()));
    for host in [&one, &two] {
        assert_eq!((host.get("acme/a"), host.get("acme/b")), (Some(2), None));
    }
    one.set("acme/a", None).await.unwrap();
    assert_eq!(Things::at(folder.path()).await.get("acme/a"), None);
}

#[tokio::test]
async fn a_store_that_creates_only_where_nothing_is_passes() {
    let server = S3::start().await;
    server.once(Fault::DoneAnd503, |(_, key)| key.starts_with("probes/"));
    probe::probe(&server.store()).await.unwrap();
    assert_eq!(server.keys("probes/").len(), 0);
    let folder = tempfile::tempdir().unwrap();
    host(local(folder.path())).await;
    assert_eq!(files(&folder.path().join("probes")), 0);
}

#[tokio::test]
async fn a_store_that_passes_over_the_condition_is_refused() {
    let server = S3::start().await;
    server.script(|_| Fault::PassOverCondition);
    let opened = SharedState::open(server.store(), &Limits::default()).await;
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, StateError::Replaces { .. }), "{error}");
    assert!(error.to_string().contains("s3://b/state"), "{error}");
    assert_eq!(server.keys(""), [""; 0], "nothing is left there");
}

#[tokio::test]
async fn a_store_without_the_condition_is_refused() {
    let server = S3::start().await;
    server.script(|_| Fault::RefuseCondition);
    let opened = SharedState::open(server.store(), &Limits::default()).await;
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, StateError::CreatesNothing { .. }), "{error}");
    assert!(error.to_string().contains("NotImplemented"), "{error}");
    assert_eq!(server.keys(""), [""; 0], "nothing is left there");
}
