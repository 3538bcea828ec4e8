use super::*;
use crate::documents::Replica;
use crate::journal::Journal;

async fn shelf(folder: &std::path::Path, versions: usize) -> UploadStore<u32> {
    let store = Arc::new(Store::open(folder.to_str().unwrap()).unwrap());
    let known = Arc::new(Replica::new("things"));
    let journal = Journal::open(Arc::clone(&store), vec![Arc::clone(&known) as _]).await;
    let documents = Documents::new(known, Arc::new(journal.unwrap()));
    let charges = Arc::new(|_: &str| Charge::default());
    let store = ChargedStore { store, charges };
    let limits = UploadLimits { names: 2, versions };
    UploadStore::new("things", store, documents, limits)
}

fn hash(bytes: &str) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn content(bytes: &'static str) -> CheckedUpload<u32> {
    CheckedUpload {
        sha256: hash(bytes),
        bytes: Bytes::from(bytes),
        facts: 1,
    }
}

async fn put(shelf: &UploadStore<u32>, name: &str, bytes: &'static str) -> bool {
    let put = shelf.owned_by("acme").put(name, content(bytes), |_| Ok(())).await;
    put.unwrap().1
}

fn sha<F>(found: FindResult<F>) -> Option<String> {
    match found {
        FindResult::Version(stored) => Some(stored.sha256.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn the_newest_wins_older_ones_stay_reachable_and_all_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let first = shelf(folder.path(), 2).await;
    assert!(put(&first, "a", "one").await);
    assert!(!put(&first, "a", "one").await);
    assert!(put(&first, "a", "two").await);
    for shelf in [&first, &shelf(folder.path(), 2).await] {
        assert_eq!(sha(shelf.owned_by("acme").find("a", None)), Some(hash("two")));
        assert_eq!(
            sha(shelf.owned_by("acme").find("a", Some(&hash("one")))),
            Some(hash("one"))
        );
        assert!(matches!(
            shelf.owned_by("acme").find("a", Some(&hash("three"))),
            FindResult::OtherVersion(_)
        ));
        assert_eq!(shelf.owned_by("acme").find("b", None), FindResult::Missing);
        assert_eq!(shelf.bytes_of(&hash("one")).await.unwrap(), "one");
    }
}

#[tokio::test]
async fn a_disabled_name_stays_so_whatever_is_uploaded_and_wherever_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let first = shelf(folder.path(), 4).await;
    assert!(put(&first, "a", "one").await);
    assert!(!first.owned_by("acme").disabled("a"));
    assert!(first.owned_by("acme").disable("a", true).await.unwrap());
    assert!(
        !first.owned_by("acme").disable("b", true).await.unwrap(),
        "no such name"
    );
    assert!(!first.owned_by("acme").disabled("b"));
    assert!(put(&first, "a", "two").await);
    let refused = first.owned_by("acme").delete_as_owner("a").await;
    assert!(matches!(refused, Err(StateError::Disabled { .. })), "{refused:?}");
    for shelf in [&first, &shelf(folder.path(), 4).await] {
        assert!(shelf.owned_by("acme").disabled("a"));
        assert_eq!(sha(shelf.owned_by("acme").find("a", None)), Some(hash("two")));
    }
    assert!(first.owned_by("acme").disable("a", false).await.unwrap());
    assert!(!shelf(folder.path(), 4).await.owned_by("acme").disabled("a"));
    let names = first.all_names();
    assert_eq!(names.len(), 1);
    assert_eq!((names[0].owner.as_str(), names[0].name.as_str()), ("acme", "a"));
    assert_eq!(names[0].versions.len(), 2);
}

#[tokio::test]
async fn versions_beyond_the_limit_go_with_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = shelf(folder.path(), 1).await;
    assert!(put(&shelf, "a", "one").await);
    assert!(put(&shelf, "b", "one").await);
    assert!(put(&shelf, "a", "two").await);
    assert_eq!(
        shelf.bytes_of(&hash("one")).await.unwrap(),
        "one",
        "b still references the bytes"
    );
    assert!(put(&shelf, "b", "two").await);
    assert!(shelf.bytes_of(&hash("one")).await.is_err());
    assert!(
        shelf
            .owned_by("acme")
            .put("c", content(""), |_| Ok(()))
            .await
            .is_err(),
        "two names are allowed"
    );
}

#[tokio::test]
async fn deleted_is_gone_and_may_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let first = shelf(folder.path(), 4).await;
    assert!(put(&first, "a", "one").await);
    assert!(first.owned_by("acme").delete("a").await.unwrap());
    assert!(!first.owned_by("acme").delete("a").await.unwrap());
    assert_eq!(
        shelf(folder.path(), 4).await.owned_by("acme").find("a", None),
        FindResult::Missing
    );
    assert!(put(&first, "a", "one").await);
    assert_eq!(
        sha(shelf(folder.path(), 4).await.owned_by("acme").find("a", None)),
        Some(hash("one"))
    );
}

#[tokio::test]
async fn bytes_go_with_their_versions_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let first = shelf(folder.path(), 1).await;
    assert!(put(&first, "a", "one").await);
    assert!(put(&first, "a", "two").await);
    assert!(put(&first, "b", "two").await);
    assert!(first.owned_by("acme").delete("b").await.unwrap());
    let blobs = || {
        std::fs::read_dir(folder.path().join("blobs/things/acme"))
            .unwrap()
            .count()
    };
    assert_eq!(blobs(), 1);
    assert_eq!(first.bytes_of(&hash("two")).await.unwrap(), "two");
    assert!(matches!(
        first.bytes_of(&hash("one")).await,
        Err(StateError::Gone { .. })
    ));
}

#[tokio::test]
async fn a_tenant_sees_its_own_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = shelf(folder.path(), 4).await;
    for (tenant, bytes) in [("acme", "one"), ("acme2", "two")] {
        let of = shelf.owned_by(tenant);
        of.put("a", content(bytes), |_| Ok(())).await.unwrap();
    }
    assert_eq!(sha(shelf.owned_by("acme").find("a", None)), Some(hash("one")));
    assert!(
        matches!(shelf.owned_by("acme").find("a", Some(&hash("two"))), FindResult::OtherVersion(stored) if stored.sha256 == hash("one"))
    );
    assert_eq!(shelf.owned_by("other").find("a", None), FindResult::Missing);
    assert_eq!(shelf.owned_by("acme").list().len(), 1);
    assert!(!shelf.owned_by("other").delete("a").await.unwrap());
    assert!(shelf.owned_by("acme").delete("a").await.unwrap());
    assert_eq!(sha(shelf.owned_by("acme2").find("a", None)), Some(hash("two")));
    assert_eq!(shelf.bytes_of(&hash("two")).await.unwrap(), "two");
}
