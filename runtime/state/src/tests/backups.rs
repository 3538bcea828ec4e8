//! Backups, and hosts that are running while the state is restored.

use super::{LIMITS, Things, content, files, hash, local, uncharged};
use crate::{FindResult, RestoredTokens, SharedState, StateError, back_up, log, restore, verify};
use frostline_fake_store::S3;
use http::Method;
use serde_json::{Value, json};
use std::path::Path;

type State = SharedState<Value>;

async fn open(folder: &Path) -> State {
    State::open(local(folder), LIMITS, uncharged).await.unwrap()
}

async fn put(state: &State, name: &str, bytes: &'static str) {
    let guests = state.guests.owned_by("acme");
    guests.put(name, content(bytes), |_| Ok(())).await.unwrap();
}

/// Sets the tokens of a tenant, which is created if necessary.
async fn set_tokens(state: &State, tenant: &str, ids: &[&str]) {
    let tokens: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
    let record = json!({"created_at": 10, "disabled": false, "data": [], "tokens": tokens});
    let set = |_: Option<&Value>| Ok::<_, StateError>(Some(record.clone()));
    state.tenants.update(tenant, set).await.unwrap();
}

async fn remove_tenant(state: &State, tenant: &str) {
    let gone = |_: Option<&Value>| Ok::<_, StateError>(None);
    state.tenants.update(tenant, gone).await.unwrap();
}

fn tokens(state: &State, tenant: &str) -> Vec<String> {
    let record = state.tenants.get(tenant).unwrap();
    let tokens = record["tokens"].as_array().unwrap().iter();
    tokens
        .map(|token| token["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_backup_holds_everything_and_the_next_one_copies_what_is_new() {
    let server = S3::start().await;
    let folder = tempfile::tempdir().unwrap();
    let backup = server.store();
    let state = open(folder.path()).await;
    let from = local(folder.path());
    put(&state, "a", "one").await;
    put(&state, "b", "one").await;
    set_tokens(&state, "acme", &["t"]).await;
    let newer = json!({"mark": "m", "format": 9, "kind": "tenants", "name": "beta", "content": {"x": 1}});
    std::fs::write(folder.path().join(log::key(4)), newer.to_string()).unwrap();
    let first = back_up(&from, &backup).await.unwrap();
    assert_eq!((first.change, first.versions, first.bytes), (4, 2, 6));
    assert_eq!(first.documents["guests"], 2);
    assert_eq!(first.documents["tenants"], 2);
    assert_eq!(verify(&backup).await.unwrap(), first);
    assert_eq!(
        verify(&from).await.unwrap(),
        first,
        "the backup should be complete"
    );
    put(&state, "a", "three").await;
    server.take_requests();
    let second = back_up(&from, &backup).await.unwrap();
    let wrote = |(method, key): &(Method, String)| *method == Method::PUT && key.starts_with("blobs/");
    assert_eq!(
        server.take_requests().iter().filter(|asked| wrote(asked)).count(),
        1
    );
    assert_eq!((second.versions, verify(&backup).await.unwrap()), (3, second));
    // A host can use the backup as state.
    let host = State::open(backup, LIMITS, uncharged).await.unwrap();
    put(&host, "c", "four").await;
}

#[tokio::test]
async fn a_backup_lists_missing_and_corrupt_versions() {
    let folder = tempfile::tempdir().unwrap();
    let backup = tempfile::tempdir().unwrap();
    let state = open(folder.path()).await;
    put(&state, "gone", "gone").await;
    put(&state, "bad", "bytes").await;
    for blob in std::fs::read_dir(folder.path().join("blobs/guests/acme")).unwrap() {
        let blob = blob.unwrap().path();
        match blob.to_str().unwrap().contains(&hash("gone")) {
            true => std::fs::remove_file(blob).unwrap(),
            false => std::fs::write(blob, "bites").unwrap(),
        }
    }
    let report = back_up(&local(folder.path()), &local(backup.path()))
        .await
        .unwrap();
    let lost = report.lost.iter().map(|lost| (lost.name.as_str(), lost.corrupt));
    assert_eq!(
        lost.collect::<Vec<_>>(),
        [("acme/bad", true), ("acme/gone", false)]
    );
    assert_eq!(verify(&local(backup.path())).await.unwrap().lost.len(), 2);
}

#[tokio::test]
async fn places_that_hold_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let from = local(folder.path());
    let to = local(other.path());
    let error = back_up(&from, &to).await.unwrap_err();
    assert!(matches!(error, StateError::Empty { .. }), "{error}");
    assert_eq!(files(folder.path()) + files(other.path()), 0, "nothing is made");
    let state = open(folder.path()).await;
    let longer = open(other.path()).await;
    put(&state, "a", "one").await;
    for bytes in ["one", "two"] {
        put(&longer, "a", bytes).await;
    }
    longer.journal.snapshot().await.unwrap();
    let error = back_up(&from, &to).await.unwrap_err();
    assert!(matches!(error, StateError::OtherState { .. }), "{error}");
}

#[tokio::test]
async fn running_hosts_notice_a_restore_and_revoked_tokens_stay_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let backup = tempfile::tempdir().unwrap();
    let one = open(folder.path()).await;
    let two = open(folder.path()).await;
    let at = local(folder.path());
    let copy = local(backup.path());
    put(&one, "a", "good").await;
    set_tokens(&one, "acme", &["stays", "revoked"]).await;
    set_tokens(&one, "removed", &["t"]).await;
    back_up(&at, &copy).await.unwrap();
    set_tokens(&one, "acme", &["stays", "issued"]).await;
    set_tokens(&one, "added", &["t"]).await;
    remove_tenant(&one, "removed").await;
    assert!(one.guests.owned_by("acme").delete("a").await.unwrap());
    two.journal.catch_up().await.unwrap();

    let report = restore(&copy, &at, None).await.unwrap();
    assert_eq!(report.state.lost, []);
    assert_eq!(report.without_tokens, ["removed"]);
    assert_eq!(report.dropped, ["tenants added"]);
    // The first host changes the state without noticing the restore, whereas the second host reviews the
    // state.
    put(&one, "b", "later").await;
    two.journal.review().await.unwrap();
    for host in [&one, &two, &open(folder.path()).await] {
        host.journal.catch_up().await.unwrap();
        assert_eq!(tokens(host, "acme"), ["stays", "issued"]);
        assert_eq!(tokens(host, "removed"), [""; 0]);
        assert!(host.tenants.get("added").is_none());
        assert_eq!(host.guests.bytes_of(&hash("good")).await.unwrap(), "good");
        let later = host.guests.owned_by("acme").find("b", None);
        assert!(matches!(later, FindResult::Version(_)), "{later:?}");
    }
    assert_eq!(verify(&at).await.unwrap().lost, []);
}

#[tokio::test]
async fn where_the_state_is_lost_a_restore_says_which_tokens_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let backup = tempfile::tempdir().unwrap();
    let copy = local(backup.path());
    let state = open(folder.path()).await;
    put(&state, "a", "good").await;
    set_tokens(&state, "acme", &["t"]).await;
    back_up(&local(folder.path()), &copy).await.unwrap();
    for (choice, kept) in [
        (RestoredTokens::Keep, vec!["t"]),
        (RestoredTokens::Revoke, vec![]),
    ] {
        let new = tempfile::tempdir().unwrap();
        let at = local(new.path());
        let error = restore(&copy, &at, None).await.unwrap_err();
        assert!(matches!(error, StateError::UnknownTokens { .. }), "{error}");
        restore(&copy, &at, Some(choice)).await.unwrap();
        let restored = open(new.path()).await;
        assert_eq!(tokens(&restored, "acme"), kept);
        put(&restored, "b", "later").await;
        assert_eq!(verify(&at).await.unwrap().versions, 2);
    }
}

#[tokio::test]
async fn hosts_notice_that_their_state_became_an_older_one() {
    let server = S3::start().await;
    let one = Things::open(server.store()).await.unwrap();
    let two = Things::open(server.store()).await.unwrap();
    for value in 0..3 {
        one.set("a", value).await.unwrap();
    }
    two.journal.catch_up().await.unwrap();
    // Simulate replacing the bucket with an older copy without the last two changes.
    for number in [2, 3] {
        server.store().delete(&log::key(number)).await.unwrap();
    }
    one.journal.review().await.unwrap();
    assert_eq!(one.get("a"), Some(0));
    one.set("b", 1).await.unwrap();
    two.journal.review().await.unwrap();
    assert_eq!((two.get("a"), two.get("b")), (Some(0), Some(1)));
}
