//! Fuzz target for object keys. No key may read anything outside the data root.

use frostline_objects::Store;
use frostline_tensor::SampleRef;
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Contents of objects outside the root.
const SECRET: &[u8] = b"another tenant's object";
/// Contents of objects in the root.
const OWN: &[u8] = b"own";

/// Data root with objects, links that leave it, and secrets next to it.
struct Fixture {
    _folder: TempDir,
    store: Store,
    runtime: Runtime,
}

impl Fixture {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let root = folder.path().join("root");
        for inside in ["photos", "%2e%2e", "a"] {
            std::fs::create_dir_all(root.join(inside)).ok()?;
            std::fs::write(root.join(inside).join("b.jpg"), OWN).ok()?;
        }
        for outside in ["secret", "root.secret"] {
            std::fs::write(folder.path().join(outside), SECRET).ok()?;
        }
        links(folder.path(), &root)?;
        Some(Self {
            store: Store::open(root.to_str()?).ok()?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .ok()?,
            _folder: folder,
        })
    }
}

#[cfg(unix)]
fn links(outside: &Path, root: &Path) -> Option<()> {
    std::os::unix::fs::symlink(outside.join("secret"), root.join("link")).ok()?;
    std::os::unix::fs::symlink(outside, root.join("up")).ok()
}

#[cfg(not(unix))]
fn links(_: &Path, _: &Path) -> Option<()> {
    Some(())
}

static FIXTURE: OnceLock<Option<Fixture>> = OnceLock::new();

/// Reads the object with this key and its size, and lists from this key.
///
/// # Panics
/// Panics if anything outside the root is read, or the fixture cannot be created.
pub fn key_scoping(data: &[u8]) {
    let key = String::from_utf8_lossy(data);
    let fixture = FIXTURE.get_or_init(Fixture::new).as_ref();
    assert!(fixture.is_some(), "cannot create a temporary folder");
    let Some(Fixture { store, runtime, .. }) = fixture else {
        return;
    };
    runtime.block_on(async {
        if let Ok(bytes) = store.read(&key).await {
            assert_eq!(bytes, OWN, "{key:?} reads outside the root");
        }
        if let Ok(bytes) = store.read_range(&SampleRef::new(&*key), 0..8).await {
            assert!(OWN.starts_with(&bytes), "{key:?} reads outside the root");
        }
        if let Ok(size) = store.size(&SampleRef::new(&*key)).await {
            assert_eq!(size, OWN.len() as u64, "{key:?} returns a size outside the root");
        }
        if let Ok(page) = store.list(Some(&key), 10).await {
            let inside = |key: &str| key.ends_with("b.jpg") && !key.starts_with("up");
            assert!(
                page.objects.iter().all(|object| inside(&object.sample.key)),
                "{page:?}"
            );
        }
    });
}

/// Returns keys that leave the root, and keys that only seem to.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let keys = [
        "photos/b.jpg",
        "%2e%2e/b.jpg",
        "../secret",
        "../root.secret",
        "photos/../../secret",
        "/etc/passwd",
        "link",
        "up/secret",
        "up/root/link",
        "./photos/./b.jpg",
        "photos//b.jpg",
        "%2e%2e%2fsecret",
        "..%2fsecret",
        "..\\secret",
        "\u{2024}\u{2024}/secret",
        "photos/b.jpg\0",
        "file:///etc/passwd",
        "C:\\secret",
        "~/secret",
        "a.tar//../secret",
        "link//secret",
        "photos/b.jpg//secret",
        "",
    ];
    keys.iter().map(|key| key.as_bytes().to_vec()).collect()
}
