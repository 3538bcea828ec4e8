//! Tests of sharing rows between machines.

use super::*;
use crate::{BrokenSegment, Segment, SegmentForm};

/// Returns a segment with the rows 0 to 2 of a store.
fn segment(store: &Store) -> Segment {
    let keys = keys([0, 1, 2]);
    keep(store, &[0, 1, 2]);
    store.settle();
    store.segment(&keys).unwrap()
}

fn own(numbers: impl IntoIterator<Item = usize>) -> Vec<RowKey> {
    let keys = RowKeys::new("photos", None, [7; 16]);
    let sample = |number: usize| SampleRef::new(number.to_string());
    numbers
        .into_iter()
        .map(|number| keys.key_of(&sample(number), Content::Etag))
        .collect()
}

#[test]
fn rows_travel_from_one_machine_to_another() {
    for form in [Form::F32, Form::F16] {
        let (here, there) = (TestCache::new(), TestCache::new());
        let open = |place: &TestCache| {
            let cache = place.cache(1 << 20);
            cache
                .open(&subject("freeze"), &row(form), 10, place.told())
                .unwrap()
        };
        let (store, other) = (open(&here), open(&there));
        let sent = segment(&store);
        let name = sent.name();
        assert_eq!((sent.rows(), sent.keys()), (3, keys([0, 1, 2])));
        let bytes = sent.into_bytes();
        let form = other.segments();
        assert_eq!(form.rows(&name, bytes.len() as u64), Ok(3));
        assert_eq!(form.keys(&bytes[..form.head_bytes(3)], 3), Ok(keys([0, 1, 2])));
        keep(&other, &[1]);
        let taken = form.check(&name, bytes).unwrap();
        assert_eq!(other.import(&taken), 2);
        assert_eq!(found(&other, &[0, 1, 2, 3]), [0, 1, 2]);
        // Downloaded rows are identical to computed ones.
        assert_eq!(other.segment(&keys([0, 1, 2])), store.segment(&keys([0, 1, 2])));
        assert_eq!(other.import(&taken), 0);
    }
}

#[test]
fn each_row_is_shared_once_and_those_of_one_job_never() {
    let place = TestCache::new();
    let store = place.open();
    keep(&store, &[2, 0]);
    store.keep(own([3, 4]).into_iter().map(Some).collect(), tensor(&[3, 4]));
    store.settle();
    assert_eq!(store.unshared(&HashSet::new()), keys([2, 0]));
    assert_eq!(store.unshared(&keys([2]).into_iter().collect()), keys([0]));
    assert_eq!(store.segment(&own([3, 4])), None);
    assert_eq!(store.segment(&keys([8])), None);
    flip(&place.store().join("rows"), 0, 0);
    assert_eq!(store.segment(&keys([2, 0])).unwrap().keys(), keys([0]));
}

#[test]
fn every_bit_of_a_segment_counts() {
    let place = TestCache::new();
    let store = place.open();
    let (form, sent) = (store.segments(), segment(&store));
    let (name, bytes) = (sent.name(), sent.into_bytes());
    let head = form.head_bytes(3);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(form.check(&name, flipped.clone()).is_err(), "bit {bit}");
        let told = form.keys(&flipped[..head], 3);
        assert_eq!(told.is_err(), bit / 8 < head, "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(form.check(&name, bytes[..length].to_vec()).is_err(), "{length}");
    }
    for length in 0..head {
        assert!(form.keys(&bytes[..length], 3).is_err(), "{length}");
    }
    assert!(form.check(&name, bytes).is_ok());
}

#[test]
fn a_segment_of_others_is_passed_over() {
    let place = TestCache::new();
    let store = place.open();
    let (form, sent) = (store.segments(), segment(&store));
    let (name, bytes) = (sent.name(), sent.into_bytes());
    let size = bytes.len() as u64;
    let check = |form: SegmentForm, bytes: &[u8]| form.check(&name, bytes.to_vec()).unwrap_err();
    let other = place.open_within(1 << 20, "another", 10).segments();
    assert_eq!(check(other, &bytes), BrokenSegment::Foreign);
    let wider = SegmentForm {
        row_bytes: form.row_bytes * 2,
        ..form
    };
    assert_eq!(check(wider, &bytes), BrokenSegment::Length { bytes: size });
    let mut newer = bytes.clone();
    newer[8] += 1;
    assert_eq!(check(form, &newer), BrokenSegment::Form);
    for odd in ["about", "x.rows", &name[1..], &name.to_uppercase()] {
        assert_eq!(form.rows(odd, size), Err(BrokenSegment::Name), "{odd}");
    }
    let many = (form.head_bytes(form.max_rows() + 1) + form.row_bytes * (form.max_rows() + 1)) as u64;
    for bytes in [0, 47, 48, size - 1, size + 1, many, u64::MAX] {
        assert_eq!(form.rows(&name, bytes), Err(BrokenSegment::Length { bytes }));
    }
}

#[test]
fn rows_for_which_there_is_no_room_are_not_taken() {
    let (here, there) = (TestCache::new(), TestCache::new());
    let sent = segment(&here.open());
    let small = there.open_within(2 * ROW, "freeze", 0);
    assert_eq!((small.free_rows(), small.import(&sent)), (2, 0));
    drop(small);
    assert_eq!(there.open().import(&sent), 3);
}

#[test]
fn one_of_a_machines_jobs_shares() {
    let place = TestCache::new();
    let (first, second) = (place.open(), place.open());
    assert!(first.shares() && !second.shares() && first.shares());
    drop(first);
    assert!(second.shares());
}

#[test]
fn public_descriptions_have_no_credentials() {
    for (data, shown) in [
        ("s3://photos/a/b", "s3://photos/a/b"),
        (
            "https://id:geheim@web.example/a?geheim#geheim",
            "https://web.example/a",
        ),
        ("https://web.example?geheim", "https://web.example"),
        ("abfs://photos@a.example/x", "abfs://photos@a.example/x"),
        ("abfs://photos:geheim@a.example/x", "abfs://photos@a.example/x"),
        ("/data/a?b@c", "/data/a?b@c"),
    ] {
        let subject = Subject {
            data: data.to_owned(),
            made_by: serde_json::json!({"parameters": "geheim"}),
            ..subject("freeze")
        };
        let text = String::from_utf8(subject.public_description(&row(Form::F32))).unwrap();
        assert!(!text.contains("geheim"), "{text}");
        let about: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(about["data"], shown);
    }
}
