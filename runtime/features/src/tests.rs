mod provenance;

use crate::{Cache, Content, Form, Row, RowKey, RowKeys, Stopped, Store, Subject};
use frostline_tensor::{Augmentation, ObjectInfo, SampleRef, Tensor, View};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const WIDTH: usize = 5;
/// Row size in bytes: [`WIDTH`] values in f32 and a record.
const ROW: u64 = 20 + 24;

fn subject(freeze: &str) -> Subject {
    Subject {
        model: "net".to_owned(),
        freeze: freeze.to_owned(),
        data: "photos".to_owned(),
        made_by: serde_json::json!({"layers": freeze}),
    }
}

fn row(form: Form) -> Row {
    Row {
        shape: vec![WIDTH],
        tensors: Vec::new(),
        form,
    }
}

fn keys(numbers: impl IntoIterator<Item = usize>) -> Vec<RowKey> {
    let keys = RowKeys::new("photos", None, [0; 16]);
    let sample = |number: usize| SampleRef {
        key: number.to_string(),
        etag: Some("1".to_owned()),
    };
    numbers
        .into_iter()
        .map(|number| keys.key_of(&sample(number), Content::Etag))
        .collect()
}

fn value(number: usize, place: usize) -> f32 {
    number as f32 + place as f32 / 8.0
}

fn tensor(numbers: &[usize]) -> Tensor {
    let values = numbers
        .iter()
        .flat_map(|number| (0..WIDTH).map(|place| value(*number, place)));
    Tensor::f32([numbers.len(), WIDTH], values.collect()).unwrap()
}

struct TestCache {
    folder: TempDir,
    told: Arc<Mutex<Vec<String>>>,
}

impl TestCache {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            told: Arc::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("features")
    }

    fn cache(&self, limit: u64) -> Cache {
        Cache::new(self.path(), limit)
    }

    fn told(&self) -> Stopped {
        let told = Arc::clone(&self.told);
        Arc::new(move |why| told.lock().unwrap().push(why))
    }

    fn open(&self) -> Store {
        self.open_within(1 << 20, "freeze", 10)
    }

    fn open_within(&self, limit: u64, freeze: &str, rows: u64) -> Store {
        let cache = self.cache(limit);
        cache
            .open(&subject(freeze), &row(Form::F32), rows, self.told())
            .unwrap()
    }

    /// Returns the folder of the only store.
    fn store(&self) -> PathBuf {
        self.path().join(&self.cache(0).list()[0].name)
    }
}

fn keep(store: &Store, numbers: &[usize]) {
    let keys = keys(numbers.iter().copied()).into_iter().map(Some);
    store.keep(keys.collect(), tensor(numbers));
}

/// Returns the cached samples and verifies the values of the rows.
fn found(store: &Store, numbers: &[usize]) -> Vec<usize> {
    let found = store.read(&keys(numbers.iter().copied()));
    let there: Vec<usize> = found.places.iter().map(|place| numbers[*place]).collect();
    let rows = found
        .rows
        .map_or_else(Vec::new, |rows| rows.as_f32().unwrap().to_vec());
    assert_eq!(rows, tensor(&there).as_f32().unwrap());
    there
}

#[test]
fn rows_are_found_at_once_and_by_the_next_job() {
    let place = TestCache::new();
    let store = place.open();
    keep(&store, &[4, 2, 9]);
    assert_eq!(found(&store, &[9, 1, 4, 2]), [9, 4, 2]);
    // Row 2 exists, and row 6 has no key.
    let some = keys([2, 5, 6]).into_iter().map(Some).zip([true, true, false]);
    let some = some.map(|(key, wanted)| key.filter(|_| wanted)).collect();
    store.keep(some, tensor(&[2, 5, 6]));
    assert_eq!(
        (store.count(keys(0..10).iter()), found(&store, &[5, 6])),
        (4, vec![5])
    );
    drop(store);
    let again = place.open();
    assert_eq!(found(&again, &[2, 4, 5, 6, 9]), [2, 4, 5, 9]);
    assert_eq!(again.count(keys(0..10).iter()), 4);
    keep(&again, &[6]);
    again.settle();
    let listed = place.cache(0).list();
    assert_eq!((listed.len(), listed[0].rows, listed[0].used), (1, 5, true));
    assert_eq!(listed[0].subject, Some(subject("freeze")));
}

#[test]
fn f16_rows_are_equal_before_and_after_the_write() {
    let place = TestCache::new();
    let open = || {
        let cache = place.cache(1 << 20);
        cache
            .open(&subject("freeze"), &row(Form::F16), 9, place.told())
            .unwrap()
    };
    let values = vec![1.0 / 3.0, 1e-9, -2.5, 65504.0, 7.0, 1.0, 2.0, 1e6, 4.0, 5.0];
    let store = open();
    let two = keys([0, 1]);
    store.keep(
        two.iter().copied().map(Some).collect(),
        Tensor::f32([2, WIDTH], values).unwrap(),
    );
    let at_once = store.read(&two[..1]).rows;
    // The second row has a value that exceeds the range of half precision.
    assert_eq!((store.count(two.iter()), store.read(&two).places), (1, vec![0]));
    store.settle();
    let written = store.read(&two);
    assert_eq!(at_once, written.rows);
    assert_eq!(written.places, [0]);
    let first = written.rows.unwrap().as_f32().unwrap()[0];
    assert!((first - 1.0 / 3.0).abs() < 1e-3 && first != 1.0 / 3.0);
    drop(store);
    assert_eq!(open().read(&two[..1]).rows, at_once);
}

#[test]
fn rounded_rows_are_equal_to_later_reads() {
    let place = TestCache::new();
    let open = |form| {
        let cache = place.cache(1 << 20);
        let opened = cache.open(&subject("freeze"), &row(form), 9, place.told());
        opened.unwrap()
    };
    let values: Vec<f32> = (0..15).map(|number| 1.0 / 3.0 + number as f32).collect();
    let values = [values, vec![1e6; WIDTH]].concat();
    let fresh = Tensor::f32([4, WIDTH], values).unwrap();
    for form in [Form::F32, Form::F16] {
        let store = open(form);
        let mut wanted: Vec<Option<RowKey>> = keys(0..4).into_iter().map(Some).collect();
        wanted[1] = None;
        let mut used = fresh.clone();
        store.round(&mut wanted, &mut used);
        let row = |rows: &Tensor, row: usize| rows.as_f32().unwrap()[row * WIDTH..][..WIDTH].to_vec();
        // Rows that are not cached are used without rounding, in this and all later epochs.
        assert_eq!([row(&used, 1), row(&used, 3)], [row(&fresh, 1), row(&fresh, 3)]);
        assert_eq!(wanted[3].is_some(), form == Form::F32);
        store.keep(wanted, used.clone());
        store.settle();
        let found = store.read(&keys([0, 2])).rows.unwrap();
        assert_eq!([row(&found, 0), row(&found, 1)], [row(&used, 0), row(&used, 2)]);
        assert_eq!(row(&used, 0) == row(&fresh, 0), form == Form::F32);
    }
}

#[test]
fn rows_have_names_of_their_own() {
    let view = |number| View {
        augmentation: Augmentation::default(),
        seed: 1,
        number,
    };
    let sample = |key: &str, etag: Option<&str>| SampleRef {
        key: key.to_owned(),
        etag: etag.map(str::to_owned),
    };
    let mut names = HashSet::new();
    for (root, view, run) in [
        ("photos", None, 0),
        ("photo", None, 0),
        ("photos", Some(view(1)), 0),
        ("photos", Some(view(2)), 0),
    ] {
        let keys = RowKeys::new(root, view.as_ref(), [run; 16]);
        for sample in [
            sample("a", Some("1")),
            sample("a", Some("2")),
            sample("a1", Some("")),
            sample("a", None),
            sample("a", Some("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")),
        ] {
            assert!(
                names.insert(keys.key_of(&sample, Content::Etag)),
                "{root} {sample:?}"
            );
        }
    }
    // Without an etag, only one job can derive the key.
    let of = |run, etag| RowKeys::new("photos", None, [run; 16]).key_of(&sample("a", etag), Content::Etag);
    assert_ne!(of(0, None), of(1, None));
    assert_eq!(of(0, Some("1")), of(1, Some("1")));
}

#[test]
fn rows_of_files_are_found_by_their_content() {
    let place = TestCache::new();
    let store = place.open();
    let keys = RowKeys::new("photos", None, [0; 16]);
    let file = |changed| ObjectInfo {
        sample: SampleRef {
            key: "a.jpg".to_owned(),
            etag: Some("1".to_owned()),
        },
        size: 1,
        label: None,
        changed: Some(changed),
    };
    // A job hashes the file and caches its row.
    assert_eq!(store.unhashed(&keys, &[file(10)]), [file(10)]);
    store.record_contents(&keys, &[file(10)], &[Some(77)]);
    assert_eq!(store.content(&keys, &file(10)), Content::Hash(77));
    let key_of = |changed| keys.key_of(&file(changed).sample, store.content(&keys, &file(changed)));
    let first = key_of(10);
    store.keep(vec![Some(first)], tensor(&[1]));
    store.settle();
    // The file changed, perhaps only its permissions. The row is not used before the file is hashed again.
    let unhashed = key_of(20);
    assert!(store.read(&[unhashed]).places.is_empty());
    let counted = keys.key_of(&file(20).sample, Content::Hash(0));
    assert_eq!(
        (
            store.count([&counted].into_iter()),
            store.count_samples([&counted].into_iter())
        ),
        (0, 1)
    );
    store.record_contents(&keys, &[file(20), file(30)], &[Some(77), Some(78)]);
    assert_eq!(key_of(20), first, "the content is the same");
    assert!(
        store.read(&[key_of(30)]).places.is_empty(),
        "the content is different"
    );
    // A hash that the hosts did not provide is not recorded, and other jobs find the others.
    store.record_contents(&keys, &[file(40)], &[None]);
    let other = place.open();
    let states = [10, 20, 30, 40].map(|changed| other.content(&keys, &file(changed)));
    let expected = [
        Content::Hash(77),
        Content::Hash(77),
        Content::Hash(78),
        Content::Unknown,
    ];
    assert_eq!(states, expected);
    store.record_contents(&keys, &[file(40)], &[Some(79)]);
    other.refresh().unwrap();
    assert_eq!(other.content(&keys, &file(40)), Content::Hash(79));
    // The content replaces half of the key, so that other samples, versions, roots and views still differ.
    let others = [
        RowKeys::new("photo", None, [0; 16]).key_of(&file(10).sample, Content::Hash(77)),
        keys.key_of(
            &SampleRef {
                key: "b.jpg".to_owned(),
                ..file(10).sample
            },
            Content::Hash(77),
        ),
        keys.key_of(
            &SampleRef {
                etag: Some("2".to_owned()),
                ..file(10).sample
            },
            Content::Hash(77),
        ),
        keys.key_of(&file(10).sample, Content::Etag),
    ];
    assert!(others.iter().all(|key| *key != first));
    // A record that was not completely written does not shift the next ones.
    drop((store, other));
    let contents = place.store().join("contents");
    let whole = std::fs::read(&contents).unwrap();
    std::fs::write(&contents, &whole[..whole.len() - 5]).unwrap();
    let store = place.open();
    assert_eq!(store.content(&keys, &file(40)), Content::Unknown);
    store.record_contents(&keys, &[file(50)], &[Some(80)]);
    assert_eq!(place.open().content(&keys, &file(50)), Content::Hash(80));
}

#[test]
fn jobs_write_in_turns_and_find_each_others_rows() {
    let place = TestCache::new();
    let first = place.open();
    let second = place.open();
    keep(&first, &[1, 3]);
    first.settle();
    keep(&second, &[2, 3]);
    second.settle();
    assert_eq!(found(&second, &[1, 2, 3]), [1, 2, 3]);
    assert_eq!(found(&first, &[1, 2, 3]), [1, 3]);
    first.refresh().unwrap();
    assert_eq!(found(&first, &[1, 2, 3]), [1, 2, 3]);
    // The common row is stored only once.
    assert_eq!(place.cache(0).list()[0].rows, 3);
}

#[test]
fn many_writers_at_once_lose_and_mix_nothing() {
    let place = TestCache::new();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let store = place.open_within(1 << 20, "freeze", 500);
            scope.spawn(move || {
                for number in 0..100 {
                    let two = [number, 100 + 4 * number + part];
                    // If a writer did not get the lock in time, the rows are queued again, as in the next
                    // epoch of a job.
                    while found(&store, &two).len() < 2 {
                        keep(&store, &two);
                        store.settle();
                    }
                }
            });
        }
    });
    let all: Vec<usize> = (0..500).collect();
    assert_eq!(found(&place.open(), &all), all);
    assert_eq!(place.cache(0).list()[0].rows, 500);
}

#[test]
fn a_suspended_writer_does_not_block_other_jobs() {
    let place = TestCache::new();
    let store = place.open();
    let turn = fs::File::create(place.path().join("turn")).unwrap();
    turn.lock().unwrap();
    keep(&store, &[1]);
    store.settle();
    assert!(
        found(&store, &[1]).is_empty() && store.take_warnings()[0].starts_with("1 features were not cached")
    );
    turn.unlock().unwrap();
    keep(&store, &[1]);
    store.settle();
    assert!(found(&store, &[1]) == [1] && store.take_warnings().is_empty());
}

#[test]
fn a_full_queue_passes_over_missing_rows_only() {
    let place = TestCache::new();
    let store = place.open();
    keep(&store, &[1]);
    store.settle();
    store.writer.fill_queue();
    keep(&store, &[1]);
    assert!(store.take_warnings().is_empty());
    keep(&store, &[1, 2]);
    assert!(store.take_warnings()[0].starts_with("1 features were not cached"));
}

fn flip(file: &Path, byte: usize, bit: u8) {
    let mut bytes = fs::read(file).unwrap();
    bytes[byte] ^= 1 << bit;
    fs::write(file, bytes).unwrap();
}

#[test]
fn no_flipped_bit_makes_a_wrong_row() {
    let place = TestCache::new();
    keep(&place.open(), &[0, 1, 2]);
    for name in ["rows", "index"] {
        let file = place.store().join(name);
        for byte in 0..fs::metadata(&file).unwrap().len() as usize {
            flip(&file, byte, (byte % 8) as u8);
            let there = found(&place.open(), &[0, 1, 2]);
            assert_eq!(there.len(), 2, "byte {byte} of {name}");
            flip(&file, byte, (byte % 8) as u8);
        }
    }
    let about = place.store().join("about.json");
    flip(&about, 3, 1);
    assert_eq!(found(&place.open(), &[0, 1, 2]), [0, 1, 2]);
}

#[test]
fn truncated_files_are_repaired() {
    for (name, cut) in [
        ("rows", 0),
        ("rows", 21),
        ("index", 0),
        ("index", 30),
        ("index", 48),
    ] {
        let place = TestCache::new();
        keep(&place.open(), &[0, 1, 2]);
        let file = fs::File::options()
            .write(true)
            .open(place.store().join(name))
            .unwrap();
        file.set_len(cut).unwrap();
        let store = place.open();
        let there = found(&store, &[0, 1, 2]);
        let width = if name == "rows" { 20 } else { 24 };
        assert_eq!(there.len() as u64, cut / width, "{name} of {cut} bytes");
        keep(&store, &[0, 1, 2, 3]);
        drop(store);
        assert_eq!(
            found(&place.open(), &[0, 1, 2, 3]),
            [0, 1, 2, 3],
            "{name} of {cut} bytes"
        );
    }
}

#[test]
fn a_broken_row_is_told_and_replaced() {
    let place = TestCache::new();
    keep(&place.open(), &[0, 1]);
    flip(&place.store().join("rows"), 0, 0);
    let store = place.open();
    assert!(found(&store, &[0, 1]) == [1] && store.take_warnings()[0].starts_with("1 cached features"));
    keep(&store, &[0]);
    store.settle();
    assert!(found(&store, &[0, 1]) == [0, 1] && store.take_warnings().is_empty());
}

#[test]
fn the_store_used_longest_ago_makes_room() {
    let place = TestCache::new();
    let age = |freeze: &str, rows: u64| {
        let store = place.open_within(u64::MAX, freeze, 10);
        keep(&store, &(0..rows as usize).collect::<Vec<_>>());
    };
    age("a", 3);
    age("b", 3);
    let mark = |name: &str| {
        let listed = place.cache(0).list();
        let of = |freeze: &str| {
            listed
                .iter()
                .find(|kept| kept.subject == Some(subject(freeze)))
                .unwrap()
        };
        place.path().join(&of(name).name).join("used")
    };
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    fs::File::options()
        .write(true)
        .open(mark("a"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    let taken: u64 = place.cache(0).list().iter().map(|kept| kept.bytes).sum();
    let freezes = || -> Vec<String> {
        let listed = place.cache(0).list();
        let mut freezes: Vec<String> = listed
            .into_iter()
            .map(|kept| kept.subject.unwrap().freeze)
            .collect();
        freezes.sort();
        freezes
    };
    // All stores fit.
    drop(place.open_within(taken + 10 * ROW + 4096, "c", 10));
    assert_eq!(freezes(), ["a", "b", "c"]);
    let taken: u64 = place.cache(0).list().iter().map(|kept| kept.bytes).sum();
    let used = place.open_within(u64::MAX, "b", 10);
    assert!(used.take_warnings().is_empty());
    let new = place.open_within(taken + 10 * ROW - 1, "d", 10);
    assert_eq!(freezes(), ["b", "c", "d"]);
    let news = new.take_warnings();
    assert!(news[0].starts_with("evicted 1 cached feature stores"), "{news:?}");
    assert!(new.take_warnings().is_empty());
    // If a job cannot fit, nothing is evicted.
    let _least = place.open_within(1, "e", 10);
    assert_eq!(freezes(), ["b", "c", "d", "e"]);
    // Stores in use are never evicted.
    let kept = |freeze: &str| {
        let listed = place.cache(0).list();
        let kept = listed
            .into_iter()
            .find(|kept| kept.subject == Some(subject(freeze)));
        kept.unwrap().bytes
    };
    let in_use = kept("b") + kept("d") + kept("e");
    let _more = place.open_within(in_use + 10 * ROW, "f", 10);
    assert_eq!(freezes(), ["b", "d", "e", "f"]);
    let refused = place.cache(0).clear(&[]).unwrap_err().to_string();
    assert!(refused.contains("used by a running job"), "{refused}");
    drop(used);
    assert_eq!(freezes(), ["b", "d", "e", "f"]);
    drop((new, _least, _more));
    let left = place.cache(0).list().len();
    assert_eq!(place.cache(0).clear(&[]).unwrap().0, left);
    assert!(place.cache(0).list().is_empty());
}

#[test]
fn jobs_together_take_no_more_than_the_limit() {
    let place = TestCache::new();
    let limit = 100 * ROW;
    let stores = ["a", "b"].map(|freeze| place.open_within(limit, freeze, 100));
    for number in 0..100 {
        for store in &stores {
            keep(store, &[number]);
            store.settle();
        }
    }
    let rows: u64 = place.cache(0).list().iter().map(|kept| kept.rows).sum();
    assert!((80..=100).contains(&rows), "{rows}");
    assert_eq!(place.told.lock().unwrap().len(), 2);
}

#[test]
fn writing_stops_where_the_room_ends_and_says_so_once() {
    let place = TestCache::new();
    let store = place.open_within(3 * ROW, "freeze", 10);
    keep(&store, &[0, 1]);
    store.settle();
    keep(&store, &[2, 3]);
    store.settle();
    keep(&store, &[4]);
    store.settle();
    assert_eq!(found(&store, &[0, 1, 2, 3, 4]), [0, 1]);
    let told = place.told.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains("132 bytes"), "{told:?}");
}

#[test]
fn a_full_disk_ends_the_writing_and_nothing_else() {
    for name in ["rows", "index"] {
        let place = TestCache::new();
        keep(&place.open(), &[0]);
        let file = place.store().join(name);
        let before = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        symlink("/dev/full", &file).unwrap();
        let store = place.open();
        keep(&store, &[1]);
        store.settle();
        assert!(found(&store, &[1]).is_empty());
        drop(store);
        let told = place.told.lock().unwrap().clone();
        assert!(told.len() == 1 && told[0].contains("space"), "{told:?}");
        fs::remove_file(&file).unwrap();
        fs::write(&file, before).unwrap();
        // With an index that seemed to be empty, the new row replaced the first one.
        let left: &[usize] = if name == "rows" { &[0] } else { &[] };
        assert_eq!(found(&place.open(), &[0, 1]), left, "{name}");
    }
}

#[test]
fn errors_name_the_folder() {
    let place = TestCache::new();
    fs::write(place.path(), "x").unwrap();
    let cache = place.cache(1 << 20);
    let refused = cache.open(&subject("freeze"), &row(Form::F32), 1, place.told());
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("features"), "{refused}");
    let huge = Row {
        shape: vec![usize::MAX, 2],
        tensors: Vec::new(),
        form: Form::F32,
    };
    let other = TestCache::new();
    let refused = other
        .cache(1 << 20)
        .open(&subject("freeze"), &huge, 1, other.told());
    assert!(refused.err().unwrap().to_string().contains("too large"));
}

#[test]
fn rows_of_another_shape_are_not_taken() {
    let place = TestCache::new();
    let store = place.open();
    let rows = Tensor::f32([1, WIDTH + 1], vec![0.0; WIDTH + 1]).unwrap();
    store.keep(keys([0]).into_iter().map(Some).collect(), rows);
    assert_eq!(store.count(keys([0]).iter()), 0);
}
