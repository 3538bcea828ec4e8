//! Fuzz target for tar shards. For any headers, listed samples must be readable and have the listed size.

use frostline_objects::Store;
use frostline_tensor::{Layout, SampleRef};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tar::{Builder, Header};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Maximum length of keys and labels in bytes.
const LONGEST: [usize; 2] = [1024, 256];

/// Number of samples to read per archive.
const READ: usize = 4;

struct Fixture {
    folder: TempDir,
    runtime: Runtime,
}

static FIXTURE: OnceLock<Option<Fixture>> = OnceLock::new();

/// Lists the bytes as a shard and reads samples.
///
/// # Panics
/// Panics if a sample is longer than the archive or the listed size, a key or a label is too long, or the
/// fixture cannot be created.
pub fn shard_index(data: &[u8]) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let fixture = FIXTURE.get_or_init(|| {
        Some(Fixture {
            folder: tempfile::tempdir().ok()?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .ok()?,
        })
    });
    assert!(fixture.is_some(), "cannot create a temporary folder");
    let Some(Fixture { folder, runtime }) = fixture else {
        return;
    };
    // Each archive has a new root, because stores cache the index of a shard.
    let root: PathBuf = folder
        .path()
        .join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
    let written = std::fs::create_dir(&root).and_then(|()| std::fs::write(root.join("a.tar"), data));
    assert!(written.is_ok(), "{written:?}");
    if let Some(store) = root.to_str().and_then(|root| Store::open(root).ok()) {
        runtime.block_on(read(&store, data.len()));
    }
    let _ = std::fs::remove_dir_all(root);
}

async fn read(store: &Store, archive: usize) {
    let Ok(page) = store.list_as(Layout::Shards, None, 1000).await else {
        return;
    };
    for object in &page.objects {
        let label = object.label.as_ref().map_or(0, String::len);
        let long = [object.sample.key.len(), label];
        assert!(
            long.iter().zip(LONGEST).all(|(long, most)| *long <= most),
            "{object:?}"
        );
        assert!(
            object.size <= archive as u64,
            "{object:?} exceeds {archive} bytes"
        );
    }
    for object in page.objects.iter().take(READ) {
        let SampleRef { key, .. } = &object.sample;
        if let Ok(bytes) = store.read(key).await {
            assert_eq!(bytes.len() as u64, object.size, "{object:?}");
        }
    }
}

/// Returns shards in the layout of WebDataset with both formats of long names, complete and truncated, and an
/// empty archive.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let whole: Vec<Vec<u8>> = [Header::new_ustar, Header::new_gnu]
        .into_iter()
        .filter_map(shard)
        .collect();
    let mut all: Vec<Vec<u8>> = whole
        .iter()
        .map(|shard| shard.iter().take(700).copied().collect())
        .collect();
    all.extend(whole);
    all.push(vec![0; 1024]);
    all
}

fn shard(header: fn() -> Header) -> Option<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    let long = format!("{}/2.jpg", "d".repeat(120));
    for (name, content) in [
        ("1.jpg", &b"photo"[..]),
        ("1.cls", b"cat"),
        (&long, b"other"),
        ("odd\n.jpg", b"x"),
    ] {
        let mut header = header();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content).ok()?;
    }
    builder.into_inner().ok()
}
