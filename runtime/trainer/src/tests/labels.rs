//! Jobs with labels from a table.

use super::computing_host::Storage;
use super::evaluation::{measure, measure_by};
use super::whole_job::{Ran, job, photos, run};
use crate::model_metadata::{CLASSES_KEY, LABELS_KEY, TARGETS_KEY};
use crate::{ClassWeights, Event, Job, LearningRates, ListedData, LossName, Quality, Sampling};
use frostline_client::Task;
use frostline_fake_host::FakeHost;
use frostline_graph::Model;
use std::fmt::Write;
use tempfile::TempDir;

/// The photos with a table of labels. `values` returns the columns for a class.
fn photos_with(columns: &str, values: fn(&str) -> &'static str) -> Storage {
    let mut storage = photos();
    let mut table = format!("file,{columns}\n");
    for key in storage.objects.keys() {
        let class = key.split('/').nth(1).unwrap();
        writeln!(table, "{key},{}", values(class)).unwrap();
    }
    storage.objects.insert("labels.csv".to_owned(), table.into());
    storage
}

/// Labels that depend on the color.
pub(super) fn flags() -> Storage {
    photos_with("warm,cold,blue", |class| match class {
        "red" => "1,0,0",
        "green" => "0,1,0",
        _ => "0,1,1",
    })
}

pub(super) fn numbers() -> Storage {
    photos_with("warmth,length", |class| match class {
        "red" => "1350,0.65",
        "green" => "1100,0.53",
        _ => "800,0.45",
    })
}

pub(super) fn wanted(loss: LossName, out: &TempDir) -> Job {
    let mut job = job("features", out.path());
    (job.spec.recipe.loss, job.spec.recipe.epochs) = (loss, 40);
    job.spec.recipe.lr = Some(LearningRates::One(0.1));
    job
}

fn task(ran: &Ran) -> Option<(Task, Vec<String>)> {
    ran.events.iter().find_map(|event| match event {
        Event::Dataset(ListedData { task, classes, .. }) => Some((*task, classes.clone())),
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn several_labels_are_trained_exported_and_evaluated() {
    let (host, _) = flags().start().await;
    let out = TempDir::new().unwrap();
    let ran = run(&host, wanted(LossName::Bce, &out)).await;
    let names = ["warm", "cold", "blue"].map(str::to_owned).to_vec();
    assert_eq!(task(&ran), Some((Task::Labels, names)));
    let baseline = ran.baseline();
    let outcome = ran.outcome.unwrap();
    let Quality::Labels {
        f1_micro,
        f1_macro,
        mean_average_precision,
    } = outcome.validation
    else {
        panic!("{outcome:?}")
    };
    assert!(
        f1_micro > 0.9 && f1_macro > 0.9 && mean_average_precision > 0.95,
        "{outcome:?}"
    );
    assert!(baseline.score() < outcome.validation.score(), "{outcome:?}");
    let tuned = Model::read(&outcome.model).unwrap();
    assert_eq!(tuned.metadata(LABELS_KEY), Some(r#"["warm","cold","blue"]"#));
    assert_eq!(
        (tuned.metadata(CLASSES_KEY), tuned.metadata(TARGETS_KEY)),
        (None, None)
    );
    let (evaluation, _) = measure(&host, tuned, None).await;
    let evaluation = evaluation.unwrap();
    assert_eq!((evaluation.quality, evaluation.samples), (outcome.validation, 6));
    let shown = serde_json::to_value(ran.events.last().unwrap()).unwrap();
    assert_eq!(shown["validation_f1_micro"].as_f64(), Some(f1_micro), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_trained_exported_and_evaluated_also_from_a_local_file() {
    let storage = numbers();
    let text = storage.objects["labels.csv"].clone();
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let ran = run(&host, wanted(LossName::Mse, &out)).await;
    let beside = ran.losses();
    let baseline = ran.baseline();
    let outcome = ran.outcome.unwrap();
    let Quality::Numbers { rmse, r2, .. } = outcome.validation else {
        panic!("{outcome:?}")
    };
    assert!(rmse < 50.0 && r2 > 0.5, "{outcome:?}");
    // The head starts with the mean of the targets.
    let Quality::Numbers { r2: before, .. } = baseline else {
        panic!("{outcome:?}")
    };
    assert!(before > -1.0, "{outcome:?}");
    let tuned = Model::read(&outcome.model).unwrap();
    assert_eq!(tuned.metadata(TARGETS_KEY), Some(r#"["warmth","length"]"#));
    assert_eq!(tuned.network().unwrap().output.shape.dims(), [2]);
    assert_eq!(
        measure(&host, tuned.clone(), None).await.0.unwrap().quality,
        outcome.validation
    );
    // Read the same table from a local file, with data that contains no table. If the columns are reordered,
    // the model's order is used.
    let (bare, _) = photos().start().await;
    let file = out.path().join("mine.csv");
    std::fs::write(&file, &text).unwrap();
    let mut local = wanted(LossName::Mse, &out);
    local.spec.labels = Some(file.clone());
    assert_eq!(run(&bare, local).await.losses(), beside);
    let turned: String =
        String::from_utf8(text.to_vec())
            .unwrap()
            .lines()
            .fold(String::new(), |all, line| {
                let mut fields = line.split(',');
                let [key, first, second] = [(); 3].map(|()| fields.next().unwrap());
                all + &format!("{key},{second},{first}\n")
            });
    std::fs::write(&file, turned).unwrap();
    assert_eq!(
        measure_by(&bare, tuned, file).await.unwrap().quality,
        outcome.validation
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_classes_trains_as_folders_do_and_bce_takes_classes() {
    let same = |class: &str| match class {
        "red" => "red",
        "green" => "green",
        _ => "blue",
    };
    let (host, _) = photos_with("label", same).start().await;
    let (bare, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let losses = async |host: &FakeHost, loss: LossName| {
        let mut job = wanted(loss, &out);
        job.spec.recipe.epochs = 3;
        run(host, job).await
    };
    assert_eq!(
        losses(&host, LossName::CrossEntropy).await.losses(),
        losses(&bare, LossName::CrossEntropy).await.losses()
    );
    let ran = losses(&bare, LossName::Bce).await;
    assert!(matches!(ran.outcome.unwrap().validation, Quality::Classes { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_support_class_weights_and_mixup() {
    let (host, _) = flags().start().await;
    let out = TempDir::new().unwrap();
    let losses = async |weights, alpha| {
        let mut job = wanted(LossName::Bce, &out);
        (
            job.spec.recipe.class_weights,
            job.spec.recipe.mixup_alpha,
            job.spec.recipe.epochs,
        ) = (weights, alpha, 2);
        let ran = run(&host, job).await;
        ran.outcome.as_ref().unwrap();
        ran.losses()
    };
    let plain = losses(ClassWeights::None, 0.0).await;
    assert_ne!(losses(ClassWeights::Balanced, 0.0).await, plain);
    assert_ne!(losses(ClassWeights::None, 0.4).await, plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_label_settings_are_refused_before_uploads() {
    let (host, storage) = flags().start().await;
    let (bare, bare_storage) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut balanced = wanted(LossName::Bce, &out);
    balanced.spec.recipe.sampling = Sampling::Balanced;
    let mut missing = wanted(LossName::Mse, &out);
    missing.spec.labels = Some(out.path().join("missing.csv"));
    for (host, job, words) in [
        (&host, balanced, ["sampling", "balanced"]),
        (&host, missing, ["missing.csv", "labels table"]),
        // Columns with 0 and 1 are not classes.
        (
            &host,
            wanted(LossName::CrossEntropy, &out),
            ["line 1", "labels or numbers"],
        ),
        (
            &bare,
            wanted(LossName::Mse, &out),
            ["labels.csv", "a table outside the data"],
        ),
    ] {
        let error = run(host, job).await.outcome.unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    assert!(storage.uploaded().is_empty() && bare_storage.uploaded().is_empty());
}
