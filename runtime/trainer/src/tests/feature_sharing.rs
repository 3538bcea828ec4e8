//! Features shared between machines.

use super::computing_host::Storage;
use super::features::{TRAIN, VALIDATION, close, host, with_feature_cache};
use super::pipeline::png;
use super::whole_job::{Ran, photos, run};
use crate::{Event, FeatureTransfer, Job, SharedFeatureStore};
use frostline_features::{Cache, SegmentStore, Stored, Unavailable};
use frostline_tensor::BoxFuture;
use futures::FutureExt;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const ALL: usize = TRAIN + VALIDATION;

/// Operation to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    List,
    Read,
    Put,
    /// Uploads never finish.
    Hang,
}

#[derive(Debug)]
struct Memory {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    fault: Fault,
}

impl Memory {
    fn new() -> Arc<Self> {
        Self::failing(Fault::None, BTreeMap::new())
    }

    fn failing(fault: Fault, objects: BTreeMap<String, Vec<u8>>) -> Arc<Self> {
        Arc::new(Self {
            objects: Mutex::new(objects),
            fault,
        })
    }

    fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.objects.lock().unwrap().clone()
    }

    /// All segments by key.
    fn segments(&self) -> BTreeMap<String, Vec<u8>> {
        let mut objects = self.objects();
        objects.retain(|key, _| !key.ends_with("about.json"));
        objects
    }

    fn does(&self, fault: Fault) -> Result<(), Unavailable> {
        if self.fault == fault {
            return Err(Unavailable("store unreachable".to_owned()));
        }
        Ok(())
    }
}

impl SegmentStore for Memory {
    fn shown(&self) -> String {
        "memory".to_owned()
    }

    fn list(
        &self,
        folder: String,
        after: Option<String>,
        most: usize,
    ) -> BoxFuture<Result<Vec<Stored>, Unavailable>> {
        let objects = self.objects();
        let of = |(key, bytes): (&String, &Vec<u8>)| {
            let name = key.strip_prefix(&folder)?.strip_prefix('/')?.to_owned();
            let size = bytes.len() as u64;
            Some(Stored { name, size })
        };
        let new = |stored: &Stored| after.as_ref().is_none_or(|after| stored.name > *after);
        let found = objects.iter().filter_map(of).filter(new).take(most).collect();
        std::future::ready(self.does(Fault::List).map(|()| found)).boxed()
    }

    fn read(&self, key: String, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, Unavailable>> {
        let bytes = self.objects()[&key].clone();
        let end = bytes.len().min(range.end as usize);
        let part = bytes[range.start as usize..end].to_vec();
        std::future::ready(self.does(Fault::Read).map(|()| part)).boxed()
    }

    fn put_new(&self, key: String, bytes: Vec<u8>) -> BoxFuture<Result<bool, Unavailable>> {
        if self.fault == Fault::Hang {
            return std::future::pending().boxed();
        }
        let new = self.does(Fault::Put).map(|()| {
            let mut objects = self.objects.lock().unwrap();
            let new = !objects.contains_key(&key);
            objects.entry(key).or_insert(bytes);
            new
        });
        std::future::ready(new).boxed()
    }
}

/// A machine with a separate cache.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn job(&self, split: &str, store: &Arc<Memory>) -> Job {
        let mut job = with_feature_cache(split, &self.0);
        job.shared_store = Some(SharedFeatureStore::new(Arc::clone(store) as _));
        job
    }
}

fn shared(ran: &Ran) -> Vec<(FeatureTransfer, u64)> {
    let shared = ran.events.iter().filter_map(|event| match event {
        Event::Shared { what, rows, .. } => Some((*what, *rows)),
        _ => None,
    });
    shared.collect()
}

fn warnings(ran: &Ran) -> Vec<&str> {
    let warnings = ran.events.iter().filter_map(|event| match event {
        Event::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    warnings.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_machine_downloads_all_features() {
    let (first_host, _) = host().await;
    let store = Memory::new();
    let first = run(&first_host, Machine::new().job("r2", &store)).await;
    assert_eq!(shared(&first), [(FeatureTransfer::Sent, ALL as u64)]);
    let sent = store.objects();
    assert_eq!(sent.len(), 2, "{:?}", sent.keys());
    let (second_host, storage) = host().await;
    let second = run(&second_host, Machine::new().job("auto", &store)).await;
    second.outcome.as_ref().unwrap();
    assert_eq!((storage.extracted().len(), storage.uploaded().len()), (0, 0));
    assert_eq!(shared(&second), [(FeatureTransfer::Taken, ALL as u64)]);
    assert!(close(&second.losses(), &first.losses()));
    assert_eq!(store.objects(), sent);
    assert!(warnings(&first).is_empty() && warnings(&second).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_features_are_uploaded() {
    let (first_host, _) = host().await;
    let (store, machine) = (Memory::new(), Machine::new());
    run(&first_host, machine.job("features", &store)).await;
    let mut grown = Storage {
        etag: Some("1".to_owned()),
        ..photos()
    };
    for number in 0..2_u32 {
        let key = format!("train/red/new-{number}.png");
        grown.objects.insert(key, png([250, 10, 10], 16 + number));
    }
    let (second_host, storage) = grown.start().await;
    let other = Machine::new();
    let second = run(&second_host, other.job("features", &store)).await;
    assert_eq!(storage.extracted().len(), 2);
    assert_eq!(
        shared(&second),
        [(FeatureTransfer::Taken, ALL as u64), (FeatureTransfer::Sent, 2)]
    );
    let third = run(&second_host, machine.job("features", &store)).await;
    assert_eq!(
        (storage.extracted().len(), shared(&third)),
        (0, vec![(FeatureTransfer::Taken, 2)])
    );
    // Existing features are neither downloaded nor uploaded.
    let fourth = run(&second_host, machine.job("features", &store)).await;
    assert_eq!((shared(&fourth), store.segments().len()), (vec![], 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_of_segments_are_scanned() {
    let (first_host, _) = host().await;
    let (store, machine) = (Memory::new(), Machine::new());
    let first = run(&first_host, machine.job("features", &store)).await;
    // Store the same rows in segments of two, to fill several pages.
    let cache = Cache::new(machine.0.path().join("features"), 1 << 30);
    let listed = cache.list().remove(0);
    let opened = cache.open(&listed.subject.unwrap(), &listed.row.unwrap(), 0, Arc::new(drop));
    let rows = opened.unwrap();
    let many = rows
        .unshared(&HashSet::new())
        .chunks(2)
        .map(|keys| {
            let segment = rows.segment(keys).unwrap();
            (
                format!("{}/{}", rows.name(), segment.name()),
                segment.into_bytes(),
            )
        })
        .collect();
    let (second_host, storage) = host().await;
    let store = Memory::failing(Fault::None, many);
    let second = run(&second_host, Machine::new().job("features", &store)).await;
    assert_eq!(
        (storage.extracted().len(), shared(&second)),
        (0, vec![(FeatureTransfer::Taken, ALL as u64)])
    );
    assert!(close(&second.losses(), &first.losses()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_segment_is_reported_skipped_and_replaced() {
    let (first_host, _) = host().await;
    let store = Memory::new();
    let first = run(&first_host, Machine::new().job("features", &store)).await;
    let (key, bytes) = store.segments().pop_first().unwrap();
    let (folder, name) = key.split_once('/').unwrap();
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        (key.clone(), bytes)
    };
    let odd = (format!("{folder}/notes.txt"), b"x".to_vec());
    let cut = (key.clone(), bytes[..bytes.len() - 1].to_vec());
    // Offsets of magic, version, row count, row size, subject, checksum, record and row.
    let places = [0, 8, 12, 16, 24, 40, 50, bytes.len() - 1];
    for (key, bytes) in places.into_iter().map(flipped).chain([cut, odd]) {
        let store = Memory::failing(Fault::None, BTreeMap::from([(key.clone(), bytes)]));
        let (host, storage) = host().await;
        let ran = run(&host, Machine::new().job("features", &store)).await;
        assert_eq!(storage.extracted().len(), ALL);
        assert!(close(&ran.losses(), &first.losses()));
        let warned = warnings(&ran);
        let named = key.strip_prefix(folder).unwrap().trim_start_matches('/');
        assert!(warned.len() == 1 && warned[0].contains(named), "{warned:?}");
        assert_eq!(shared(&ran), [(FeatureTransfer::Sent, ALL as u64)], "{name}");
        // The next job finds the new segments as well.
        let next = run(&host, Machine::new().job("features", &store)).await;
        assert_eq!(storage.extracted().len(), 0, "{:?}", store.objects().keys());
        assert!(close(&next.losses(), &first.losses()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_costs_one_warning() {
    let (first_host, _) = host().await;
    let full = Memory::new();
    let first = run(&first_host, Machine::new().job("features", &full)).await;
    let objects = full.objects();
    for (fault, objects) in [
        (Fault::List, BTreeMap::new()),
        (Fault::Read, objects),
        (Fault::Put, BTreeMap::new()),
    ] {
        let store = Memory::failing(fault, objects);
        let (host, storage) = host().await;
        let machine = Machine::new();
        let ran = run(&host, machine.job("features", &store)).await;
        assert_eq!(
            (storage.extracted().len(), shared(&ran)),
            (ALL, vec![]),
            "{fault:?}"
        );
        assert!(close(&ran.losses(), &first.losses()));
        let warned = warnings(&ran);
        assert!(
            warned.len() == 1 && warned[0].contains("store unreachable"),
            "{fault:?}: {warned:?}"
        );
        // The next job uploads the features that could not be sent.
        let mended = Memory::new();
        let next = run(&host, machine.job("features", &mended)).await;
        assert_eq!(
            (storage.extracted().len(), shared(&next)),
            (0, vec![(FeatureTransfer::Sent, ALL as u64)])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn features_of_unversioned_objects_are_not_shared() {
    let (host, _) = photos().start().await;
    let store = Memory::new();
    let ran = run(&host, Machine::new().job("features", &store)).await;
    ran.outcome.as_ref().unwrap();
    assert_eq!((store.objects().len(), shared(&ran)), (0, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_time_out_at_the_end_of_a_job() {
    let (host, _) = host().await;
    let machine = Machine::new();
    let store = Memory::failing(Fault::Hang, BTreeMap::new());
    let mut job = machine.job("features", &store);
    job.shared_store = Some(SharedFeatureStore::with_timeout(store, Duration::ZERO));
    let ran = run(&host, job).await;
    assert!(ran.outcome.as_ref().unwrap().model.exists());
    let waits = |event: &Event| matches!(event, Event::Sharing { .. });
    assert_eq!(ran.events.iter().filter(|event| waits(event)).count(), 1);
    let warned = warnings(&ran);
    assert!(warned.len() == 1 && warned[0].contains("memory"), "{warned:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_freeze_cut_is_shared() {
    let (host, storage) = host().await;
    let store = Memory::new();
    let unfreezing = |mut job: Job| {
        job.spec.unfreeze = "3=r1".parse().unwrap();
        job.spec.recipe.epochs = 4;
        job
    };
    let first = run(&host, unfreezing(Machine::new().job("none", &store))).await;
    storage.extracted();
    assert_eq!(shared(&first), [(FeatureTransfer::Sent, ALL as u64); 2]);
    let second = run(&host, unfreezing(Machine::new().job("none", &store))).await;
    assert_eq!(storage.extracted().len(), 0);
    assert!(close(&second.losses(), &first.losses()));
}
