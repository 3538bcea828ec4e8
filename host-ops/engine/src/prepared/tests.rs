//! Tests of the prepared stages on disk.

use super::Prepared;
use super::name::Naming;
use super::store::{NETWORK, StageGuard, Store, WEIGHTS};
use crate::SessionOptions;
use frostline_tensor::{Precision, Stage};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

fn stage(model: &str) -> Stage {
    Stage {
        model: model.to_owned(),
        from: "x".to_owned(),
        to: "y".to_owned(),
        pixels: None,
        precision: Precision::Full,
    }
}

fn write(folder: &Path) -> Result<Result<(), String>, ()> {
    fs::write(folder.join(NETWORK), "network").unwrap();
    fs::write(folder.join(WEIGHTS), vec![1; 1000]).unwrap();
    Ok(Ok(()))
}

/// Returns the prepared stage, and whether it had to be prepared.
fn get(prepared: &Prepared, model: &str) -> (Option<StageGuard>, bool) {
    let mut made = false;
    let lent = prepared.get(&stage(model), |folder| {
        made = true;
        write(folder)
    });
    (lent.unwrap(), made)
}

fn open(folder: &Path, most_bytes: u64) -> Prepared {
    Prepared::open(folder, most_bytes, &SessionOptions::default()).unwrap()
}

#[test]
fn each_precision_has_its_own_prepared_stage() {
    let naming = Naming::from_parts("1.0", 1, "cpu", &SessionOptions::default());
    let name = |precision| {
        naming.name(&Stage {
            precision,
            ..stage("same")
        })
    };
    let names = [Precision::Full, Precision::Tf32, Precision::F16].map(name);
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), 3, "{names:?}");
}

#[test]
fn a_stage_is_prepared_once_even_for_many_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = open(folder.path(), 1 << 20);
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let lent = prepared.get(&stage("same"), |folder| {
                    made.fetch_add(1, Ordering::Relaxed);
                    write(folder)
                });
                assert_eq!(
                    fs::read(lent.unwrap().unwrap().path().join(NETWORK)).unwrap(),
                    b"network"
                );
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 1);
    let another_host_run = open(folder.path(), 1 << 20);
    assert!(!get(&another_host_run, "same").1, "the stage exists");
    assert!(get(&another_host_run, "other").1);
}

#[test]
fn stages_of_models_that_are_gone_go_unless_a_lane_opens_them() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = open(folder.path(), 1 << 20);
    let opening = get(&prepared, "opening").0.unwrap();
    drop((get(&prepared, "gone"), get(&prepared, "stays")));
    prepared.retain(|model| model == "stays").unwrap();
    let made = |model| get(&prepared, model).1;
    assert!(made("gone") && !made("stays") && !made("opening"));
    drop(opening);
    prepared.retain(|model| model == "stays").unwrap();
    assert!(made("opening") && !made("stays"));
}

#[test]
fn what_was_altered_is_prepared_anew() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = open(folder.path(), 1 << 20);
    let alterations: [fn(&Path); 6] = [
        |path| fs::write(path.join(WEIGHTS), vec![2; 1000]).unwrap(),
        |path| fs::write(path.join(WEIGHTS), vec![1; 999]).unwrap(),
        |path| fs::write(path.join(NETWORK), "natwork").unwrap(),
        |path| fs::remove_file(path.join(WEIGHTS)).unwrap(),
        |path| fs::remove_file(path.join(NETWORK)).unwrap(),
        |path| fs::write(path.join("seal"), "short").unwrap(),
    ];
    for alter in alterations {
        let path = get(&prepared, "stage").0.unwrap().path().to_owned();
        assert!(!get(&prepared, "stage").1);
        alter(&path);
        // A host that starts again detects the change.
        let again = open(folder.path(), 1 << 20);
        assert!(get(&again, "stage").1);
        assert_eq!(fs::read(path.join(WEIGHTS)).unwrap(), vec![1; 1000]);
    }
    let path = get(&prepared, "stage").0.unwrap().path().to_owned();
    fs::write(path.join(WEIGHTS), vec![3; 1000]).unwrap();
    assert!(get(&prepared, "stage").1, "altered while the host runs");
}

#[test]
fn a_stage_of_another_name_engine_or_processor_is_another() {
    let options = SessionOptions::default();
    let name = |engine, processor| Naming::from_parts(engine, 1, processor, &options).name(&stage("model"));
    let names = [name("1.31.1", "a"), name("1.31.2", "a"), name("1.31.1", "b")];
    assert_ne!(names[0], names[1]);
    assert_ne!(names[0], names[2]);
    // The hash also covers the folder's name.
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 1 << 20).unwrap();
    let begun = store.create_folder("one").unwrap();
    write(begun.path()).unwrap().unwrap();
    drop(store.finish("one", begun).unwrap());
    fs::rename(folder.path().join("one"), folder.path().join("two")).unwrap();
    assert!(store.find("two").is_none());
}

#[test]
fn what_was_used_longest_ago_makes_room_unless_it_is_lent() {
    let folder = tempfile::tempdir().unwrap();
    // The limit allows two stages, but not three.
    let prepared = open(folder.path(), 2600);
    let lent = get(&prepared, "first").0.unwrap();
    drop(get(&prepared, "second"));
    drop(get(&prepared, "third"));
    assert!(lent.path().join(NETWORK).exists(), "a lane is opening the stage");
    assert!(!get(&prepared, "third").1);
    assert!(get(&prepared, "second").1, "the second stage was evicted");
    drop(lent);
}

#[test]
fn what_cannot_be_prepared_runs_from_its_bytes_and_is_not_tried_again_soon() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = open(folder.path(), 1 << 20);
    let mut tries = 0;
    for _ in 0..3 {
        let got = prepared.get(&stage("full"), |_| {
            tries += 1;
            Ok::<_, ()>(Err("no space left on device".to_owned()))
        });
        assert!(got.unwrap().is_none());
    }
    assert_eq!(tries, 1);
    let too_large = open(folder.path(), 500);
    assert!(get(&too_large, "large").0.is_none());
    let unfinished = fs::read_dir(folder.path()).unwrap();
    let unfinished = unfinished.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir());
    assert_eq!(unfinished.count(), 0, "failed attempts are removed");
}

#[test]
fn an_error_unrelated_to_the_stage_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = open(folder.path(), 1 << 20);
    let gone = prepared.get(&stage("stage"), |_| Err("the client left"));
    assert_eq!(gone.unwrap_err(), "the client left");
    assert!(get(&prepared, "stage").1);
}

#[test]
fn a_folder_that_others_may_write_to_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Prepared::open(folder.path(), 1, &SessionOptions::default()).is_none());
}
