//! How a listing becomes a task.

use crate::{Dataset, DatasetError};
use frostline_wire::ObjectInfo;

fn listing(keys: &[&str]) -> Vec<ObjectInfo> {
    keys.iter()
        .map(|key| ObjectInfo {
            key: (*key).to_owned(),
            size: 10,
            etag: None,
            label: None,
        })
        .collect()
}

fn divided(keys: &[&str], share: Option<f64>) -> Result<Dataset, DatasetError> {
    Dataset::from_listing("data", listing(keys), share, 0)
}

#[test]
fn folders_become_sorted_classes() {
    let data = divided(
        &[
            "validation/cat/1.jpg",
            "train/dog/b.jpg",
            "train/dog/a.jpg",
            "train/cat/.DS_Store",
            "train/.cache/x.jpg",
            "train/cat/x.jpg",
            "train/cat/",
            "validation/dog/2.jpg",
            "LICENSE",
            "notes/readme.txt",
        ],
        None,
    )
    .unwrap();
    assert_eq!(data.classes, ["cat", "dog"]);
    let train: Vec<_> = data
        .train
        .iter()
        .map(|sample| (sample.key.as_str(), sample.label))
        .collect();
    assert_eq!(
        train,
        [
            ("train/cat/x.jpg", 0),
            ("train/dog/a.jpg", 1),
            ("train/dog/b.jpg", 1)
        ]
    );
    assert_eq!(data.validation.len(), 2);
}

#[test]
fn one_root_is_divided_class_by_class_and_the_same_way_again() {
    let keys: Vec<String> = (0..10)
        .flat_map(|i| [format!("cat/{i}.jpg"), format!("dog/{i}.jpg")])
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let data = divided(&keys, Some(0.2)).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (16, 4));
    assert_eq!(
        data.validation.iter().filter(|sample| sample.label == 0).count(),
        2
    );
    assert!(data.train.iter().all(|sample| !data.validation.contains(sample)));
    assert_eq!(divided(&keys, Some(0.2)).unwrap(), data);
    assert_ne!(
        Dataset::from_listing("data", listing(&keys), Some(0.2), 1).unwrap(),
        data
    );
    assert_eq!(divided(&keys, Some(0.99)).unwrap().train.len(), 2);
}

#[test]
fn layouts_that_are_no_task_are_refused_by_name() {
    let fails = |keys: &[&str], share| divided(keys, share).unwrap_err();
    assert!(matches!(
        fails(&["a.jpg", "train/b.jpg"], None),
        DatasetError::NotDivided { classes: 1, .. }
    ));
    assert!(matches!(
        fails(&["a.jpg"], None),
        DatasetError::Empty { objects: 1, .. }
    ));
    assert!(matches!(
        fails(&["train/a/1"], None),
        DatasetError::MissingPart {
            missing: "validation",
            ..
        }
    ));
    assert!(matches!(
        fails(&["validation/a/1"], None),
        DatasetError::MissingPart { missing: "train", .. }
    ));
    assert!(matches!(
        fails(&["a/1", "a/2", "b/1", "b/2"], None),
        DatasetError::NotDivided { classes: 2, .. }
    ));
    assert!(matches!(
        fails(&["a/1", "a/2"], Some(0.5)),
        DatasetError::OneClass { .. }
    ));
    assert!(matches!(
        fails(&["a/1", "b/2"], Some(0.5)),
        DatasetError::TooFew { .. }
    ));
    assert!(matches!(
        fails(&["a/1", "b/2"], Some(1.0)),
        DatasetError::Share { .. }
    ));
    let two = ["train/a/1", "train/b/1", "validation/a/1", "validation/b/1"];
    assert!(matches!(
        fails(&two, Some(0.2)),
        DatasetError::DividedTwice { .. }
    ));
    let text = fails(&["train/a/1", "train/b/1", "validation/a/1"], None).to_string();
    assert!(text.contains("'b'") && text.contains("validation/b/"), "{text}");
    let text = fails(&["train/a/1", "validation/b/1", "validation/a/1"], None).to_string();
    assert!(text.contains("add train/b/"), "{text}");
}

/// Samples of shards: key and label.
fn shards(samples: &[(&str, &str)]) -> Vec<ObjectInfo> {
    let labelled = samples.iter().map(|(key, label)| ObjectInfo {
        label: (!label.is_empty()).then(|| (*label).to_owned()),
        ..listing(&[key]).remove(0)
    });
    labelled.collect()
}

#[test]
fn samples_of_shards_have_their_labels_and_the_part_the_shard_names() {
    let listed = shards(&[
        ("train-000.tar//1.jpg", "dog"),
        ("train-000.tar//2.jpg", "cat"),
        ("train-001.tar//3.jpg", "dog"),
        ("train-001.tar//unlabelled.jpg", ""),
        ("val-000.tar//4.jpg", "cat"),
        ("val-000.tar//5.jpg", "dog"),
        ("test-000.tar//6.jpg", "bird"),
    ]);
    let data = Dataset::from_listing("data", listed.clone(), None, 0).unwrap();
    assert_eq!(data.classes, ["cat", "dog"]);
    let train: Vec<_> = data
        .train
        .iter()
        .map(|sample| (sample.key.as_str(), sample.label))
        .collect();
    assert_eq!(
        train,
        [
            ("train-000.tar//2.jpg", 0),
            ("train-000.tar//1.jpg", 1),
            ("train-001.tar//3.jpg", 1)
        ]
    );
    assert_eq!(data.validation.len(), 2);
    let evaluated = Dataset::to_evaluate("data", listed, &data.classes).unwrap();
    assert_eq!(evaluated.len(), 2);
}

#[test]
fn shards_of_one_part_are_divided_and_test_shards_validate() {
    let one = shards(&[
        ("train-0.tar//1.jpg", "a"),
        ("train-0.tar//2.jpg", "b"),
        ("train-1.tar//1.jpg", "a"),
        ("train-1.tar//2.jpg", "b"),
    ]);
    let undivided = Dataset::from_listing("data", one.clone(), None, 0).unwrap_err();
    assert!(matches!(undivided, DatasetError::NotDivided { classes: 2, .. }));
    let data = Dataset::from_listing("data", one, Some(0.5), 0).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    let two = shards(&[
        ("train.tar//1.jpg", "a"),
        ("train.tar//2.jpg", "b"),
        ("test.tar//1.jpg", "a"),
        ("test.tar//2.jpg", "b"),
    ]);
    let data = Dataset::from_listing("data", two, None, 0).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    let unlabelled = Dataset::from_listing("data", shards(&[("train.tar//1.jpg", "")]), None, 0);
    assert!(unlabelled.unwrap_err().to_string().contains(".cls"));
}

#[test]
fn evaluation_takes_the_models_own_labels() {
    let classes = ["dog".to_owned(), "cat".to_owned()];
    let samples = Dataset::to_evaluate("d", listing(&["validation/cat/1", "train/dog/1"]), &classes).unwrap();
    assert_eq!(samples.iter().map(|sample| sample.label).collect::<Vec<_>>(), [1]);
    let all = Dataset::to_evaluate("d", listing(&["cat/1", "dog/1"]), &classes).unwrap();
    assert_eq!(all.len(), 2);
    let error = Dataset::to_evaluate("d", listing(&["bird/1"]), &classes).unwrap_err();
    assert!(matches!(error, DatasetError::UnknownClass { class, .. } if class == "bird"));
}
