//! Evaluation of tuned models.

use super::computing_host::Storage;
use super::whole_job::{SIDE, job, network, photos, run};
use crate::model_metadata::{CLASSES_KEY, PIXELS_KEY};
use crate::{
    Evaluation, EvaluationJob, Event, Events, Guest, LearningRates, OnBadSample, SettingError, TrainerError,
    evaluate,
};
use frostline_client::HostClient;
use frostline_engine::Device;
use frostline_fake_host::FakeHost;
use frostline_graph::Model;
use frostline_job::{Conflict, NewHead};
use frostline_tensor::PixelSpec;
use frostline_wire::Layout;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn the_exported_model_scores_like_its_last_epoch_and_has_metadata() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut wanted = job("auto", out.path());
    wanted.spec.recipe.epochs = 30;
    wanted.spec.recipe.lr = Some(LearningRates::One(0.1));
    let ran = run(&host, wanted).await;
    let outcome = ran.outcome.unwrap();
    assert!(outcome.validation.score() > 0.9, "{outcome:?}");
    let tuned = Model::read(&outcome.model).unwrap();
    assert_eq!(tuned.metadata(CLASSES_KEY), Some(r#"["blue","green","red"]"#));
    assert!(tuned.metadata(PIXELS_KEY).unwrap().contains("\"crop_height\":8"));
    let before = network().network().unwrap();
    let after = tuned.network().unwrap();
    assert_eq!(
        (before.input, after.output.shape.dims()),
        (after.input.clone(), [3].as_slice())
    );
    // The frozen layers are untouched, unlike the trained layers.
    assert_eq!(tuned.weight("w1").unwrap(), network().weight("w1").unwrap());
    let (evaluation, _) = measure(&host, tuned, None).await;
    let evaluation = evaluation.unwrap();
    assert_eq!((evaluation.quality, evaluation.samples), (outcome.validation, 6));
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1);
}

pub(super) fn evaluation(model: Model) -> EvaluationJob {
    EvaluationJob {
        model,
        model_name: "tuned".to_owned(),
        guest: None,
        part: None,
        root: "photos".to_owned(),
        layout: Layout::Auto,
        labels: None,
        batch: 4,
        on_bad_sample: OnBadSample::Fail,
        unlisted: frostline_job::Unlisted::Fail,
        predictions: None,
        pixels: Default::default(),
        device: Device::Cpu,
        threads: 1,
        image_pixels: None,
    }
}

/// Evaluates `model` with `guest`. Returns the result and all events.
pub(super) async fn measure(
    host: &FakeHost,
    model: Model,
    guest: Option<Guest>,
) -> (Result<Evaluation, TrainerError>, Vec<Event>) {
    let job = EvaluationJob {
        guest,
        ..evaluation(model)
    };
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let log = Arc::clone(&events);
    let told: Events = Arc::new(move |event| log.lock().unwrap().push(event));
    let client = HostClient::new(&host.url, None).unwrap();
    let evaluation = evaluate(job, client, told, CancellationToken::new()).await;
    let events = events.lock().unwrap().clone();
    (evaluation, events)
}

/// Evaluates `model` with a table of labels.
pub(super) async fn measure_by(
    host: &FakeHost,
    model: Model,
    labels: PathBuf,
) -> Result<Evaluation, TrainerError> {
    let job = EvaluationJob {
        labels: Some(labels),
        ..evaluation(model)
    };
    let client = HostClient::new(&host.url, None).unwrap();
    evaluate(job, client, Arc::new(|_| ()), CancellationToken::new()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_trained_on_guest_input_is_only_evaluated_with_that_guest() {
    let storage = Storage {
        own_pixels: true,
        ..photos()
    };
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let mut spec = PixelSpec::imagenet(SIDE as u32, SIDE as u32);
    (spec.mean, spec.std) = ([0.9, 0.1, 0.5], [0.1, 3.0, 0.7]);
    let guest = |bytes: &'static [u8]| Guest {
        name: "own".to_owned(),
        bytes: bytes.into(),
        parameters: None,
    };
    let mut own = job("r2", out.path());
    (own.guest, own.spec.recipe.epochs) = (guest(b"own"), 8);
    own.spec.recipe.lr = Some(LearningRates::One(0.05));
    own.guest.parameters = Some(serde_json::to_string(&spec).unwrap());
    let outcome = run(&host, own).await.outcome.unwrap();
    let tuned = Model::read(&outcome.model).unwrap();

    let (refused, _) = measure(&host, tuned.clone(), None).await;
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("'own'") && text.contains("requires that guest"),
        "{text}"
    );
    let (same, events) = measure(&host, tuned.clone(), Some(guest(b"own"))).await;
    assert_eq!(same.unwrap().quality, outcome.validation);
    assert!(!events.iter().any(|event| matches!(event, Event::Warning { .. })));
    let (_, events) = measure(&host, tuned.clone(), Some(guest(b"another"))).await;
    assert!(
        matches!(&events[0], Event::Warning { message } if message.contains("SHA-256")),
        "{events:?}"
    );
    let (_, events) = measure(
        &host,
        tuned.clone(),
        Some(Guest {
            parameters: Some(serde_json::to_string(&PixelSpec::imagenet(SIDE as u32, SIDE as u32)).unwrap()),
            ..guest(b"own")
        }),
    )
    .await;
    assert!(
        matches!(&events[0], Event::Warning { message } if message.contains("had the parameters")),
        "{events:?}"
    );

    // The stock guest would train on other input.
    let mut again = job("none", out.path());
    again.model = tuned;
    again.freeze = "features".to_owned();
    let refused = run(&host, again).await.outcome.unwrap_err();
    assert!(matches!(refused, TrainerError::GuestNeeded { .. }), "{refused}");
}

/// [`photos`] in undivided class folders.
fn undivided() -> Storage {
    let mut storage = photos();
    let objects = std::mem::take(&mut storage.objects);
    let moved = |key: String| key.split_once('/').unwrap().1.to_owned();
    storage.objects = objects
        .into_iter()
        .map(|(key, object)| (moved(key), object))
        .collect();
    storage
}

#[tokio::test(flavor = "multi_thread")]
async fn evaluation_uses_the_held_out_samples_or_warns() {
    let (host, _) = undivided().start().await;
    let out = TempDir::new().unwrap();
    let mut wanted = job("features", out.path());
    (wanted.spec.validation, wanted.spec.recipe.seed) = (Some(0.3), 5);
    wanted.spec.recipe.lr = Some(LearningRates::One(0.1));
    let outcome = run(&host, wanted).await.outcome.unwrap();
    let tuned = Model::read(&outcome.model).unwrap();
    // Three out of nine images per class.
    let (same, events) = measure(&host, tuned.clone(), None).await;
    let same = same.unwrap();
    assert_eq!(
        (same.samples, same.quality, same.held_out),
        (9, outcome.validation, true)
    );
    assert!(
        !events.iter().any(|event| matches!(event, Event::Warning { .. })),
        "{events:?}"
    );

    let mut more = undivided();
    more.objects
        .insert("red/one-more.png".to_owned(), more.objects["red/0.png"].clone());
    let (host, _) = more.start().await;
    let (others, events) = measure(&host, tuned.clone(), None).await;
    let others = others.unwrap();
    assert_eq!((others.samples, others.held_out), (28, false));
    let warned = |event: &Event| matches!(event, Event::Warning { message } if message.contains("evaluation may include samples"));
    assert!(events.iter().any(warned), "{events:?}");

    // If the data has parts, they determine the samples to evaluate.
    let (host, _) = photos().start().await;
    let (parts, events) = measure(&host, tuned, None).await;
    assert_eq!(parts.as_ref().unwrap().samples, 6);
    assert!(
        events
            .iter()
            .all(|event| matches!(event, Event::Pixels { .. }) || event.is_progress()),
        "{events:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_a_kept_layer_was_trained_on_never_validate_it() {
    use NewHead::{Keep, Replace};
    let (host, _) = undivided().start().await;
    let out = TempDir::new().unwrap();
    let divided = |freeze: &str, seed| {
        let mut job = job("none", out.path());
        freeze.clone_into(&mut job.freeze);
        (job.spec.validation, job.spec.validation_seed) = (Some(0.3), Some(seed));
        job
    };
    let train = async |job| {
        let ran = run(&host, job).await;
        let outcome = ran.outcome.map(|outcome| Model::read(&outcome.model).unwrap());
        (outcome, ran.events)
    };
    let again = |model: &Model, head, seed| {
        let mut job = divided("features", seed);
        (job.model, job.spec.head) = (model.clone(), head);
        job
    };
    let whole = train(divided(network().input_name().unwrap(), 1))
        .await
        .0
        .unwrap();
    let only_head = train(divided("features", 1)).await.0.unwrap();
    for (model, head) in [(&whole, Replace), (&whole, Keep), (&only_head, Keep)] {
        let error = train(again(model, head, 2)).await.0.unwrap_err();
        assert!(error.to_string().contains("was trained on"), "{error}");
        assert!(
            matches!(
                &error,
                TrainerError::Setting(SettingError {
                    conflict: Some(Conflict::OtherDivision { seed: 1, .. }),
                    ..
                })
            ),
            "{error:?}"
        );
        assert!(train(again(model, head, 1)).await.0.is_ok());
    }
    // A replaced head has seen nothing.
    let (fresh, events) = train(again(&only_head, Replace, 2)).await;
    assert!(
        !events.iter().any(|event| matches!(event, Event::Warning { .. })),
        "{events:?}"
    );
    let (evaluated, _) = measure(&host, fresh.unwrap(), None).await;
    assert!(evaluated.unwrap().held_out);

    // The layers trained first are still trained after a job that only trained the head.
    let twice = train(again(&whole, Replace, 1)).await.0.unwrap();
    assert!(train(again(&twice, Replace, 2)).await.0.is_err());

    // A job on data with parts hides nothing of the training before, nor its own training.
    let (parted, _) = photos().start().await;
    for model in [&whole, &network()] {
        let mut other = job("none", out.path());
        (other.model, other.freeze) = (model.clone(), network().input_name().unwrap().to_owned());
        let other = Model::read(&run(&parted, other).await.outcome.unwrap().model).unwrap();
        let (outcome, events) = train(again(&other, Replace, 2)).await;
        let warned = |event: &Event| matches!(event, Event::Warning { message } if message.contains("may include images"));
        assert!(outcome.is_err() || events.iter().any(warned), "{events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_moved_to_the_validation_part_are_refused_for_kept_layers() {
    let out = TempDir::new().unwrap();
    let moved = |from: &str, to: &str| {
        let mut storage = photos();
        storage.etag = Some("1".to_owned());
        let object = storage.objects.remove(from).unwrap();
        storage.objects.insert(to.to_owned(), object);
        storage
    };
    let key = "train/red/0.png";
    assert!(photos().objects.contains_key(key));
    let train = async |storage: Storage, model: &Model, head| {
        let mut job = job("none", out.path());
        (job.model, job.spec.head) = (model.clone(), head);
        let (host, _) = storage.start().await;
        let outcome = run(&host, job).await.outcome;
        outcome.map(|outcome| Model::read(&outcome.model).unwrap())
    };
    let renamed = || moved(key, "train/red/own-name.png");
    let first = train(renamed(), &network(), NewHead::Replace).await.unwrap();
    // The same parts, and a head that has seen nothing.
    let second = train(renamed(), &first, NewHead::Keep).await.unwrap();
    let other = || moved(key, "validation/red/own-name.png");
    train(other(), &first, NewHead::Replace).await.unwrap();
    for model in [&first, &second] {
        let error = train(other(), model, NewHead::Keep).await.err().unwrap();
        assert!(
            error.to_string().contains("was trained on at least 1 of"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_cannot_be_divided_again_is_not_known_to_be_held_out() {
    let (host, _) = undivided().start().await;
    let out = TempDir::new().unwrap();
    let mut wanted = job("features", out.path());
    wanted.spec.validation = Some(0.3);
    let tuned = Model::read(&run(&host, wanted).await.outcome.unwrap().model).unwrap();
    // One image is left of a class.
    let mut fewer = undivided();
    fewer
        .objects
        .retain(|key, _| !key.starts_with("red/") || key.ends_with("/0.png"));
    let (host, _) = fewer.start().await;
    let (evaluated, events) = measure(&host, tuned, None).await;
    assert!(!evaluated.unwrap().held_out);
    let warned = |event: &Event| matches!(event, Event::Warning { message } if message.contains("evaluation may include samples"));
    assert!(events.iter().any(warned), "{events:?}");
}

/// The outputs of a network without names are the classes of the data by assumption.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_without_class_names_says_what_was_assumed() {
    let (host, _) = photos().start().await;
    let model = network().replace_head(3, 0).unwrap();
    let (evaluated, events) = measure(&host, model, None).await;
    evaluated.unwrap();
    let said = events.iter().find_map(|event| match event {
        Event::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    assert!(said.unwrap().contains("sorted class names"), "{said:?}");
    assert!(said.unwrap().contains("output 0 is '"), "{said:?}");
}
