//! Samples inside tar archives in folders and buckets.

use crate::server::{Fault, S3Server};
use bytes::Bytes;
use frostline_objects::{Guard, LARGEST_READ, ObjectError, ReadRoom, Store};
use frostline_tensor::{BoxFuture, Layout, ObjectInfo, OpError, SampleRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// Returns an archive of `count` labeled photos with different contents.
fn shard(first: usize, count: usize) -> Bytes {
    let mut builder = tar::Builder::new(Vec::new());
    for number in first..first + count {
        for (ending, content) in [("jpg", photo(number)), ("cls", class(number).into_bytes())] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            let name = format!("{number:05}.{ending}");
            builder
                .append_data(&mut header, name, content.as_slice())
                .unwrap();
        }
    }
    builder.into_inner().unwrap().into()
}

fn photo(number: usize) -> Vec<u8> {
    format!("photo {number} ").into_bytes().repeat(number % 50 + 1)
}

fn class(number: usize) -> String {
    ["cat", "dog"][number % 2].to_owned()
}

async fn all(store: &Store, layout: Layout, limit: usize) -> Vec<ObjectInfo> {
    let mut objects = Vec::new();
    let mut after = None;
    loop {
        let page = store.list_as(layout, after.as_deref(), limit).await.unwrap();
        assert!(page.objects.len() <= limit);
        objects.extend(page.objects);
        after = page.next;
        if after.is_none() {
            return objects;
        }
    }
}

#[tokio::test]
async fn a_shard_removed_during_the_listing_is_left_out() {
    let server = S3Server::start().await;
    for (number, key) in ["a.tar", "b.tar", "c.tar"].into_iter().enumerate() {
        server.contents.put(key, shard(number * 2, 2));
    }
    let store = server.open("s3://photos");
    // The read of the first shard removes the second one, which is already listed.
    let contents = server.contents.clone();
    let room = RemovingRoom(AtomicU64::new(0), move || contents.remove("b.tar"));
    let objects = all(&store.reading_into(Arc::new(room)), Layout::Shards, 1000).await;
    let keys: Vec<&str> = objects.iter().map(|object| object.sample.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "a.tar//00000.jpg",
            "a.tar//00001.jpg",
            "c.tar//00004.jpg",
            "c.tar//00005.jpg"
        ]
    );
}

/// Memory that calls a function when it is reserved after the listing.
struct RemovingRoom<F>(AtomicU64, F);

impl<F: Fn() + Send + Sync + 'static> ReadRoom for RemovingRoom<F> {
    fn reserve(&self, _: u64) -> BoxFuture<Result<Guard, OpError>> {
        if self.0.fetch_add(1, Ordering::SeqCst) > 0 {
            (self.1)();
        }
        Box::pin(std::future::ready(Ok(Box::new(()) as Guard)))
    }

    fn grow(&self, _: u64) -> Result<Guard, OpError> {
        Ok(Box::new(()))
    }

    fn count_read(&self, _: u64) {}

    fn try_reserve(&self, _: u64) -> Option<Guard> {
        None
    }
}

async fn serves_shards(store: &Store) {
    for layout in [Layout::Auto, Layout::Shards] {
        for limit in [1000, 30, 60] {
            let objects = all(store, layout, limit).await;
            assert_eq!(objects.len(), 180, "{layout:?}, pages of {limit}");
            for (number, object) in objects.iter().enumerate() {
                assert_eq!(
                    object.sample.key,
                    format!("train-{:03}.tar//{number:05}.jpg", number / 60)
                );
                assert_eq!(object.label.as_deref(), Some(class(number).as_str()));
                assert_eq!(object.size, photo(number).len() as u64);
            }
        }
    }
    let objects = all(store, Layout::Auto, 1000).await;
    let reads = objects.iter().enumerate().map(|(number, object)| async move {
        let read = store.read_sample(&object.sample, LARGEST_READ).await.unwrap();
        assert_eq!(read, photo(number));
    });
    futures::future::join_all(reads).await;

    // Without a version, the sample is located by the shard's index.
    let key = "train-001.tar//00077.jpg";
    assert_eq!(store.read(key).await.unwrap(), photo(77));
    assert_eq!(
        store.size(&SampleRef::new(key)).await.unwrap(),
        photo(77).len() as u64
    );
    assert_eq!(
        store.read_range(&SampleRef::new(key), 2..10).await.unwrap(),
        photo(77)[2..10]
    );
    let rest = store
        .read_range(&SampleRef::new(key), 200..u64::MAX)
        .await
        .unwrap();
    assert_eq!(rest, photo(77)[200..]);
    assert_eq!(
        store.read_range(&SampleRef::new(key), 5000..5001).await.unwrap(),
        ""
    );
    assert!(matches!(
        store.read_sample(&SampleRef::new(key), 10).await,
        Err(ObjectError::TooLarge { limit: 10, .. })
    ));
    for missing in ["train-001.tar//00001.jpg", "train-009.tar//00001.jpg"] {
        assert!(
            matches!(store.read(missing).await, Err(ObjectError::NotFound { .. })),
            "{missing}"
        );
    }
    for hostile in [
        "train-001.tar//../x.jpg",
        "train-001.tar//",
        "train-001.tar///a",
        "../x.tar//a.jpg",
        "x.tar//a\0",
    ] {
        let read = store.read(hostile).await;
        assert!(
            matches!(read, Err(ObjectError::Key { .. })),
            "{hostile}: {read:?}"
        );
        let put = store.put(hostile, Bytes::new()).await;
        assert!(matches!(put, Err(ObjectError::Key { .. })), "{hostile}: {put:?}");
    }
    // With the layout of objects, the archives themselves are listed.
    assert_eq!(all(store, Layout::Objects, 2).await.len(), 4);
}

#[tokio::test]
async fn shards_in_a_folder_hold_samples() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let file = folder.path().join(format!("train-{number:03}.tar"));
        std::fs::write(file, shard(number * 60, 60)).unwrap();
    }
    std::fs::write(folder.path().join("README.md"), "what this is").unwrap();
    serves_shards(&Store::open(folder.path().to_str().unwrap()).unwrap()).await;
}

async fn bucket() -> (S3Server, Store) {
    let server = S3Server::start().await;
    for number in 0..3 {
        server
            .contents
            .put(&format!("root/train-{number:03}.tar"), shard(number * 60, 60));
    }
    server.contents.put("root/README.md", "what this is");
    let store = server.open("s3://photos/root");
    (server, store)
}

#[tokio::test]
async fn shards_in_a_bucket_hold_samples() {
    let (_server, store) = bucket().await;
    serves_shards(&store).await;
}

#[tokio::test]
async fn a_shard_is_read_through_once() {
    let (server, store) = bucket().await;
    server.fail([Fault::SlowDown, Fault::Truncate]);
    let objects = all(&store, Layout::Auto, 10).await;
    assert_eq!(server.gets(), 3 + 2, "three ranges and two retries");
    let fresh = server.open("s3://photos/root");
    server.fail([]);
    let sample = &objects[100];
    fresh.read_sample(&sample.sample, LARGEST_READ).await.unwrap();
    assert_eq!(
        server.gets(),
        1,
        "the version contains the position of the sample"
    );
}

/// Memory that counts the lent bytes.
#[derive(Default)]
struct Counted {
    lent: Arc<AtomicU64>,
    most: AtomicU64,
    read: AtomicU64,
}

/// Lent bytes, returned on drop.
struct Lent(Arc<AtomicU64>, u64);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

impl Counted {
    fn lend(&self, bytes: u64) -> Guard {
        let lent = self.lent.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.most.fetch_max(lent, Ordering::SeqCst);
        Box::new(Lent(Arc::clone(&self.lent), bytes))
    }
}

impl ReadRoom for Counted {
    fn reserve(&self, bytes: u64) -> BoxFuture<Result<Guard, OpError>> {
        Box::pin(std::future::ready(Ok(self.lend(bytes))))
    }

    fn try_reserve(&self, bytes: u64) -> Option<Guard> {
        Some(self.lend(bytes))
    }

    fn grow(&self, bytes: u64) -> Result<Guard, OpError> {
        Ok(self.lend(bytes))
    }

    fn count_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_shard_is_read_through_once_from_whatever_folder_and_in_memory_that_is_lent() {
    let (server, store) = bucket().await;
    drop(store);
    let size = shard(0, 60).len() as u64;
    let room = Arc::new(Counted::default());
    let whole = server.open("s3://photos").reading_into(Arc::clone(&room) as _);
    let root = whole.below("root").unwrap();
    let before = server.gets();
    let (first, second, third) = tokio::join!(
        all(&root, Layout::Shards, 1000),
        all(&root, Layout::Shards, 1000),
        all(&whole, Layout::Shards, 1000),
    );
    assert_eq!((first.len(), second.len(), third.len()), (180, 180, 180));
    assert_eq!(third[0].sample.key, "root/train-000.tar//00000.jpg");
    assert_eq!(server.gets() - before, 3, "a single range per shard");
    assert!(
        room.most.load(Ordering::SeqCst) >= 2 * size,
        "the range and the maximum index"
    );
    let shards = 3 * size;
    let read = room.read.load(Ordering::SeqCst);
    let listings = 64 << 10;
    assert!(
        (shards..shards + listings).contains(&read),
        "{read} bytes counted, not {shards}"
    );
    let kept = room.lent.load(Ordering::SeqCst);
    assert!(kept > 0 && kept < size, "the indexes: {kept}");
    drop((whole, root));
    assert_eq!(room.lent.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_nobody_waits_for_is_read_no_further() {
    let server = S3Server::start().await;
    server.contents.put("a.tar", shard(0, 10));
    let room = Arc::new(Never::default());
    let store = server.open("s3://photos").reading_into(Arc::clone(&room) as _);
    let listing = tokio::spawn(async move { store.list_as(Layout::Shards, None, 10).await });
    room.asked.notified().await;
    listing.abort();
    assert!(listing.await.is_err());
    room.gone.notified().await;
}

/// Memory that never becomes available after the listing.
#[derive(Default)]
struct Never {
    listed: AtomicBool,
    asked: Notify,
    gone: Arc<Notify>,
}

/// Sends a notification on drop.
struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl ReadRoom for Never {
    fn reserve(&self, _: u64) -> BoxFuture<Result<Guard, OpError>> {
        if !self.listed.swap(true, Ordering::SeqCst) {
            return Box::pin(std::future::ready(Ok(Box::new(()) as Guard)));
        }
        self.asked.notify_one();
        let told = Told(Arc::clone(&self.gone));
        Box::pin(async move {
            let _told = told;
            std::future::pending().await
        })
    }

    fn grow(&self, _: u64) -> Result<Guard, OpError> {
        Ok(Box::new(()))
    }

    fn count_read(&self, _: u64) {}

    fn try_reserve(&self, _: u64) -> Option<Guard> {
        None
    }
}

#[tokio::test]
async fn samples_of_a_shard_that_was_replaced_or_removed_are_named() {
    let (server, store) = bucket().await;
    let objects = all(&store, Layout::Auto, 1000).await;
    server.contents.put("root/train-001.tar", shard(60, 61));
    server.contents.remove("root/train-002.tar");
    let replaced = &objects[70];
    let removed = &objects[150];
    for read in [
        store.read_sample(&replaced.sample, LARGEST_READ).await,
        store.read_range(&replaced.sample, 2..10).await,
    ] {
        assert!(
            matches!(&read, Err(ObjectError::Changed { key, .. }) if *key == replaced.sample.key),
            "{read:?}"
        );
    }
    let error = store
        .read_sample(&removed.sample, LARGEST_READ)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ObjectError::NotFound { key, .. } if *key == removed.sample.key),
        "{error:?}"
    );
    assert_eq!(store.read("train-001.tar//00120.jpg").await.unwrap(), photo(120));
    assert_eq!(all(&store, Layout::Auto, 50).await.len(), 121);
}

#[tokio::test]
async fn a_damaged_shard_is_named() {
    let server = S3Server::start().await;
    let good = shard(0, 10);
    server.contents.put("a.tar", good.slice(..good.len() / 2 + 100));
    server.contents.put("b.tar", "this is no archive at all");
    let store = server.open("s3://photos");
    for (key, words) in [("a.tar", "ends in the middle"), ("b.tar", "ends in the middle")] {
        let error = store.read(&format!("{key}//00001.jpg")).await.unwrap_err();
        assert!(
            matches!(&error, ObjectError::Shard { key: named, reason, .. } if named == key && reason.to_string().contains(words)),
            "{error}"
        );
    }
    assert!(matches!(
        store.list_as(Layout::Auto, None, 10).await,
        Err(ObjectError::Shard { .. })
    ));
}

/// Returns an archive of empty files.
fn named(names: &[&str]) -> Bytes {
    let mut archive = Vec::new();
    for name in names {
        let mut header = tar::Header::new_old();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(0);
        header.set_cksum();
        archive.extend_from_slice(header.as_bytes());
    }
    archive.into()
}

#[tokio::test]
async fn invalid_names_are_counted_once_for_any_page_size() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let files = [
        ("a\n", named(&[])),
        ("b.tar", named(&["../1.jpg", "1.jpg", "2.jpg", "a//b.json"])),
        ("c\n", named(&[])),
        ("d.tar", named(&["/3.jpg"])),
        ("e\n", named(&[])),
        ("f.tar", named(&["3.jpg", "a\n.jpg"])),
        ("g\n", named(&[])),
        ("h.tar", named(&["x/../y.jpg"])),
    ];
    for (name, content) in files {
        std::fs::write(at(name), content).unwrap();
    }
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    for limit in [1, 2, 3, 4, 100] {
        let mut keys = Vec::new();
        let mut left_out = 0;
        let mut after = None;
        loop {
            let page = store
                .list_as(Layout::Shards, after.as_deref(), limit)
                .await
                .unwrap();
            keys.extend(page.objects.into_iter().map(|object| object.sample.key));
            left_out += page.left_out.count;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(
            keys,
            ["b.tar//1.jpg", "b.tar//2.jpg", "f.tar//3.jpg"],
            "pages of {limit}"
        );
        assert_eq!(left_out, 8, "pages of {limit}");
    }
}

#[tokio::test]
async fn names_that_are_too_long_hide_no_others() {
    let server = S3Server::start().await;
    let deep = format!("{}/a.tar", "d".repeat(950));
    let names = [
        format!("1{}.jpg", "x".repeat(80)),
        format!("2{}.jpg", "x".repeat(80)),
    ];
    server
        .contents
        .put(&deep, named(&[&names[0], &names[1], "3.jpg"]));
    let store = server.open("s3://photos");
    let page = store.list_as(Layout::Shards, None, 2).await.unwrap();
    let keys: Vec<&str> = page
        .objects
        .iter()
        .map(|object| object.sample.key.as_str())
        .collect();
    assert_eq!(
        (keys, page.left_out.count),
        (vec![format!("{deep}//3.jpg").as_str()], 2)
    );
}

#[tokio::test]
async fn images_beside_archives_make_a_root_of_objects() {
    let server = S3Server::start().await;
    server.contents.put("backup.tar", shard(0, 2));
    server.contents.put("cat/1.jpg", "x");
    let store = server.open("s3://photos");
    let keys = |objects: Vec<ObjectInfo>| {
        objects
            .into_iter()
            .map(|object| object.sample.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        keys(all(&store, Layout::Auto, 1).await),
        ["backup.tar", "cat/1.jpg"]
    );
    assert_eq!(
        keys(all(&store, Layout::Shards, 10).await),
        ["backup.tar//00000.jpg", "backup.tar//00001.jpg"]
    );
}
