//! Compares figures with scikit-learn. Expected values were recorded with scikit-learn 1.9.1 and NumPy on the
//! same outputs, using `confusion_matrix`, `precision_recall_fscore_support(zero_division=0)`,
//! `top_k_accuracy_score(k=5)`, `f1_score`, `average_precision_score`, `mean_absolute_error`,
//! `root_mean_squared_error` and `r2_score` (`multioutput="raw_values"`). Probabilities were computed in
//! NumPy as normalized exponentials.

use super::*;
use frostline_wire::{ObjectInfo, SampleRef};

/// Ten rows of seven classes, without ties.
const LOGITS: [f32; 70] = [
    -2.0, -2.5, 4.0, 2.25, -1.5, 2.5, -1.0, //
    -2.5, -1.75, -3.0, 1.5, -0.25, -0.75, -1.0, //
    -0.5, 2.25, -0.75, -1.25, -2.75, -1.5, 0.25, //
    -1.0, -2.75, 2.0, -2.5, -2.25, 0.75, -0.5, //
    0.75, 2.0, -0.25, 1.5, 2.25, 1.25, 2.75, //
    2.25, 3.0, -2.25, -2.75, 1.75, 0.25, 1.5, //
    -3.0, -1.0, 3.0, 2.0, 0.75, -2.5, -1.75, //
    -2.25, -1.25, 1.0, -0.25, -2.75, -1.75, 0.25, //
    3.5, 0.75, -1.75, -2.25, -0.75, -0.25, 2.75, //
    -1.0, -1.5, 1.75, -0.75, -2.5, -0.25, -0.5, //
];
const CLASSES: [i64; 10] = [2, 3, 2, 2, 0, 0, 1, 2, 0, 0];

/// Nine rows of three labels, with ties.
const LABEL_OUTPUTS: [f32; 27] = [
    0.5, -1.25, 0.0, -2.0, 0.5, 0.75, 0.25, 0.5, -0.5, //
    -2.0, 1.0, -0.25, 1.5, -1.5, -1.5, -1.75, -0.75, 0.0, //
    1.5, -1.75, 0.5, -0.25, 0.75, -1.75, 1.75, 2.0, -0.75, //
];
const FLAGS: [f32; 27] = [
    0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, //
    0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, //
    0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, //
];

/// Six rows of two numbers.
const ESTIMATES: [f32; 12] = [
    -2.5, 4.0, 3.75, 1.75, -1.0, -1.0, 3.0, -1.0, -0.5, -2.25, 3.0, 2.75,
];
const NUMBERS: [f32; 12] = [
    -2.75, 2.5, 2.5, 1.25, -2.25, 0.5, 2.0, -2.0, 1.0, -2.75, 4.0, 3.25,
];

/// Samples named by number, except for one key that requires quotes in CSV.
fn samples(count: usize) -> Arc<Samples> {
    let sample = |number: usize| {
        let key = match number {
            1 => "a \"b\", c.jpg".to_owned(),
            number => format!("{number}.jpg"),
        };
        let object = ObjectInfo {
            sample: SampleRef::new(key),
            size: 1,
            label: None,
            changed: None,
        };
        (object, 0)
    };
    Arc::new((0..count).map(sample).collect())
}

pub(super) fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

/// Adds outputs in batches of four rows.
pub(super) fn predictions(
    task: Task,
    width: usize,
    outputs: &[f32],
    targets: impl Fn(usize, usize) -> Targets,
) -> Predictions {
    let rows = outputs.len() / width;
    let mut predictions = Predictions::new(task, samples(rows));
    for (batch, outputs) in outputs.chunks(4 * width).enumerate() {
        let start = 4 * batch;
        let count = outputs.len() / width;
        let indices: Vec<usize> = (start..start + count).collect();
        let outputs = Tensor::f32([count, width], outputs.to_vec()).unwrap();
        predictions.add(&indices, &outputs, &targets(start, start + count));
    }
    assert_eq!(predictions.len(), rows);
    predictions
}

fn of_logits() -> Predictions {
    predictions(Task::Classes, 7, &LOGITS, |start, end| {
        Targets::Classes(CLASSES[start..end].to_vec())
    })
}

pub(super) fn of_rows(task: Task, width: usize, outputs: &[f32], wanted: &[f32]) -> Predictions {
    predictions(task, width, outputs, |start, end| Targets::Values {
        width,
        values: wanted[start * width..end * width].to_vec(),
    })
}

#[track_caller]
fn assert_close(figures: impl IntoIterator<Item = f64>, expected: &[f64]) {
    let figures: Vec<f64> = figures.into_iter().collect();
    let near = figures
        .iter()
        .zip(expected)
        .all(|(figure, expected)| (figure - expected).abs() < 1e-6);
    assert!(
        near && figures.len() == expected.len(),
        "{figures:?} {expected:?}"
    );
}

fn figures(quality: &Quality) -> Vec<f64> {
    quality.figures().into_iter().map(|(_, figure)| figure).collect()
}

fn csv(predictions: &Predictions, names: &[String]) -> String {
    let mut bytes = Vec::new();
    predictions.write_to(names, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn classes_are_measured_as_scikit_learn_does() {
    let predictions = of_logits();
    assert_close(figures(&predictions.quality()), &[0.5]);
    let tables = predictions.tables(&names(7));
    let Tables::Classes {
        top_5_accuracy,
        classes,
        confusion,
    } = &tables
    else {
        panic!("{tables:?}")
    };
    assert_close([*top_5_accuracy], &[0.9]);
    assert_close(
        classes.iter().map(|class| class.precision),
        &[1.0, 0.0, 0.6, 1.0, 0.0, 0.0, 0.0],
    );
    assert_close(
        classes.iter().map(|class| class.recall),
        &[0.25, 0.0, 0.75, 1.0, 0.0, 0.0, 0.0],
    );
    assert_close(
        classes.iter().map(|class| class.f1),
        &[0.4, 0.0, 2.0 / 3.0, 1.0, 0.0, 0.0, 0.0],
    );
    let support: Vec<usize> = classes.iter().map(|class| class.support).collect();
    assert_eq!(support, [4, 1, 4, 1, 0, 0, 0]);
    let cells: Vec<_> = confusion
        .iter()
        .map(|cell| (cell.label, cell.predicted, cell.count))
        .collect();
    assert_eq!(
        cells,
        [
            (0, 0, 1),
            (0, 1, 1),
            (0, 2, 1),
            (0, 6, 1),
            (1, 2, 1),
            (2, 1, 1),
            (2, 2, 3),
            (3, 3, 1)
        ]
    );
    let confused = tables.most_confused(2);
    assert_eq!(confused.len(), 2);
    assert_eq!((confused[0].label, confused[0].predicted), (0, 1));
}

#[test]
fn each_sample_of_a_class_has_its_line() {
    let predictions = of_logits();
    assert_eq!(
        csv(&predictions, &names(7)),
        "key,label,predicted,probability,rank\n\
         0.jpg,n2,n2,0.70836025,1\n\
         \"a \"\"b\"\", c.jpg\",n3,n3,0.6995663,1\n\
         2.jpg,n2,n1,0.76364833,4\n\
         3.jpg,n2,n2,0.6885147,1\n\
         4.jpg,n0,n6,0.36053517,6\n\
         5.jpg,n0,n1,0.48676968,2\n\
         6.jpg,n1,n2,0.663653,4\n\
         7.jpg,n2,n2,0.5023888,1\n\
         8.jpg,n0,n0,0.63190883,1\n\
         9.jpg,n0,n2,0.6945478,5\n"
    );
}

#[test]
fn no_spreadsheet_takes_a_key_or_a_class_for_a_formula() {
    let key = |number: usize| ["=1+1.jpg", "@a.jpg", "-b(1).jpg", "+c|d.jpg", "d=1.jpg"][number];
    let object = |number| ObjectInfo {
        sample: SampleRef::new(key(number)),
        size: 1,
        label: None,
        changed: None,
    };
    let samples: Samples = (0..5).map(|number| (object(number), 0)).collect();
    let mut predictions = Predictions::new(Task::Classes, Arc::new(samples));
    let outputs = Tensor::f32([5, 2], [1.0, 0.0].repeat(5)).unwrap();
    predictions.add(&[0, 1, 2, 3, 4], &outputs, &Targets::Classes(vec![0; 5]));
    let lines = csv(&predictions, &["=cmd|' /C calc'!A0".to_owned(), "b".to_owned()]);
    for line in lines.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').take(3).collect();
        let begins = |field: &&str| field.starts_with(['\'', 'd']);
        assert!(fields.iter().all(begins), "{line}");
    }
    assert!(
        lines.contains("'=1+1.jpg,'=cmd") && lines.contains("\nd=1.jpg,"),
        "{lines}"
    );
}

#[test]
fn ties_are_ranked_in_the_labels_favor_and_no_numbers_last() {
    let mut predictions = Predictions::new(Task::Classes, samples(4));
    let nan = f32::NAN;
    let outputs = [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, nan, nan, nan];
    let outputs = Tensor::f32([3, 3], outputs.to_vec()).unwrap();
    // Sample 2 is missing, as if it could not be decoded.
    predictions.add(&[0, 1, 3], &outputs, &Targets::Classes(vec![2, 0, 1]));
    let PredictionRows::Classes(choices) = &predictions.rows else {
        panic!()
    };
    let said = predictions.keys().zip(choices);
    let said: Vec<_> = said
        .map(|(key, choice)| (key, choice.predicted(), choice.rank))
        .collect();
    assert_eq!(
        said,
        [
            ("0.jpg".to_owned(), Some(1), 1),
            ("a \"b\", c.jpg".to_owned(), Some(0), 1),
            ("3.jpg".to_owned(), None, 3)
        ]
    );
    assert_close(figures(&predictions.quality()), &[1.0 / 3.0]);
    assert!(csv(&predictions, &names(3)).ends_with("\n3.jpg,n1,,,3\n"));
    let Tables::Classes { confusion, .. } = predictions.tables(&names(3)) else {
        panic!()
    };
    assert_eq!(confusion.iter().map(|cell| cell.count).sum::<usize>(), 2);
}

#[test]
fn labels_are_measured_as_scikit_learn_does() {
    let predictions = of_rows(Task::Labels, 3, &LABEL_OUTPUTS, &FLAGS);
    assert_close(
        figures(&predictions.quality()),
        &[0.384_615_384_6, 0.376_719_576_7, 0.590_079_365_1],
    );
    let Tables::Labels { labels } = predictions.tables(&names(3)) else {
        panic!()
    };
    assert_close(labels.iter().map(|label| label.precision), &[0.4, 0.4, 0.5]);
    assert_close(labels.iter().map(|label| label.recall), &[0.4, 0.5, 0.2]);
    assert_close(
        labels.iter().map(|label| label.f1),
        &[0.4, 0.444_444_444_4, 0.285_714_285_7],
    );
    assert_close(
        labels.iter().filter_map(|label| label.average_precision),
        &[0.658_730_158_7, 0.586_111_111_1, 0.525_396_825_4],
    );
    assert_eq!(
        labels.iter().map(|label| label.support).collect::<Vec<_>>(),
        [5, 4, 5]
    );
    let lines = csv(&predictions, &names(3));
    assert!(
        lines.starts_with(
            "key,label:n0,predicted:n0,probability:n0,label:n1,predicted:n1,probability:n1,label:n2,predicted:n2,probability:n2\n\
             0.jpg,0,1,0.62245935,0,0,0.22270013,1,0,0.5\n\"a \"\"b\"\", c.jpg\",1,0,0.11920292,"
        ),
        "{lines}"
    );
    assert_eq!(lines.lines().count(), 10);
}

/// Expected values are from scikit-learn's `f1_score` and `average_precision_score`, which excludes the label
/// without positive samples.
#[test]
fn labels_without_positives_are_excluded_from_the_mean() {
    let outputs = [0.9, -0.2, -1.0, -0.5, 0.4, 2.0, 0.3, 0.4, -1.0, 0.9, -0.7, -1.0];
    let wanted = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let predictions = of_rows(Task::Labels, 3, &outputs, &wanted);
    // True positives: label 0 has 1 of 3 predicted and 2 actual, label 1 has 1 of 2 and 2, label 2 has 0 of 1
    // and 0.
    assert_close(
        figures(&predictions.quality()),
        &[2.0 * 2.0 / 10.0, (0.4 + 0.5 + 0.0) / 3.0, 0.5],
    );
    let Tables::Labels { labels } = predictions.tables(&names(3)) else {
        panic!()
    };
    assert_eq!((labels[2].average_precision, labels[2].recall), (None, 0.0));
}

#[test]
fn numbers_are_measured_target_by_target_as_scikit_learn_does() {
    let predictions = of_rows(Task::Numbers, 2, &ESTIMATES, &NUMBERS);
    let Tables::Numbers { targets } = predictions.tables(&names(2)) else {
        panic!()
    };
    // Means: (-2.75 + 2.5 - 2.25 + 2 + 1 + 4) / 6 = 0.75 and (2.5 + 1.25 + 0.5 - 2 - 2.75 + 3.25) / 6 =
    // 11/24.
    assert_close(targets.iter().map(|target| target.mean), &[0.75, 11.0 / 24.0]);
    let mae = [1.041_666_666_7, 0.916_666_666_7];
    let rmse = [1.113_365_768_0, 1.020_620_726_2];
    let r2 = [0.796_232_876_7, 0.783_939_503_1];
    assert_close(targets.iter().map(|target| target.mae), &mae);
    assert_close(targets.iter().map(|target| target.rmse), &rmse);
    assert_close(targets.iter().map(|target| target.r2), &r2);
    let means = [mae, rmse, r2].map(|[first, second]| (first + second) / 2.0);
    assert_close(figures(&predictions.quality()), &means);
    assert!(
        csv(&predictions, &names(2)).starts_with(
            "key,label:n0,predicted:n0,label:n1,predicted:n1\n0.jpg,-2.75,-2.5,2.5,4\n\"a \"\"b\"\", c.jpg\",2.5,3.75,1.25,1.75\n"
        )
    );
}

#[test]
fn a_number_that_is_always_the_same_is_met_or_not() {
    let outputs = [1.0, 10.0, 2.0, 10.0, 3.0, 10.0, 6.0, 10.0];
    let wanted = [1.0, 10.0, 2.0, 10.0, 3.0, 10.0, 4.0, 10.0];
    let predictions = of_rows(Task::Numbers, 2, &outputs, &wanted);
    assert_close(
        figures(&predictions.quality()),
        &[0.25, 0.5, (1.0 - 4.0 / 5.0 + 1.0) / 2.0],
    );
}

#[test]
fn tables_serialize_by_their_names() {
    let tables = of_logits().tables(&names(7));
    let shown = serde_json::to_value(&tables).unwrap();
    assert_eq!(shown["top_5_accuracy"], 0.9);
    assert_eq!(
        shown["classes"][3],
        serde_json::json!({"name": "n3", "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1})
    );
    assert_eq!(
        shown["confusion"][1],
        serde_json::json!({"label": 0, "predicted": 1, "count": 1})
    );
}

#[test]
fn predictions_are_written_whole_or_the_place_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("predictions.csv");
    of_logits().write(&names(7), &path).unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        csv(&of_logits(), &names(7))
    );
    let nowhere = folder.path().join("no/such.csv");
    let error = of_logits().write(&names(7), &nowhere).unwrap_err().to_string();
    assert!(
        error.contains("no/such.csv") && error.contains("predictions"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
