//! Tuned models: output operators, preprocessing metadata, and the final evaluation on the test part.

use super::evaluation::measure;
use super::whole_job::{job, network, photos, run};
use crate::model_metadata::{ModelInput, TrainingRecord};
use crate::{Event, input_pixels, normalized_twice, read_pixels_beside};
use frostline_client::Task;
use frostline_graph::Model;
use frostline_graph::build::{batched, initializer, model, node};
use frostline_job::{PixelFlags, PixelSource};
use frostline_tensor::{Interpolation, PixelSpec, ResizeMode, Tensor};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn the_test_part_measures_the_written_model_once() {
    let mut storage = photos();
    let validation: Vec<_> = storage.objects.clone().into_iter().collect();
    for (key, bytes) in validation {
        if let Some(rest) = key.strip_prefix("validation/") {
            storage.objects.insert(format!("testing/{rest}"), bytes.clone());
        }
    }
    let (host, _) = storage.start().await;
    let out = TempDir::new().unwrap();
    let mut tested = job("features", out.path());
    tested.spec.test = true;
    let ran = run(&host, tested).await;
    let outcome = ran.outcome.unwrap();
    let at = |wanted: fn(&Event) -> bool| ran.events.iter().position(wanted).unwrap();
    let (test, done) = (
        at(|event| matches!(event, Event::Test { .. })),
        at(|event| matches!(event, Event::Done { .. })),
    );
    assert!(test < done);
    let Event::Test { quality, .. } = ran.events[test] else {
        unreachable!()
    };
    // These are copies of the validation images.
    assert_eq!(quality, outcome.validation);

    let (host, _) = photos().start().await;
    let mut without = job("features", out.path());
    without.spec.test = true;
    let error = run(&host, without).await.outcome.unwrap_err().to_string();
    assert!(error.contains("no test/ part"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probability_output_is_restored_after_tuning() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let mut graph = network().into_proto().graph.unwrap();
    graph.node.push(node("Softmax", &["scores"], &["likely"]));
    graph.output = vec![batched("likely", &[7])];
    let mut likely = job("features", out.path());
    likely.model = Model::from_proto(model(17, graph)).unwrap();
    let outcome = run(&host, likely).await.outcome.unwrap();
    let tuned = Model::read(&outcome.model).unwrap();
    let last = tuned.nodes().last().unwrap();
    assert_eq!(
        (last.op_type.as_str(), last.output[0].as_str()),
        ("Softmax", "likely")
    );
    let (evaluated, _) = measure(&host, tuned, None).await;
    assert_eq!(evaluated.unwrap().quality, outcome.validation);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_of_the_preprocessing_is_reported() {
    let (host, _) = photos().start().await;
    let out = TempDir::new().unwrap();
    let said = |events: &[Event]| {
        let pixels = events.iter().find_map(|event| match event {
            Event::Pixels { recipe, source } => Some((*recipe, *source)),
            _ => None,
        });
        pixels.unwrap()
    };
    let assumed = run(&host, job("features", out.path())).await;
    let (usual, source) = said(&assumed.events);
    assert_eq!(source, PixelSource::Assumed);
    let mut flagged = job("features", out.path());
    flagged.spec.pixels.mean = Some("0.5,0.25,0.125".parse().unwrap());
    let flagged = run(&host, flagged).await;
    let (recipe, source) = said(&flagged.events);
    let expected = PixelSpec {
        mean: [0.5, 0.25, 0.125],
        ..usual
    };
    assert_eq!((recipe, source), (expected, PixelSource::Flags));
    // The tuned model contains the recipe.
    let outcome = flagged.outcome.unwrap();
    let tuned = Model::read(&outcome.model).unwrap();
    let (evaluated, events) = measure(&host, tuned, None).await;
    assert_eq!(evaluated.unwrap().quality, outcome.validation);
    assert_eq!(said(&events), (expected, PixelSource::Model));
}

#[test]
fn preprocessor_config_applies_unless_the_model_has_a_recipe() {
    let folder = TempDir::new().unwrap();
    let network = job("features", folder.path()).model;
    let file = folder.path().join("model.onnx");
    let flags = PixelFlags::default();
    let read = |flags: &PixelFlags| {
        let mut model = network.clone();
        read_pixels_beside(&mut model, &file, flags).map(|()| model)
    };
    let source = |model: &Model| input_pixels(model, &flags).unwrap().1;
    assert_eq!(source(&read(&flags).unwrap()), PixelSource::Assumed);
    let beside = folder.path().join("preprocessor_config.json");
    let config = r#"{"size":{"height":8,"width":8},"resample":3,"image_mean":[0.5,0.5,0.5],"image_std":[0.5,0.5,0.5]}"#;
    std::fs::write(&beside, config).unwrap();
    let mut model = read(&flags).unwrap();
    let (recipe, said) = input_pixels(&model, &flags).unwrap();
    assert_eq!(said, PixelSource::Beside);
    assert_eq!(
        (recipe.interpolation, recipe.resize_mode, recipe.resize),
        (Interpolation::Bicubic, ResizeMode::Squash, 8)
    );
    // A tuned model contains the recipe in its own metadata.
    let record = TrainingRecord {
        input: ModelInput::Pixels(recipe),
        task: Task::Classes,
        names: Vec::new(),
        division: None,
        trained_images: crate::setup::TrainedImages::default(),
        trained_after: "features".to_owned(),
    };
    crate::model_metadata::write(&mut model, &record);
    assert_eq!(source(&model), PixelSource::Model);
    std::fs::write(&beside, config.replace("8,", "9,")).unwrap();
    read_pixels_beside(&mut model, &file, &flags).unwrap();
    assert_eq!(
        input_pixels(&model, &flags).unwrap(),
        (recipe, PixelSource::Model)
    );
    std::fs::write(&beside, config.replace("{\"size", "{\"do_pad\":true,\"size")).unwrap();
    assert!(read(&flags).unwrap_err().to_string().contains("do_pad"));
    let stated = PixelFlags {
        resize: Some(10),
        ..PixelFlags::default()
    };
    assert!(read(&stated).is_ok());
}

#[test]
fn a_network_that_normalizes_gets_raw_pixels_and_another_normalization_is_warned_of() {
    let folder = TempDir::new().unwrap();
    let network = job("features", folder.path()).model;
    let input = network.input_name().unwrap().to_owned();
    let mut graph = network.graph().clone();
    for node in &mut graph.node {
        let reads = node.input.iter_mut().filter(|name| **name == input);
        reads.for_each(|name| "centered".clone_into(name));
    }
    let scalar = |name: &str, value: f32| initializer(name, &Tensor::f32([], vec![value]).unwrap());
    graph.node.splice(
        0..0,
        [
            node("Mul", &[&input, "rescaling"], &["scaled"]),
            node("Sub", &["scaled", "one"], &["centered"]),
        ],
    );
    graph
        .initializer
        .extend([scalar("rescaling", 1.0 / 127.5), scalar("one", 1.0)]);
    let model = network.with_graph(graph).unwrap();
    let pixels = |flags: &PixelFlags| input_pixels(&model, flags).unwrap();
    let (raw, source) = pixels(&PixelFlags::default());
    assert_eq!(source, PixelSource::Network);
    assert_eq!((raw.mean, raw.std), ([0.0; 3], [1.0 / 255.0; 3]));
    assert_eq!(normalized_twice(&model, &raw, source), None);
    // Other settings do not change the normalization.
    let resized = PixelFlags {
        resize: Some(9),
        ..PixelFlags::default()
    };
    let (recipe, source) = pixels(&resized);
    assert_eq!((recipe.std, recipe.resize), (raw.std, 9));
    assert_eq!(normalized_twice(&model, &recipe, source), None);
    let twice = PixelFlags {
        mean: Some("0.5,0.5,0.5".parse().unwrap()),
        std: Some("0.5,0.5,0.5".parse().unwrap()),
        ..PixelFlags::default()
    };
    let (recipe, source) = pixels(&twice);
    assert_eq!(recipe.std, [0.5; 3]);
    let warning = normalized_twice(&model, &recipe, source).unwrap();
    assert!(warning.contains("normalize pixels from 0 to 255"), "{warning}");
    assert_eq!(normalized_twice(&network, &recipe, source), None);
    // The recipe of a tuned model is that of its training.
    assert_eq!(normalized_twice(&model, &recipe, PixelSource::Model), None);
}
