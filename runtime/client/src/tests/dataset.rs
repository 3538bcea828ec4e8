//! Conversion of a listing into a task.

use crate::{
    Dataset, DatasetError, Division, Evaluated, LabelTable, Listing, Part, SampleFiles, Samples, Task,
};
use frostline_wire::{ObjectInfo, ObjectPage, OutwardLinks, SampleRef};

pub(super) fn listing(keys: &[&str]) -> Vec<ObjectInfo> {
    keys.iter()
        .map(|key| ObjectInfo {
            sample: SampleRef::new(*key),
            size: 10,
            label: None,
            changed: None,
        })
        .collect()
}

pub(super) fn divided(keys: &[&str], share: Option<f64>) -> Result<Dataset, DatasetError> {
    divided_by(listing(keys), share, 0)
}

fn divided_by(objects: Vec<ObjectInfo>, share: Option<f64>, seed: u64) -> Result<Dataset, DatasetError> {
    let division = Division {
        validation_share: share,
        seed,
        files: SampleFiles::Images,
    };
    Dataset::new("data", Listing::from_iter(objects), None, division)
}

/// Returns keys and labels.
pub(super) fn rows(samples: &crate::Samples) -> Vec<(String, u32)> {
    samples
        .iter()
        .map(|(sample, label)| (sample.sample.key, label))
        .collect()
}

fn evaluated(objects: Vec<ObjectInfo>, classes: &[&str]) -> Result<crate::Samples, DatasetError> {
    let classes: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
    let evaluated = Dataset::to_evaluate(
        "d",
        Listing::from_iter(objects),
        None,
        &classes,
        SampleFiles::Images,
        Evaluated::DefaultPart,
    );
    evaluated.map(|(samples, _)| samples)
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
    let expected = [
        ("train/cat/x.jpg", 0),
        ("train/dog/a.jpg", 1),
        ("train/dog/b.jpg", 1),
    ];
    assert_eq!(
        rows(&data.train),
        expected.map(|(key, label)| (key.to_owned(), label))
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
    assert_eq!(data.validation.iter().filter(|(_, label)| *label == 0).count(), 2);
    assert!(
        data.train
            .iter()
            .all(|sample| data.validation.iter().all(|other| other != sample))
    );
    assert_eq!(divided(&keys, Some(0.2)).unwrap(), data);
    assert_ne!(divided_by(listing(&keys), Some(0.2), 1).unwrap(), data);
    assert_eq!(divided(&keys, Some(0.99)).unwrap().train.len(), 2);
}

/// The data root contains only links to files in the cache of another tool.
#[test]
fn links_out_of_the_root_are_named_where_nothing_else_is_there() {
    let mut listing = Listing::default();
    let mut page = ObjectPage::default();
    page.left_out.links = OutwardLinks {
        count: 412,
        first: "train/cat/1.jpg -> /cache/ab/12".to_owned(),
    };
    listing.add_page(page);
    let division = Division {
        validation_share: None,
        seed: 0,
        files: SampleFiles::Images,
    };
    let error = Dataset::new("data", listing, None, division)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(
            "no samples under 'data': 412 links lead out of the data root (first: train/cat/1.jpg -> /cache/ab/12): "
        ) && error.contains("cp -rL"),
        "{error}"
    );
}

#[test]
fn layouts_that_are_no_task_are_refused_by_name() {
    let fails = |keys: &[&str], share| divided(keys, share).unwrap_err();
    assert!(matches!(
        fails(&["a.jpg", "train/b.jpg"], None),
        DatasetError::Empty { objects: 2, .. }
    ));
    assert!(matches!(
        fails(&["a.jpg"], None),
        DatasetError::Empty { objects: 1, .. }
    ));
    let text = fails(&["train/a/1", "train/b/1", "test/a/1"], None).to_string();
    assert!(
        text.contains("train/ (2 classes) but no validation/; some of the samples must be held out"),
        "{text}"
    );
    assert!(matches!(
        fails(&["validation/a/1"], None),
        DatasetError::NoTrain { .. }
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
    let text = fails(&["train/a/1", "train/b/1", "validation/B/1"], None).to_string();
    assert!(
        text.contains("the classes 'a', 'b' are in train/, the class 'B' is in validation/"),
        "{text}"
    );
}

#[test]
fn classes_of_one_part_are_told_all_at_once() {
    let keys = [
        "train/a/1",
        "train/b/1",
        "validation/a/1",
        "validation/c/1",
        "validation/d/1",
    ];
    let data = divided(&keys, None).unwrap();
    assert_eq!(data.classes, ["a", "b"]);
    assert_eq!(rows(&data.validation), [("validation/a/1".to_owned(), 0)]);
    let told: Vec<String> = data.warnings.iter().map(ToString::to_string).collect();
    let expected = [
        "the class 'b' is in train/ but not in validation/: trained, not validated",
        "the classes 'c', 'd' are in validation/ but not in train/: left out",
    ];
    assert_eq!(told, expected);
    assert_eq!(data.left_out.first, ["validation/c/1", "validation/d/1"]);
}

/// Builds samples of shards from keys and labels.
fn shards(samples: &[(&str, &str)]) -> Vec<ObjectInfo> {
    let labeled = samples.iter().map(|(key, label)| ObjectInfo {
        label: (!label.is_empty()).then(|| (*label).to_owned()),
        ..listing(&[key]).remove(0)
    });
    labeled.collect()
}

#[test]
fn samples_of_shards_have_their_labels_and_the_part_the_shard_names() {
    let listed = shards(&[
        ("train-000.tar//1.jpg", "dog"),
        ("train-000.tar//2.jpg", "cat"),
        ("train-001.tar//3.jpg", "dog"),
        ("train-001.tar//unlabeled.jpg", ""),
        ("val-000.tar//4.jpg", "cat"),
        ("val-000.tar//5.jpg", "dog"),
        ("test-000.tar//6.jpg", "bird"),
    ]);
    let data = divided_by(listed.clone(), None, 0).unwrap();
    assert_eq!(data.classes, ["cat", "dog"]);
    let expected = [
        ("train-000.tar//2.jpg", 0),
        ("train-000.tar//1.jpg", 1),
        ("train-001.tar//3.jpg", 1),
    ];
    assert_eq!(
        rows(&data.train),
        expected.map(|(key, label)| (key.to_owned(), label))
    );
    assert_eq!(data.validation.len(), 2);
    assert_eq!(evaluated(listed, &["cat", "dog"]).unwrap().len(), 2);
}

#[test]
fn numbers_in_shards_are_outputs_and_a_missing_number_has_no_samples() {
    let listed = shards(&[
        ("train.tar//1.jpg", "10"),
        ("train.tar//2.jpg", "2"),
        ("train.tar//3.jpg", "0"),
        ("val.tar//4.jpg", "10"),
        ("val.tar//5.jpg", "11"),
    ]);
    let data = divided_by(listed.clone(), None, 0).unwrap();
    let names: Vec<String> = (0..11).map(|number| number.to_string()).collect();
    assert_eq!(data.classes, names);
    let labels: Vec<u32> = data.train.iter().map(|(_, label)| label).collect();
    assert_eq!(labels, [0, 10, 2]);
    assert_eq!(rows(&data.validation), [("val.tar//4.jpg".to_owned(), 10)]);
    let listing = Listing::from_iter(listed);
    let assumed = Dataset::assumed_names(&listing, None, SampleFiles::Images);
    assert!(assumed.numbered && assumed.names.len() == 12);
    // A name among the numbers, a taxonomy and padded numbers are names.
    for label in ["cat", "1000000", "007"] {
        let mixed = shards(&[
            ("train.tar//1.jpg", "10"),
            ("train.tar//2.jpg", label),
            ("val.tar//3.jpg", "10"),
        ]);
        assert_eq!(divided_by(mixed, None, 0).unwrap().classes.len(), 2, "{label}");
    }
}

#[test]
fn numbered_folders_keep_the_order_of_text_and_a_table_of_all_numbers_that_of_outputs() {
    let keys: Vec<String> = (0..12)
        .flat_map(|class| [format!("{class}/a.jpg"), format!("{class}/b.jpg")])
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let data = divided(&keys, Some(0.5)).unwrap();
    assert_eq!(data.classes[..4], ["0", "1", "10", "11"]);
    let assumed = Dataset::assumed_names(&Listing::from_iter(listing(&keys)), None, SampleFiles::Images);
    assert_eq!((assumed.names, assumed.numbered), (data.classes, false));

    let lines: String = keys
        .iter()
        .map(|key| format!("{key},{}\n", key.split_once('/').unwrap().0))
        .collect();
    let numbers = table(&format!("file,label\n{lines}"), Task::Classes);
    let assumed = Dataset::assumed_names(&Listing::default(), Some(&numbers), SampleFiles::Images);
    assert!(assumed.numbered && assumed.names[10] == "10");
    let data = by_table(&keys, &format!("file,label\n{lines}"), Task::Classes, Some(0.5)).unwrap();
    assert_eq!((data.classes.len(), data.classes[2].as_str()), (12, "2"));
    let of_ten = rows(&data.train)
        .into_iter()
        .filter(|(key, _)| key.starts_with("10/"));
    assert_eq!(of_ten.map(|(_, label)| label).collect::<Vec<_>>(), [10]);
    // Without one of the numbers, they are ratings or years.
    let data = by_table(
        &keys[2..],
        &format!("file,label\n{}", &lines[20..]),
        Task::Classes,
        Some(0.5),
    )
    .unwrap();
    assert_eq!(data.classes[..2], ["1", "10"]);
}

#[test]
fn names_in_different_normalizations_are_one_class_unless_both_are_trained() {
    let composed = "caf\u{e9}";
    let decomposed = "cafe\u{301}";
    let key = |part: &str, class: &str| format!("{part}/{class}/1.jpg");
    let keys = [
        key("train", composed),
        key("train", "tea"),
        key("validation", decomposed),
        key("validation", "tea"),
    ];
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let data = divided(&keys, None).unwrap();
    assert_eq!(
        (data.classes.as_slice(), data.warnings.len()),
        ([composed.to_owned(), "tea".to_owned()].as_slice(), 0)
    );
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    assert_eq!(evaluated(listing(&keys), &[composed, "tea"]).unwrap().len(), 2);

    let extra = key("train", decomposed);
    let data = divided(&[&keys[..], &[&extra]].concat(), None).unwrap();
    assert_eq!(data.classes, [decomposed, composed, "tea"]);
    let told: Vec<String> = data.warnings.iter().map(ToString::to_string).collect();
    assert!(told[1].starts_with("classes named 'café'"), "{told:?}");

    // Keys of a table written by another system.
    let files = ["e\u{301}.jpg", "b.jpg", "c.jpg", "d.jpg"];
    let text = "file,label\n\u{e9}.jpg,x\nb.jpg,x\nc.jpg,y\nd.jpg,y\n";
    let data = by_table(&files, text, Task::Classes, Some(0.5)).unwrap();
    assert_eq!(data.train.len() + data.validation.len(), 4);
    // Two files can have both spellings.
    let files = ["e\u{301}.jpg", "\u{e9}.jpg", "c.jpg", "d.jpg"];
    let text = "file,label\n\u{e9}.jpg,x\ne\u{301}.jpg,y\nc.jpg,x\nd.jpg,y\n";
    let table = LabelTable::parse("labels.csv", text.as_bytes(), Task::Classes).unwrap();
    let class = |key: &str| table.get(key, None).unwrap().1;
    assert_eq!(files.map(class), ["y", "x", "x", "y"]);
    let data = by_table(&files, text, Task::Classes, Some(0.5)).unwrap();
    assert_eq!(data.train.len() + data.validation.len(), 4);
}

#[test]
fn shards_of_one_part_are_divided_and_test_shards_stay_apart() {
    let one = shards(&[
        ("train-0.tar//1.jpg", "a"),
        ("train-0.tar//2.jpg", "b"),
        ("train-1.tar//1.jpg", "a"),
        ("train-1.tar//2.jpg", "b"),
    ]);
    let undivided = divided_by(one.clone(), None, 0).unwrap_err();
    assert!(matches!(undivided, DatasetError::NotDivided { classes: 2, .. }));
    let data = divided_by(one, Some(0.5), 0).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    let two = shards(&[
        ("train.tar//1.jpg", "a"),
        ("train.tar//2.jpg", "b"),
        ("test.tar//1.jpg", "a"),
        ("test.tar//2.jpg", "b"),
    ]);
    assert!(
        divided_by(two, None, 0)
            .unwrap_err()
            .to_string()
            .contains("held out for validation")
    );
    let unlabeled = divided_by(shards(&[("train.tar//1.jpg", "")]), None, 0);
    assert!(unlabeled.unwrap_err().to_string().contains(".cls"));
}

#[test]
fn hidden_files_are_no_samples_in_any_layout() {
    let listed = shards(&[
        ("train.tar//1.jpg", "a"),
        ("train.tar//._1.jpg", "a"),
        ("train.tar//2.jpg", "b"),
        ("._train.tar//3.jpg", "a"),
        ("val.tar//1.jpg", "a"),
        ("val.tar//2.jpg", "b"),
    ]);
    let data = divided_by(listed, None, 0).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    assert_eq!(data.left_out.objects, 0);
}

#[test]
fn placeholders_of_icloud_are_reported() {
    let keys = [
        "train/a/1.jpg",
        "train/b/1.jpg",
        "train/b/.2.jpg.icloud",
        "validation/a/1.jpg",
        "validation/b/1.jpg",
    ];
    let data = divided_by(listing(&keys), None, 0).unwrap();
    assert_eq!(data.left_out.first, ["train/b/.2.jpg.icloud"]);
    let none = divided_by(
        listing(&["train/a/.1.jpg.icloud", "train/b/.2.jpg.icloud"]),
        None,
        0,
    );
    let error = none.unwrap_err().to_string();
    assert!(
        error.contains("2 files") && error.contains("brctl download"),
        "{error}"
    );
}

#[test]
fn evaluation_takes_the_models_own_labels() {
    let classes = ["dog", "cat"];
    let samples = evaluated(listing(&["validation/cat/1", "train/dog/1"]), &classes).unwrap();
    assert_eq!(samples.iter().map(|(_, label)| label).collect::<Vec<_>>(), [1]);
    assert_eq!(
        evaluated(listing(&["cat/1", "dog/1"]), &classes).unwrap().len(),
        2
    );
    let error = evaluated(listing(&["bird/1"]), &classes).unwrap_err();
    assert!(matches!(error, DatasetError::UnknownClass { class, .. } if class == "bird"));
    let error = evaluated(
        listing(&["validation/cat/a.txt", "validation/dog/1.jpg"]),
        &classes,
    )
    .unwrap_err();
    assert!(error.to_string().contains("validation/cat/"), "{error}");
}

#[test]
fn an_evaluation_leaves_out_nothing_of_folders_it_was_not_asked_for() {
    let keys = [
        "train/cat/1.jpg",
        "train/cat/a.txt",
        "validation/cat/1.jpg",
        "validation/cat/b.txt",
    ];
    let listing = Listing::from_iter(listing(&keys));
    let (samples, left_out) = Dataset::to_evaluate(
        "d",
        listing,
        None,
        &["cat".to_owned()],
        SampleFiles::Images,
        Evaluated::DefaultPart,
    )
    .unwrap();
    assert_eq!(
        (samples.len(), left_out.first),
        (1, vec!["validation/cat/b.txt".to_owned()])
    );
}

#[test]
fn what_is_no_image_is_left_out_and_named() {
    let data = divided(
        &[
            "LICENSE",
            "train/cat/1.JPG",
            "train/cat/Thumbs.db",
            "train/cat/.DS_Store",
            "train/cat/",
            "train/dog/1.webp",
            "train/dog/README",
            "validation/cat/1.gif",
            "validation/dog/1.jpe",
            "validation/dog/a.txt",
            "validation/dog/b.txt",
            "validation/dog/c.txt",
        ],
        None,
    )
    .unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    assert_eq!(data.left_out.objects, 6);
    let first = [
        "LICENSE",
        "train/cat/Thumbs.db",
        "train/dog/README",
        "validation/dog/a.txt",
        "validation/dog/b.txt",
    ];
    assert_eq!(data.left_out.first, first);
}

#[test]
fn names_without_an_ending_are_taken_where_no_image_is_named() {
    let keys = ["a/0f", "a/1c", "a/Thumbs.db", "b/2e", "b/77"];
    let data = divided(&keys, Some(0.5)).unwrap();
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    assert_eq!(data.left_out.first, ["a/Thumbs.db"]);
    let division = Division {
        validation_share: Some(0.5),
        seed: 0,
        files: SampleFiles::All,
    };
    let own = Dataset::new("d", Listing::from_iter(listing(&keys)), None, division);
    let own = own.unwrap();
    assert_eq!(own.train.len() + own.validation.len(), 5);
}

#[test]
fn a_class_folder_without_an_image_is_named() {
    let text = divided(&["cat/1.jpg", "cat/2.jpg", "docs/a.txt", "docs/b.pdf"], Some(0.5))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("docs/ contains no image") && text.contains("docs/a.txt"),
        "{text}"
    );
    let parts = [
        "train/a/1.jpg",
        "train/b/1.jpg",
        "validation/a/1.jpg",
        "validation/b/1.tiff",
    ];
    let text = divided(&parts, None).unwrap_err().to_string();
    assert!(text.contains("validation/b/ contains no image"), "{text}");
}

fn table(text: &str, task: Task) -> LabelTable {
    LabelTable::parse("labels.csv", text.as_bytes(), task).unwrap()
}

fn by_table(keys: &[&str], text: &str, task: Task, share: Option<f64>) -> Result<Dataset, DatasetError> {
    let listing = Listing::from_iter(listing(keys));
    let division = Division {
        validation_share: share,
        seed: 0,
        files: SampleFiles::Images,
    };
    Dataset::new("data", listing, Some(table(text, task)), division)
}

#[test]
fn a_table_says_classes_whatever_folders_are_called() {
    let keys = [
        "labels.csv",
        "a/1.jpg",
        "a/2.jpg",
        "b/3.jpg",
        "b/4.jpg",
        "notes.txt",
    ];
    let text = "file,label\na/1.jpg,dog\nb/3.jpg,dog\na/2.jpg,cat\nb/4.jpg,cat\n";
    let data = by_table(&keys, text, Task::Classes, Some(0.5)).unwrap();
    assert_eq!(
        (data.task, data.classes.as_slice()),
        (Task::Classes, ["cat", "dog"].map(str::to_owned).as_slice())
    );
    let mut all = [rows(&data.train), rows(&data.validation)].concat();
    all.sort();
    let expected = [("a/1.jpg", 1), ("a/2.jpg", 0), ("b/3.jpg", 1), ("b/4.jpg", 0)];
    assert_eq!(all, expected.map(|(key, label)| (key.to_owned(), label)));
    assert_eq!((data.train.len(), data.validation.len()), (2, 2));
    assert_eq!(data.left_out.first, ["notes.txt"]);
}

#[test]
fn a_column_says_the_parts_whatever_folders_are_called() {
    let keys = ["a/1.jpg", "train/2.jpg", "a/3.jpg", "a/4.jpg", "test/5.jpg"];
    let text = "file,split,label\na/1.jpg,train,x\ntrain/2.jpg,val,x\na/3.jpg,train,y\na/4.jpg,test,y\ntest/5.jpg,validation,y\n";
    let data = by_table(&keys, text, Task::Classes, None).unwrap();
    assert_eq!(data.classes, ["x", "y"]);
    let of = |samples: &Samples| -> Vec<String> { rows(samples).into_iter().map(|(key, _)| key).collect() };
    assert_eq!(of(&data.train), ["a/1.jpg", "a/3.jpg"]);
    assert_eq!(of(&data.validation), ["train/2.jpg", "test/5.jpg"]);
    assert_eq!(of(&data.test), ["a/4.jpg"]);
    let (tested, _) = Dataset::to_evaluate(
        "data",
        Listing::from_iter(listing(&keys)),
        Some(table(text, Task::Classes)),
        &data.classes,
        SampleFiles::Images,
        Evaluated::Part(Part::Test),
    )
    .unwrap();
    assert_eq!(of(&tested), ["a/4.jpg"]);
    let numbers = "file,x,split\na/1.jpg,1,train\ntrain/2.jpg,2,val\na/3.jpg,3,train\na/4.jpg,4,test\ntest/5.jpg,5,val\n";
    let data = by_table(&keys, numbers, Task::Numbers, None).unwrap();
    assert_eq!((data.classes, data.train.len()), (vec!["x".to_owned()], 2));
    assert_eq!(data.validation.values(0), Some([5.0].as_slice()));
}

#[test]
fn images_without_a_line_are_left_out_where_that_is_wanted() {
    let keys = ["1.jpg", "2.jpg", "3.jpg", "4.jpg", "5.jpg"];
    for text in [
        "file,label\n1.jpg,x\n2.jpg,x\n3.jpg,y\n4.jpg,y\n",
        "file,label,split\n1.jpg,x,train\n2.jpg,x,val\n3.jpg,y,train\n4.jpg,y,val\n",
    ] {
        let share = (!text.contains("split")).then_some(0.5);
        let error = by_table(&keys, text, Task::Classes, share)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("'5.jpg'") && error.contains("omit these images"),
            "{error}"
        );
        let division = Division {
            validation_share: share,
            seed: 0,
            files: SampleFiles::Images,
        };
        let skipping = table(text, Task::Classes).with_unlisted(frostline_job::Unlisted::Skip);
        let data = Dataset::new(
            "data",
            Listing::from_iter(listing(&keys)),
            Some(skipping),
            division,
        );
        let data = data.unwrap();
        assert_eq!((data.train.len(), data.validation.len()), (2, 2));
        assert_eq!(data.left_out.first, ["5.jpg"]);
    }
}

#[test]
fn a_class_of_lines_outside_the_parts_has_no_output() {
    let keys = [
        "train/1.jpg",
        "train/2.jpg",
        "validation/3.jpg",
        "validation/4.jpg",
        "other/5.jpg",
    ];
    let text = "file,label\ntrain/1.jpg,cat\ntrain/2.jpg,dog\nvalidation/3.jpg,cat\nvalidation/4.jpg,dog\nother/5.jpg,bird\n";
    let data = by_table(&keys, text, Task::Classes, None).unwrap();
    assert_eq!(data.classes, ["cat", "dog"]);
    let expected = [("train/1.jpg", 0), ("train/2.jpg", 1)];
    assert_eq!(
        rows(&data.train),
        expected.map(|(key, label)| (key.to_owned(), label))
    );
    assert_eq!(data.left_out.first, ["other/5.jpg"]);
}

#[test]
fn a_table_says_values_and_parts_are_folders() {
    let keys = [
        "train/1.jpg",
        "train/2.jpg",
        "validation/3.jpg",
        "other/4.jpg",
        "labels.csv",
    ];
    let text = "file,x,y\nvalidation/3.jpg,5,6\ntrain/2.jpg,3,4\ntrain/1.jpg,1,2\n";
    let data = by_table(&keys, text, Task::Numbers, None).unwrap();
    assert_eq!(data.classes, ["x", "y"]);
    let values = |samples: &Samples| {
        (0..samples.len())
            .map(|index| samples.values(index).unwrap().to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(values(&data.train), [[1.0, 2.0], [3.0, 4.0]]);
    assert_eq!(values(&data.validation), [[5.0, 6.0]]);
    assert_eq!((data.train.label(0), data.train.values(2)), (None, None));
    assert_eq!(data.left_out.first, ["other/4.jpg"]);
    // The default evaluation uses validation samples and the model's column order.
    let names = ["y", "x"].map(str::to_owned);
    let listing = Listing::from_iter(listing(&keys));
    let found = Dataset::to_evaluate(
        "data",
        listing,
        Some(table(text, Task::Numbers)),
        &names,
        SampleFiles::Images,
        Evaluated::DefaultPart,
    );
    assert_eq!(values(&found.unwrap().0), [[6.0, 5.0]]);
    // Evaluation needs no lines for other parts, unlike training.
    let text = "file,x,y\nvalidation/3.jpg,5,6\ntrain/2.jpg,3,4\n";
    let error = by_table(&keys, text, Task::Numbers, None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("1 images have no line") && error.contains("'train/1.jpg'"),
        "{error}"
    );
    let only = table(text, Task::Numbers);
    let found = Dataset::to_evaluate(
        "data",
        Listing::from_iter(self::listing(&keys)),
        Some(only),
        &names,
        SampleFiles::Images,
        Evaluated::DefaultPart,
    );
    assert_eq!(found.unwrap().0.len(), 1);
}

#[test]
fn a_table_that_names_every_file_loses_none_of_them_to_a_class_called_train() {
    let keys: Vec<String> = ["bus", "car", "train"]
        .iter()
        .flat_map(|class| (0..4).map(move |number| format!("{class}/{number}.jpg")))
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let lines: String = keys
        .iter()
        .map(|key| format!("{key},{}\n", key.split_once('/').unwrap().0))
        .collect();
    let data = by_table(&keys, &format!("file,label\n{lines}"), Task::Classes, Some(0.25)).unwrap();
    assert_eq!(data.classes, ["bus", "car", "train"]);
    assert_eq!(
        (data.train.len(), data.validation.len(), data.left_out.objects),
        (9, 3, 0)
    );
}

#[test]
fn a_table_that_does_not_fit_the_data_is_refused_with_line_and_key() {
    let keys = ["a/1.jpg", "a/2.jpg", "a/notes.txt"];
    let fails = |text: &str| {
        by_table(&keys, text, Task::Classes, Some(0.5))
            .unwrap_err()
            .to_string()
    };
    for (text, words) in [
        (
            "file,label\na/1.jpg,x\n1.jpg,x\na/2.jpg,y\n",
            ["line 3", "'1.jpg'", "'a/1.jpg'"],
        ),
        (
            "file,label\na/1.jpg,x\na/1.png,y\n",
            ["line 3", "'a/1.png'", "relative to the data root"],
        ),
        (
            "file,label\na/notes.txt,x\na/1.jpg,x\na/2.jpg,y\n",
            ["line 2", "image extension", "remove the line"],
        ),
        (
            "a/1.jpg,x\na/2.jpg,y\na/notes.txt,y\n",
            ["line 1", "'a/1.jpg'", "name the columns"],
        ),
        (
            "file,label\na/1.jpg,x\na/1.JPG,y\n",
            ["line 3", "'a/1.JPG'", "no object"],
        ),
    ] {
        let error = fails(text);
        assert!(words.iter().all(|word| error.contains(word)), "{text:?}: {error}");
    }
    let keys = ["1.jpg", "2.jpg", "3.jpg"];
    let error = by_table(&keys, "file,label\n1.jpg,x\n2.jpg,y\n", Task::Classes, Some(0.5))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("1 images have no line") && error.contains("'3.jpg'"),
        "{error}"
    );
    let error = by_table(
        &keys,
        "file,label\n1.jpg,x\n2.jpg,y\n3.jpg,y\n",
        Task::Classes,
        Some(0.5),
    )
    .unwrap_err();
    assert!(
        matches!(error, DatasetError::TooFew { ref class, .. } if class == "x"),
        "{error}"
    );
    let error = by_table(&keys, "file,a\n1.jpg,1\n2.jpg,0\n3.jpg,0\n", Task::Labels, None).unwrap_err();
    assert!(matches!(error, DatasetError::NotDivided { .. }), "{error}");
}
