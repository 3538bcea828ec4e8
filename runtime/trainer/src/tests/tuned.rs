//! Tuned models: what they end in, how they say their input is made, and the part of the data that measures them once.

use super::evaluation::measure;
use super::whole_job::{job, network, photos, run};
use crate::Event;
use frostline_graph::Model;
use frostline_graph::build::{batched, model, node};
use frostline_job::PixelSource;
use frostline_tensor::PixelSpec;
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
    // They are the validation images under other names.
    assert_eq!(quality, outcome.validation);

    let (host, _) = photos().start().await;
    let mut without = job("features", out.path());
    without.spec.test = true;
    let error = run(&host, without).await.outcome.unwrap_err().to_string();
    assert!(error.contains("no test/ part"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_of_probabilities_comes_back_with_them() {
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
async fn where_preprocessing_comes_from_is_said() {
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
    // The tuned model carries it.
    let outcome = flagged.outcome.unwrap();
    let tuned = Model::read(&outcome.model).unwrap();
    let (evaluated, events) = measure(&host, tuned, None).await;
    assert_eq!(evaluated.unwrap().quality, outcome.validation);
    assert_eq!(said(&events), (expected, PixelSource::Model));
}
