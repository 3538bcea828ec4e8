//! Hosts with different versions that share a state.

use super::{IssuedToken, PresentedToken, TenantRecord};
use frostline_batching::Charge;
use frostline_objects::Store;
use frostline_state::{FindResult, SharedState, StateError, UploadLimits};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

/// The newest record format that this version can read, also used for writing.
const FORMAT: u32 = 1;

/// A state written by version 0.1, which did not use formats. It includes a snapshot and further changes.
const BEFORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/state-0.1");

/// A valid token in this state, and a token revoked after the snapshot.
const VALID: &str = "frost_acme_b9dbaba8_3bdb6b4a642aba327b8fb6b6d5895a3a7823817bc41839891f76eae8679aedc4";
const REVOKED: &str = "frost_acme_36187b18_fd2cd40e598e5e0524981bccf03faa74eadeaebadc9958b1570fe2461eea0024";

type State = SharedState<TenantRecord>;

async fn open(folder: &Path) -> State {
    let store = Arc::new(Store::open(folder.to_str().unwrap()).unwrap());
    let limits = UploadLimits {
        names: 1000,
        versions: 8,
    };
    let opening = SharedState::open(store, limits, |_| Charge::default());
    opening.await.unwrap()
}

fn hash(bytes: &str) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Copies the state of version 0.1 to a temporary folder.
fn state_before() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(Path::new(BEFORE), folder.path());
    folder
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap().path();
        let to = to.to_owned();
        let to = to.join(entry.file_name().unwrap());
        match entry.is_dir() {
            true => copy(&entry, &to),
            false => _ = std::fs::copy(&entry, to).unwrap(),
        }
    }
}

/// Adds a change as written by another version.
fn write_change(folder: &Path, change: &Value) {
    let number = std::fs::read_dir(folder.join("log")).unwrap().count() + 1;
    let path = folder.join(format!("log/{number:020}.json"));
    std::fs::write(path, change.to_string()).unwrap();
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the documents of the snapshot after the change `number`.
fn read_snapshot(folder: &Path, number: u64) -> Vec<Value> {
    let lists = read_json(&folder.join(format!("snapshots/{number:020}/parts.json")));
    let parts = lists["parts"].as_array().unwrap().iter();
    let parts = parts.map(|key| read_json(&folder.join(key.as_str().unwrap())));
    parts.flat_map(|part| part.as_array().unwrap().clone()).collect()
}

/// Writes a snapshot and returns the documents it contains.
async fn documents(state: &State, folder: &Path) -> Vec<Value> {
    state.journal.snapshot().await.unwrap();
    read_snapshot(folder, state.journal.last_change().await)
}

fn content(documents: &[Value], kind: &str, name: &str) -> Value {
    let mut found = documents
        .iter()
        .filter(|document| document["kind"] == kind && document["name"] == name);
    found.next().expect("the document should exist")["content"].clone()
}

async fn rotate(state: &State, tenant: &str) -> Result<(), StateError> {
    let issued = IssuedToken::issue(tenant, 10, None).unwrap().stored;
    let change = |now: Option<&TenantRecord>| {
        let mut record = now.cloned().unwrap();
        record.rotate(issued.clone(), Some(2_000_000_000));
        Ok::<_, StateError>(Some(record))
    };
    state.tenants.update(tenant, change).await.map(drop)
}

#[tokio::test]
async fn the_state_of_the_version_before_is_read() {
    let folder = state_before();
    let state = open(folder.path()).await;
    let admit = |token| {
        let shown = PresentedToken::parse(token).unwrap();
        let record = state.tenants.get(shown.tenant).unwrap();
        record.admit(&shown, 1_800_000_000)
    };
    assert!(admit(VALID).is_ok());
    assert!(admit(REVOKED).is_err());
    assert!(state.tenants.get("beta").unwrap().disabled);
    assert!(state.tenants.get("gamma").is_none());
    let guests = state.guests.owned_by("acme");
    assert!(guests.disabled("prefix") && !guests.disabled("tiny"));
    let FindResult::Version(first) = guests.find("prefix", Some(&hash("first"))) else {
        panic!("it is there");
    };
    assert_eq!(state.guests.read(&first).await.unwrap(), "first");
    let models = state.models.owned_by("acme").list();
    assert_eq!(models[0].1.facts.cuts[0].name, "layer1");
    assert_eq!(models[0].1.facts.alive.per_row, 2000);
    assert_eq!(
        state.models.bytes_of(&hash("shared net")).await.unwrap(),
        "shared net"
    );
}

#[tokio::test]
async fn what_this_version_writes_has_the_fields_that_the_version_before_reads() {
    let folder = state_before();
    let before = read_snapshot(folder.path(), 7);
    let written = documents(&open(folder.path()).await, folder.path()).await;
    for (kind, name) in [
        ("tenants", "beta"),
        ("models", "acme/net"),
        ("models", "_shared/net"),
    ] {
        let before = content(&before, kind, name);
        assert_eq!(content(&written, kind, name), before, "{kind} {name}");
    }
}

/// Adds an unknown field to every object in `content` that may contain unknown fields.
fn with_later_fields(content: &mut Value) {
    match content {
        Value::Object(fields) => {
            let known = fields.iter_mut().filter(|(name, _)| *name != "cuts");
            known.for_each(|(_, value)| with_later_fields(value));
            fields.insert("later".to_owned(), json!({"a": [1, null, "x"]}));
        }
        Value::Array(values) => values.iter_mut().for_each(with_later_fields),
        _ => {}
    }
}

#[tokio::test]
async fn fields_of_a_newer_version_stay_whatever_this_one_changes() {
    let folder = state_before();
    let before = documents(&open(folder.path()).await, folder.path()).await;
    let names = [
        ("tenants", "acme"),
        ("guests", "acme/prefix"),
        ("models", "acme/net"),
    ];
    for (kind, name) in names {
        let mut content = content(&before, kind, name);
        with_later_fields(&mut content);
        let change = json!({"mark": name, "format": FORMAT, "kind": kind, "name": name, "content": content, "later": 1});
        write_change(folder.path(), &change);
    }
    let state = open(folder.path()).await;
    let told = documents(&state, folder.path()).await;
    state
        .guests
        .owned_by("acme")
        .disable("prefix", false)
        .await
        .unwrap();
    rotate(&state, "acme").await.unwrap();
    let written = documents(&open(folder.path()).await, folder.path()).await;
    assert_eq!(
        content(&told, "models", "acme/net"),
        content(&written, "models", "acme/net")
    );
    let mut guest = content(&told, "guests", "acme/prefix");
    guest["disabled"] = json!(false);
    assert_eq!(content(&written, "guests", "acme/prefix"), guest);
    let mut tenant = content(&told, "tenants", "acme");
    let new = content(&written, "tenants", "acme");
    assert_eq!(tenant["quota"]["later"], json!({"a": [1, null, "x"]}));
    tenant["tokens"][0]["expires_at"] = json!(2_000_000_000);
    let tokens = tenant["tokens"].as_array_mut().unwrap();
    tokens.push(new["tokens"][1].clone());
    assert_eq!(new, tenant);
}

#[tokio::test]
async fn records_that_only_a_newer_version_reads_stop_nothing_and_stay() {
    let folder = state_before();
    let newer = json!({"tokens": "elsewhere"});
    let records = [
        json!({"mark": "1", "format": FORMAT + 1, "kind": "tenants", "name": "acme", "content": newer}),
        json!({"mark": "2", "format": FORMAT, "kind": "usage", "name": "acme", "content": newer}),
        json!({"mark": "3", "format": FORMAT, "kind": "guests", "name": "acme/prefix", "content": newer}),
    ];
    let running = open(folder.path()).await;
    records
        .iter()
        .for_each(|record| write_change(folder.path(), record));
    running.journal.catch_up().await.unwrap();
    // A host started now reads them from the log, and a host started later from the snapshot.
    let from_log = open(folder.path()).await;
    documents(&from_log, folder.path()).await;
    let from_snapshot = open(folder.path()).await;
    for state in [&running, &from_log, &from_snapshot] {
        assert!(
            state.tenants.get("acme").is_none(),
            "unreadable tenants should be refused"
        );
        let refused = rotate(state, "acme").await.unwrap_err();
        assert!(
            matches!(refused, StateError::Newer { kind: "tenants", .. }),
            "{refused}"
        );
        let refused = state.guests.owned_by("acme").delete("prefix").await.unwrap_err();
        assert!(
            matches!(refused, StateError::Newer { kind: "guests", .. }),
            "{refused}"
        );
        let guests = state.guests.owned_by("acme");
        assert!(
            guests.disable("tiny", false).await.unwrap(),
            "should change readable documents"
        );
        let kept = documents(state, folder.path()).await;
        for record in &records {
            let kind = record["kind"].as_str().unwrap();
            let name = record["name"].as_str().unwrap();
            assert_eq!(content(&kept, kind, name), newer);
        }
    }
    let readable = json!({"created_at": 1, "disabled": false, "data": [], "tokens": []});
    write_change(
        folder.path(),
        &json!({"mark": "4", "kind": "tenants", "name": "acme", "content": readable}),
    );
    running.journal.catch_up().await.unwrap();
    rotate(&running, "acme").await.unwrap();
}
