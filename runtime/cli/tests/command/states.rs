//! Tests `frostline admin state` with a recorded state.

use super::frostline;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/fixtures/state-0.1");

fn state(arguments: &[&str]) -> Output {
    frostline(&[&["admin", "--json", "state"], arguments].concat())
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_state_is_backed_up_verified_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let backup = path("backup");
    let new = path("new");
    let made = state(&["backup", RECORDED, &backup]);
    assert!(made.status.success(), "{made:?}");
    let made = report(&made);
    assert_eq!(
        (&made["versions"], &made["documents"]["tenants"]),
        (&5.into(), &2.into())
    );
    assert_eq!(report(&state(&["verify", &backup])), made);

    let refused = state(&["restore", &backup, &new, "--yes"]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && error.contains("--tokens"), "{error}");
    let restored = state(&["restore", &backup, &new, "--yes", "--tokens", "revoke"]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(
        report(&restored)["without_tokens"],
        serde_json::json!(["acme", "beta"])
    );
    assert_eq!(report(&state(&["verify", &new]))["versions"], 5);

    // A backup with missing bytes is reported and fails.
    let blobs = Path::new(&backup).join("blobs/guests/acme");
    let blob = std::fs::read_dir(blobs).unwrap().next().unwrap().unwrap();
    std::fs::remove_file(blob.path()).unwrap();
    let verified = state(&["verify", &backup]);
    assert!(!verified.status.success());
    assert_eq!(report(&verified)["lost"][0]["corrupt"], false);
}

#[test]
fn a_state_that_is_not_there_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let verified = state(&["verify", missing.to_str().unwrap()]);
    assert!(!verified.status.success() && !missing.exists(), "{verified:?}");
}
