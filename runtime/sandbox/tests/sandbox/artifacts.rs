use crate::fakes::{model, small};
use crate::files::{built, stock};
use frostline_sandbox::{Sandbox, SandboxConfig, SandboxError};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn sandbox(directory: &Path) -> Sandbox {
    open(directory).unwrap()
}

fn open(directory: &Path) -> Result<Sandbox, SandboxError> {
    Sandbox::new(SandboxConfig {
        artifacts: Some(directory.to_owned()),
        ..small()
    })
}

fn compiled(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|kind| kind == "cwasm"))
        .collect()
}

#[tokio::test]
async fn a_compiled_guest_is_kept_and_runs_after_a_restart() {
    let bytes = stock();
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("artifacts");
    sandbox(&home).prepare(bytes.clone()).await.unwrap();
    let [file] = compiled(&home).try_into().unwrap();
    let before = fs::read(&file).unwrap();
    let guest = sandbox(&home).prepare(bytes).await.unwrap();
    assert_eq!(guest.describe(&model(), "").await.unwrap().name, "prefix");
    // A second compilation would have sealed and written the file again.
    assert_eq!(compiled(&home), std::slice::from_ref(&file));
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(
        fs::metadata(home.join("key")).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[tokio::test]
async fn retain_removes_artifacts_of_other_guests() {
    let bytes = stock();
    let directory = tempfile::tempdir().unwrap();
    let sandbox = sandbox(directory.path());
    let mut sha256 = String::new();
    for tenant in ["acme", "globex"] {
        let guest = sandbox.for_tenant(tenant).prepare(bytes.clone()).await.unwrap();
        guest.sha256().clone_into(&mut sha256);
    }
    sandbox.retain([("acme", sha256.as_str())]).unwrap();
    let [kept] = compiled(directory.path()).try_into().unwrap();
    sandbox.for_tenant("acme").prepare(bytes).await.unwrap();
    assert_eq!(
        compiled(directory.path()),
        [kept],
        "the remaining tenant's artifact is still cached"
    );
    sandbox.retain([]).unwrap();
    assert_eq!(compiled(directory.path()), Vec::<PathBuf>::new());
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes
}

#[test]
fn a_directory_open_to_others_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = open(directory.path()).err().unwrap().to_string();
    assert!(refused.contains("chmod go-w"), "{refused}");

    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    open(directory.path()).unwrap();
    let key = directory.path().join("key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(open(directory.path()).err().unwrap().to_string().contains("key"));
}

mod needs_guests {
    use super::*;

    #[tokio::test]
    async fn an_artifact_of_another_guest_is_rejected() {
        let honest = stock();
        let other = built("trap");
        let directory = tempfile::tempdir().unwrap();
        let first = sandbox(directory.path());
        first.prepare(other).await.unwrap();
        let [stolen] = compiled(directory.path()).try_into().unwrap();
        first.prepare(honest.clone()).await.unwrap();
        let target = compiled(directory.path())
            .into_iter()
            .find(|path| *path != stolen)
            .unwrap();
        fs::copy(&stolen, &target).unwrap();
        let guest = sandbox(directory.path()).prepare(honest).await.unwrap();
        assert_eq!(guest.describe(&model(), "").await.unwrap().name, "prefix");
    }

    #[tokio::test]
    async fn artifacts_over_the_size_limit_are_evicted() {
        let first = stock();
        let second = built("trap");
        let directory = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::new(SandboxConfig {
            artifacts: Some(directory.path().to_owned()),
            artifact_bytes: 1,
            ..small()
        });
        let sandbox = sandbox.unwrap();
        sandbox.prepare(first).await.unwrap();
        sandbox.prepare(second).await.unwrap();
        assert_eq!(compiled(directory.path()), Vec::<PathBuf>::new());
    }
}

mod long {
    use super::*;

    #[tokio::test]
    async fn an_altered_artifact_is_not_run_but_compiled_again() {
        let bytes = stock();
        let directory = tempfile::tempdir().unwrap();
        sandbox(directory.path()).prepare(bytes.clone()).await.unwrap();
        let [file] = compiled(directory.path()).try_into().unwrap();
        let good = fs::read(&file).unwrap();
        for damaged in [
            Vec::new(),
            good[..good.len() / 2].to_vec(),
            flipped(&good, 5),
            flipped(&good, good.len() / 2),
        ] {
            fs::write(&file, damaged).unwrap();
            let guest = sandbox(directory.path()).prepare(bytes.clone()).await.unwrap();
            assert_eq!(guest.describe(&model(), "").await.unwrap().name, "prefix");
            assert_eq!(fs::read(&file).unwrap().len(), good.len());
        }
    }

    #[tokio::test]
    async fn tenants_do_not_share_artifacts() {
        let bytes = stock();
        let directory = tempfile::tempdir().unwrap();
        let sandbox = sandbox(directory.path());
        for (tenant, artifacts) in [("acme", 1), ("globex", 2), ("acme", 2)] {
            // This sandbox caches nothing in memory.
            let of_tenant = sandbox.for_tenant(tenant);
            of_tenant.prepare(bytes.clone()).await.unwrap();
            assert_eq!(compiled(directory.path()).len(), artifacts, "{tenant}");
        }
    }
}
