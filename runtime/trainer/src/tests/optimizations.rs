//! Jobs whose frozen layers are compared with ONNX Runtime without optimizations.

use super::computing_host::Storage;
use super::whole_job::{Ran, job, network, photos, run, wrong_when_optimized};
use crate::{EncodingChoice, Event, Guest, TrainerError};
use frostline_graph::Model;
use frostline_wire::Encoding;
use tempfile::TempDir;

async fn trained(model: Model, split: &str, encoding: EncodingChoice) -> Ran {
    let out = TempDir::new().unwrap();
    let (host, _) = photos().start().await;
    let mut job = job(split, out.path());
    (job.model, job.spec.encoding) = (model, encoding);
    job.spec.recipe.epochs = 1;
    run(&host, job).await
}

#[tokio::test]
async fn layers_that_optimizations_change_are_refused_before_training() {
    for split in ["none", "input", "r1", "features"] {
        for encoding in [EncodingChoice::Auto, EncodingChoice::Fixed(Encoding::F16)] {
            if matches!(encoding, EncodingChoice::Fixed(_)) && ["none", "input"].contains(&split) {
                continue;
            }
            let ran = trained(wrong_when_optimized(), split, encoding).await;
            let error = ran.outcome.unwrap_err();
            assert!(
                matches!(&error, TrainerError::OptimizedWrongly { on_this_machine: true, difference, .. } if *difference > 0.01),
                "{split}: {error}"
            );
            let message = error.to_string();
            let said = [
                "validation/blue/7.png', 'validation/blue/8.png",
                "'features'",
                "an earlier cut",
            ];
            assert!(
                said.iter().all(|part| message.contains(part)),
                "{split}: {message}"
            );
            let trained = |event: &Event| matches!(event, Event::Step { .. } | Event::Baseline { .. });
            assert!(!ran.events.iter().any(trained), "{split}");
        }
    }
}

#[tokio::test]
async fn encodings_do_not_affect_the_comparison() {
    for encoding in ["f16", "int8"] {
        let encoding = EncodingChoice::Fixed(encoding.parse().unwrap());
        trained(network(), "r1", encoding).await.outcome.unwrap();
    }
}

#[tokio::test]
async fn layers_before_the_error_are_accepted() {
    let out = TempDir::new().unwrap();
    let (host, _) = photos().start().await;
    let mut job = job("r1", out.path());
    (job.model, job.freeze) = (wrong_when_optimized(), "r1".to_owned());
    run(&host, job).await.outcome.unwrap();
}

#[tokio::test]
async fn layers_of_a_guest_run_on_this_machine() {
    for (own_pixels, split) in [(false, "features"), (false, "none"), (true, "features")] {
        let out = TempDir::new().unwrap();
        let storage = Storage {
            own_pixels,
            ..photos()
        };
        let (host, _) = storage.start().await;
        let mut job = job(split, out.path());
        job.model = wrong_when_optimized();
        job.guest = Guest {
            name: "custom".to_owned(),
            ..Guest::stock()
        };
        job.guest.bytes = [&job.guest.bytes[..], b"\0"].concat().into();
        let ran = run(&host, job).await;
        let warns = |event: &Event| matches!(event, Event::Warning { message } if message.contains("the guest returns no pixels"));
        assert_eq!(ran.events.iter().any(warns), own_pixels, "{split}");
        match own_pixels {
            true => drop(ran.outcome.unwrap()),
            false => assert!(matches!(ran.outcome, Err(TrainerError::OptimizedWrongly { .. }))),
        }
    }
}
