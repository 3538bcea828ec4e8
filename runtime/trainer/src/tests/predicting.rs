//! Predictions on this machine, compared with evaluations of the same images.

use super::computing_host::Storage;
use super::evaluation::evaluation;
use super::labels::{flags, numbers, wanted};
use super::whole_job::{network, photos, run};
use crate::{Answer, EvaluationJob, LossName, Prediction, PredictionJob, Predictor, TrainerError, evaluate};
use frostline_client::HostClient;
use frostline_engine::Device;
use frostline_fake_host::FakeHost;
use frostline_graph::Model;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Writes the storage's objects to files.
fn files(storage: &Storage) -> TempDir {
    let root = TempDir::new().unwrap();
    for (key, bytes) in &storage.objects {
        let file = root.path().join(key);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
    root
}

fn prediction(model: Model, paths: Vec<PathBuf>) -> PredictionJob {
    PredictionJob {
        model,
        paths,
        top: 2,
        batch: 4,
        pixels: Default::default(),
        device: Device::Cpu,
        threads: 1,
        image_pixels: None,
    }
}

async fn predict(job: PredictionJob) -> Result<Vec<Prediction>, TrainerError> {
    let mut predictor = Predictor::open(job).await?;
    let mut all = Vec::new();
    while let Some(batch) = predictor.next().await? {
        assert!(batch.len() <= 4);
        all.extend(batch);
    }
    assert_eq!(predictor.next().await?, None);
    Ok(all)
}

/// Evaluates the validation part and returns the lines of the CSV file as cells. The first line contains the
/// column names.
async fn evaluated(host: &FakeHost, model: Model, folder: &Path) -> Vec<Vec<String>> {
    let file = folder.join("predictions.csv");
    let job = EvaluationJob {
        predictions: Some(file.clone()),
        ..evaluation(model)
    };
    let client = HostClient::new(&host.url, None).unwrap();
    let evaluation = evaluate(job, client, Arc::new(|_| ()), CancellationToken::new()).await;
    assert_eq!(evaluation.unwrap().samples, 6);
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect()
}

/// Trains a model. Returns local predictions for the validation part by key. Also returns the lines of the
/// evaluation.
async fn both(storage: Storage, loss: LossName) -> (Vec<(String, Answer)>, Vec<Vec<String>>) {
    let root = files(&storage);
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let mut job = wanted(loss, &out);
    job.spec.recipe.epochs = 6;
    let outcome = run(&host, job).await.outcome.unwrap();
    let tuned = Model::read(&outcome.model).unwrap();
    let evaluated = evaluated(&host, tuned.clone(), out.path()).await;
    let said = predict(prediction(tuned, vec![root.path().join("validation")]))
        .await
        .unwrap();
    let said = said.into_iter().map(|prediction| {
        let key = prediction.path.strip_prefix(root.path()).unwrap();
        (key.display().to_string(), prediction.answer.unwrap())
    });
    (said.collect(), evaluated)
}

#[tokio::test(flavor = "multi_thread")]
async fn predicted_classes_match_an_evaluation() {
    let (said, evaluated) = both(photos(), LossName::CrossEntropy).await;
    assert_eq!(evaluated[0], ["key", "label", "predicted", "probability", "rank"]);
    assert_eq!(evaluated.len(), 1 + said.len());
    for ((key, answer), line) in said.iter().zip(&evaluated[1..]) {
        let Answer::Classes(classes) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(
            [key, &classes[0].class, &classes[0].probability.to_string()],
            [&line[0], &line[2], &line[3]]
        );
        assert!(classes.len() == 2 && classes[0].probability >= classes[1].probability);
        assert_eq!(key.split('/').nth(1).unwrap(), line[1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn predicted_labels_and_numbers_match_an_evaluation() {
    let (said, evaluated) = both(flags(), LossName::Bce).await;
    assert_eq!(evaluated.len(), 1 + said.len());
    for ((key, answer), line) in said.iter().zip(&evaluated[1..]) {
        let Answer::Labels(labels) = answer else {
            panic!("{answer:?}")
        };
        let names: Vec<&str> = labels.iter().map(|label| label.label.as_str()).collect();
        assert_eq!(names, ["warm", "cold", "blue"]);
        let cells = labels
            .iter()
            .flat_map(|label| [u8::from(label.yes).to_string(), label.probability.to_string()]);
        let expected = [2, 3, 5, 6, 8, 9].map(|column| line[column].clone());
        assert_eq!((key, cells.collect::<Vec<_>>()), (&line[0], expected.to_vec()));
    }

    let (said, evaluated) = both(numbers(), LossName::Mse).await;
    assert_eq!(
        evaluated[0],
        [
            "key",
            "label:warmth",
            "predicted:warmth",
            "label:length",
            "predicted:length"
        ]
    );
    assert_eq!(evaluated.len(), 1 + said.len());
    for ((key, answer), line) in said.iter().zip(&evaluated[1..]) {
        let Answer::Targets(targets) = answer else {
            panic!("{answer:?}")
        };
        let values: Vec<String> = targets.iter().map(|target| target.value.to_string()).collect();
        assert_eq!((key, values), (&line[0], vec![line[2].clone(), line[4].clone()]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_image_is_reported_in_order_and_others_are_predicted() {
    let root = files(&photos());
    let red = root.path().join("validation/red");
    std::fs::write(red.join("7a.jpg"), b"no image at all").unwrap();
    std::fs::write(red.join("7b.jpg"), b"").unwrap();
    let missing = root.path().join("missing.png");
    let said = predict(prediction(network(), vec![red, missing.clone()]))
        .await
        .unwrap();
    let name = |prediction: &Prediction| prediction.path.file_name().unwrap().to_str().unwrap().to_owned();
    let names: Vec<String> = said.iter().map(name).collect();
    assert_eq!(names, ["7.png", "7a.jpg", "7b.jpg", "8.png", "missing.png"]);
    let whys: Vec<Option<&String>> = said.iter().map(|said| said.answer.as_ref().err()).collect();
    assert!(whys[0].is_none() && whys[3].is_none(), "{whys:?}");
    assert!(whys[1].unwrap().contains("not a JPEG"), "{whys:?}");
    assert!(whys[2].unwrap().contains("empty"), "{whys:?}");
    assert!(whys[4].unwrap().contains("cannot read the path"), "{whys:?}");
    assert_eq!(said[4].path, missing);
    // This model does not name its classes.
    let Ok(Answer::Classes(classes)) = &said[0].answer else {
        panic!("{said:?}")
    };
    assert!(classes[0].class.starts_with("output "), "{classes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_are_in_order_and_do_not_depend_on_the_batch() {
    let root = files(&photos());
    let all = predict(prediction(network(), vec![root.path().to_owned()]))
        .await
        .unwrap();
    assert_eq!(all.len(), 27);
    let mut sorted = all.clone();
    sorted.sort_by(|left, right| left.path.cmp(&right.path));
    assert_eq!(all, sorted);
    for prediction in [&all[0], &all[13], &all[26]] {
        let alone = predict(self::prediction(network(), vec![prediction.path.clone()])).await;
        assert_eq!(alone.unwrap(), std::slice::from_ref(prediction));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_models_are_refused_with_a_reason() {
    let refused = async |job: PredictionJob| match Predictor::open(job).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let mut own = network();
    let note = r#"{"guest":"own","sha256":"00","parameters":"","freeze":"r2","split":"r2"}"#;
    own.set_metadata(crate::model_metadata::PIXELS_KEY, note);
    let error = refused(prediction(own, Vec::new())).await;
    assert!(
        error.contains("'own'") && error.contains("requires that guest"),
        "{error}"
    );
    let mut few = network();
    few.set_metadata(crate::model_metadata::CLASSES_KEY, r#"["cat","dog"]"#);
    let error = refused(prediction(few, Vec::new())).await;
    assert!(
        error.contains("7 outputs") && error.contains("names 2"),
        "{error}"
    );
    let none = PredictionJob {
        top: 0,
        ..prediction(network(), Vec::new())
    };
    assert!(refused(none).await.contains("number of classes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unwritable_predictions_file_is_refused_before_any_request() {
    let out = TempDir::new().unwrap();
    let job = EvaluationJob {
        predictions: Some(out.path().join("no/such.csv")),
        ..evaluation(network())
    };
    // No host listens on this port.
    let client = HostClient::new("http://127.0.0.1:9", None).unwrap();
    let refused = evaluate(job, client, Arc::new(|_| ()), CancellationToken::new()).await;
    assert!(matches!(refused, Err(TrainerError::Output { .. })), "{refused:?}");
}
