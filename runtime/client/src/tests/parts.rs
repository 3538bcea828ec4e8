//! Assignment of samples to parts.

use super::dataset::{divided, listing, rows};
use crate::{Dataset, DatasetError, Evaluated, Listing, Part, SampleFiles};
use std::collections::HashSet;

#[test]
fn parts_have_several_names_and_a_test_part_stays_apart() {
    let keys = [
        "training/cat/1.jpg",
        "training/cat/2.jpg",
        "training/dog/1.jpg",
        "training/dog/2.jpg",
        "test/cat/5.jpg",
        "test/unknown/6.jpg",
        "test/7.jpg",
        "notes.txt",
    ];
    let data = divided(&keys, Some(0.5)).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    assert_eq!(rows(&data.test), [("test/cat/5.jpg".to_owned(), 0)]);
    // Samples of untrained classes are reported.
    assert_eq!(
        data.left_out.first,
        ["test/unknown/6.jpg", "test/7.jpg", "notes.txt"]
    );
    let divided_already = [&keys[..5], &["valid/cat/3.jpg", "valid/dog/4.jpg"]].concat();
    let data = divided(&divided_already, None).unwrap();
    assert_eq!(
        (data.train.len(), data.validation.len(), data.test.len()),
        (4, 2, 1)
    );

    let names = ["cat", "dog"].map(str::to_owned);
    let evaluated = |keys: &[&str], evaluated: Evaluated<'_>| {
        let listing = Listing::from_iter(listing(keys));
        let found = Dataset::to_evaluate("d", listing, None, &names, SampleFiles::Images, evaluated);
        found.map(|(samples, left_out)| (rows(&samples).len(), left_out.first))
    };
    assert_eq!(
        evaluated(&divided_already, Evaluated::DefaultPart).unwrap(),
        (2, Vec::new())
    );
    assert_eq!(
        evaluated(&divided_already, Evaluated::Part(Part::Train))
            .unwrap()
            .0,
        4
    );
    assert_eq!(
        evaluated(&divided_already[..5], Evaluated::DefaultPart).unwrap(),
        (1, Vec::new())
    );
    let some = HashSet::from(["training/dog/1.jpg".to_owned(), "test/cat/5.jpg".to_owned()]);
    assert_eq!(evaluated(&keys, Evaluated::Keys(&some)).unwrap().0, 2);
    let error = evaluated(&keys, Evaluated::Part(Part::Validation)).unwrap_err();
    assert!(error.to_string().contains("no validation/ part"), "{error}");
    assert!(matches!(
        evaluated(&keys, Evaluated::Part(Part::Test)).unwrap_err(),
        DatasetError::UnknownClass { class, .. } if class == "unknown"
    ));
}

#[test]
fn samples_below_a_part_are_of_no_class_called_so() {
    let keys = ["train/cat/1.jpg", "test/1.jpg", "val/dog/2.jpg"];
    let listed = Listing::from_iter(listing(&keys));
    let placed: Vec<_> = listed
        .placed(SampleFiles::Images)
        .iter()
        .map(|placed| (placed.part, placed.class.map(str::to_owned)))
        .collect();
    let expected = [
        (Some(Part::Test), None),
        (Some(Part::Train), Some("cat")),
        (Some(Part::Validation), Some("dog")),
    ];
    assert_eq!(
        placed,
        expected.map(|(part, class)| (part, class.map(str::to_owned)))
    );
    // If the data have no parts, this is an ordinary folder.
    let listed = Listing::from_iter(listing(&["test/1.jpg", "cat/2.jpg"]));
    let placed = listed.placed(SampleFiles::Images);
    assert_eq!(placed[1].class, Some("test"));
}

#[test]
fn parts_in_capitals_are_never_two_classes() {
    let keys = |train: &str, other: &str| -> Vec<String> {
        let classes = ["glioma", "pituitary"].into_iter();
        let of = |part: &str, class: &str| {
            (0..4)
                .map(|number| format!("{part}/{class}/{number}.jpg"))
                .collect()
        };
        classes
            .flat_map(|class| [of(train, class), of(other, class)])
            .flat_map(|keys: Vec<String>| keys)
            .collect()
    };
    let found = |train, other, share| {
        let keys = keys(train, other);
        divided(&keys.iter().map(String::as_str).collect::<Vec<_>>(), share)
    };
    for (train, other) in [
        ("Training", "Testing"),
        ("Train", "Test"),
        ("seg_train", "seg_test"),
    ] {
        let error = found(train, other, None).unwrap_err().to_string();
        assert!(error.contains("train/ (2 classes) but no validation/"), "{error}");
        let data = found(train, other, Some(0.25)).unwrap();
        assert_eq!(data.classes, ["glioma", "pituitary"]);
        assert_eq!(
            (data.train.len(), data.validation.len(), data.test.len()),
            (6, 2, 8)
        );
    }
    for (train, other) in [("train", "dev"), ("train2017", "val2017")] {
        let data = found(train, other, None).unwrap();
        assert_eq!((data.classes.len(), data.validation.len()), (2, 8));
    }
}

#[test]
fn folders_above_the_data_are_named_before_any_other_advice() {
    let nested = [
        "seg_train/seg_train/forest/1.jpg",
        "seg_train/seg_train/sea/1.jpg",
        "seg_test/seg_test/sea/2.jpg",
    ];
    let above = [
        "archive/train/forest/1.jpg",
        "archive/train/sea/1.jpg",
        "archive/val/sea/2.jpg",
    ];
    for (keys, deeper) in [(nested, "seg_train/seg_train"), (above, "archive")] {
        for share in [None, Some(0.5)] {
            let error = divided(&keys, share).unwrap_err().to_string();
            assert!(
                error.contains(&format!("; use 'data/{deeper}' as the data root")),
                "{error}"
            );
        }
    }
    let error = divided(&["a/1.jpg", "a/2.jpg"], None).unwrap_err().to_string();
    assert!(error.ends_with("at least two class folders"), "{error}");
}

#[test]
fn a_folder_that_may_be_a_part_or_a_class_is_refused() {
    let keys = [
        "train/steam/1.jpg",
        "train/diesel/2.jpg",
        "bus/3.jpg",
        "car/4.jpg",
    ];
    let error = divided(&keys, Some(0.5)).unwrap_err().to_string();
    assert!(
        error.contains("folder train/") && error.contains("folder bus/") && error.contains("'data/train'"),
        "{error}"
    );
    let listing = Listing::from_iter(listing(&keys));
    let names = ["steam".to_owned()];
    let evaluated = Dataset::to_evaluate(
        "data",
        listing,
        None,
        &names,
        SampleFiles::Images,
        Evaluated::DefaultPart,
    );
    assert!(matches!(evaluated.unwrap_err(), DatasetError::PartOrClass { .. }));
}
