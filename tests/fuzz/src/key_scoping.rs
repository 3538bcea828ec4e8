//! Keys of objects: whatever a client writes, nothing outside its root is read.

use frostline_objects::Store;
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What lies outside the root.
const SECRET: &[u8] = b"another tenant's object";
/// What lies inside.
const OWN: &[u8] = b"own";

/// A root with an object, links that lead out of it, and a secret beside it.
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

/// Reads the object of this key, its size, and lists from it.
///
/// # Panics
/// When anything outside the root is read or measured, or the folders for it cannot be made.
pub fn key_scoping(data: &[u8]) {
    let key = String::from_utf8_lossy(data);
    let fixture = FIXTURE.get_or_init(Fixture::new).as_ref();
    assert!(fixture.is_some(), "no temporary folder can be made");
    let Some(Fixture { store, runtime, .. }) = fixture else {
        return;
    };
    runtime.block_on(async {
        if let Ok(bytes) = store.read(&key).await {
            assert_eq!(bytes, OWN, "{key:?} read something outside");
        }
        if let Ok(bytes) = store.read_range(&key, 0..8).await {
            assert!(OWN.starts_with(&bytes), "{key:?} read something outside");
        }
        if let Ok(size) = store.size(&key).await {
            assert_eq!(size, OWN.len() as u64, "{key:?} measured something outside");
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

/// Keys that lead out, and some that only look so.
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
