//! Jobs that train more layers in later epochs.

use super::computing_host::Storage;
use super::profile_missing::{some_profile, start};
use super::whole_job::{Ran, differ, job, network, photos, run};
use crate::{EncodingChoice, Event, Job, Keep, OptimizerName, Scheduler, TrainedStep};
use frostline_fake_host::FakeHost;
use frostline_features::Cache;
use frostline_graph::Model;
use frostline_wire::{Encoding, Split};
use tempfile::TempDir;

async fn ran(host: &FakeHost, split: &str, unfreeze: &str, change: fn(&mut Job)) -> (Ran, Option<Model>) {
    let out = TempDir::new().unwrap();
    let mut job = job(split, out.path());
    // Compare the weights of the last epoch, and avoid rounding in transit at any split.
    job.spec.keep = Keep::Last;
    (job.spec.encoding, job.spec.recipe.epochs) = (EncodingChoice::Fixed(Encoding::F32), 4);
    if !unfreeze.is_empty() {
        job.spec.unfreeze = unfreeze.parse().unwrap();
    }
    change(&mut job);
    let ran = run(host, job).await;
    let model = Model::read(out.path().join("tuned.onnx")).ok();
    (ran, model)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_optimizer_state_survives_unfreezing() {
    let (host, _) = photos().start().await;
    for change in [
        |job: &mut Job| job.spec.recipe.momentum = 0.9,
        |job: &mut Job| job.spec.recipe.optimizer = OptimizerName::Adamw,
        |job: &mut Job| job.spec.recipe.model_ema_decay = Some(0.9),
    ] {
        let (plain, _) = ran(&host, "none", "", change).await;
        // There are no weights between these cuts.
        let (unfrozen, _) = ran(&host, "auto", "2=pooled,3=r2", change).await;
        assert!(differ(&plain.losses(), &unfrozen.losses()) < 1e-5);
        let plain = plain.outcome.unwrap();
        let unfrozen = unfrozen.outcome.unwrap();
        assert_eq!(plain.validation, unfrozen.validation);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_epochs_train_more_layers_and_the_split_follows() {
    let storage = Storage {
        probed: true,
        ..photos()
    };
    let (host, storage) = storage.start().await;
    let constant = |job: &mut Job| {
        (job.spec.recipe.lr_scheduler, job.spec.recipe.warmup_ratio) = (Scheduler::Constant, 0.0)
    };
    let (plain, frozen) = ran(&host, "features", "", constant).await;
    let (reference, tuned) = ran(&host, "none", "3=r1", constant).await;
    let before = plain.losses();
    let after = reference.losses();
    // Each epoch has three steps.
    assert!(differ(&before[..6], &after[..6]) < 1e-5);
    assert_ne!(before[7], after[7]);
    let frozen = frozen.unwrap();
    let tuned = tuned.unwrap();
    assert_eq!(frozen.weight("w2").unwrap(), network().weight("w2").unwrap());
    assert_ne!(tuned.weight("w2").unwrap(), network().weight("w2").unwrap());
    assert_eq!(tuned.weight("w1").unwrap(), network().weight("w1").unwrap());
    for split in ["freeze", "auto", "input", "c1"] {
        let uploads = storage.uploads.lock().unwrap().len();
        let (ran, _) = ran(&host, split, "3=r1", constant).await;
        assert!(differ(&ran.losses(), &after) < 1e-5, "{split}: {:?}", ran.outcome);
        let at: Vec<usize> = (0..ran.events.len())
            .filter(
                |index| matches!(&ran.events[*index], Event::Unfreeze { epoch: 3, freeze } if freeze == "r1"),
            )
            .collect();
        let &[at] = at.as_slice() else { panic!("{at:?}") };
        let later = ran.events[at..].iter().filter_map(|event| match event {
            Event::Step(TrainedStep { split, .. }) => Some(split.clone()),
            _ => None,
        });
        let allowed = ["none", "input", "c1", "r1"].map(Split::from);
        assert!(later.clone().all(|split| allowed.contains(&split)), "{split}");
        if split == "freeze" {
            assert!(later.clone().all(|split| split == Split::from("r1")));
        }
        // Hosts already have the layers for earlier cuts.
        let more = storage.uploads.lock().unwrap().len() - uploads;
        assert!(more <= 3, "{split}: {more} uploads");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_phases_plan_with_cached_features() {
    let storage = Storage {
        probed: true,
        etag: Some("1".to_owned()),
        ..photos()
    };
    let host = start(storage, some_profile).await;
    let cached = |job: &mut Job| {
        let folder = job.spec.out.as_ref().unwrap().with_file_name("features");
        job.features = Some(Cache::new(folder, 1 << 30));
        job.spec.encoding = EncodingChoice::Auto;
        job.spec.link_bytes_per_second = Some(1e9);
    };
    let (ran, _) = ran(&host, "auto", "2=r1", cached).await;
    ran.outcome.unwrap();
    let reasons = ran.events.iter().filter_map(|event| match event {
        Event::Split { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    let reasons: Vec<&str> = reasons.collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    for reason in reasons {
        assert!(reason.contains("from the feature cache"), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unfreezing_can_end_with_the_whole_network() {
    let (host, _) = photos().start().await;
    let (reference, tuned) = ran(&host, "none", "2=r1,3=none", |_| ()).await;
    reference.outcome.as_ref().unwrap();
    let tuned = tuned.unwrap();
    for weight in ["w1", "w2"] {
        assert_ne!(tuned.weight(weight).unwrap(), network().weight(weight).unwrap());
    }
    let grouped = |job: &mut Job| job.spec.recipe.lr = Some("head=0.003,w1=0,rest=0.003".parse().unwrap());
    let (ran, tuned) = ran(&host, "auto", "2=r1,3=none", grouped).await;
    ran.outcome.unwrap();
    assert_eq!(
        tuned.unwrap().weight("w1").unwrap(),
        network().weight("w1").unwrap()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_after_a_later_freeze_cut_is_refused_before_anything_is_sent() {
    let (host, storage) = photos().start().await;
    let (ran, _) = ran(&host, "r2", "3=r1", |_| ()).await;
    let error = ran.outcome.unwrap_err().to_string();
    assert!(error.contains("'r2'") && error.contains("'r1'"), "{error}");
    assert!(storage.uploaded().is_empty());
}
