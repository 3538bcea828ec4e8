//! Tar archives as shards: whatever their headers say, what is listed can be read, and is no longer than it was said to be.

use frostline_objects::Store;
use frostline_tensor::{Layout, SampleRef};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tar::{Builder, Header};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The longest key there is, and the longest label.
const LONGEST: [usize; 2] = [1024, 256];

/// Samples that are read of each archive.
const READ: usize = 4;

struct Fixture {
    folder: TempDir,
    runtime: Runtime,
}

static FIXTURE: OnceLock<Option<Fixture>> = OnceLock::new();

/// Lists the bytes as a shard, and reads what is listed.
///
/// # Panics
/// When a sample is read that is longer than the archive or than was said, a name or a label is too long, or there is no temporary folder.
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
    assert!(fixture.is_some(), "no temporary folder can be made");
    let Some(Fixture { folder, runtime }) = fixture else {
        return;
    };
    // A root for each, since a store keeps what it knows of a shard.
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
        assert!(object.size <= archive as u64, "{object:?} of {archive} bytes");
    }
    for object in page.objects.iter().take(READ) {
        let SampleRef { key, .. } = &object.sample;
        if let Ok(bytes) = store.read(key).await {
            assert_eq!(bytes.len() as u64, object.size, "{object:?}");
        }
    }
}

/// Shards as WebDataset packs them, by both kinds of long names, cut off, and with a number that is none.
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
