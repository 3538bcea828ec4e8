use super::computing_host::Storage;
use super::whole_job::differ;
use crate::{Event, Events, Job, TrainedStep, train};
use frostline_client::HostClient;
use frostline_graph::Model;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Path of the shared data. Only tests in a module `needs_shared` may use it.
pub(super) fn data() -> PathBuf {
    frostline_needs::shared_file("data")
}

/// Returns the first photos of each class.
pub(super) fn photos(data: &Path, train: usize, validation: usize) -> Storage {
    let mut storage = Storage::default();
    for (part, most) in [("train", train), ("validation", validation)] {
        for class in std::fs::read_dir(data.join("clothing").join(part)).unwrap() {
            let class = class.unwrap();
            let mut files: Vec<PathBuf> = std::fs::read_dir(class.path())
                .unwrap()
                .map(|file| file.unwrap().path())
                .collect();
            files.sort();
            for file in files.into_iter().take(most) {
                let class = class.file_name();
                let name = file.file_name().unwrap().to_owned();
                let key = format!("{part}/{}/{}", class.to_str().unwrap(), name.to_str().unwrap());
                storage.objects.insert(key, std::fs::read(file).unwrap().into());
            }
        }
    }
    storage
}

async fn losses(url: &str, data: &Path, model: &str, freeze: &str, split: &str) -> Vec<f32> {
    let out = TempDir::new().unwrap();
    let mut job = Job::new(
        Model::read(data.join(model)).unwrap(),
        model.to_owned(),
        freeze.to_owned(),
        "clothing".to_owned(),
        out.path().join("tuned.onnx"),
    );
    job.spec.split = split.parse().unwrap();
    (
        job.spec.recipe.batch,
        job.spec.recipe.epochs,
        job.spec.request_samples,
    ) = (16, 2, 8);
    let losses: Arc<Mutex<Vec<f32>>> = Arc::default();
    let log = Arc::clone(&losses);
    let told: Events = Arc::new(move |event| {
        if let Event::Step(TrainedStep { loss, .. }) = event {
            log.lock().unwrap().push(loss);
        }
    });
    let client = HostClient::new(url, None).unwrap();
    train(job, client, told, CancellationToken::new()).await.unwrap();
    losses.lock().unwrap().clone()
}

async fn same_losses(model: &str, freeze: &str, splits: &[&str]) {
    let data = data();
    let (host, _) = photos(&data, 3, 1).start().await;
    let expected = losses(&host.url, &data, model, freeze, "none").await;
    assert_eq!(expected.len(), 4);
    for split in splits {
        let found = losses(&host.url, &data, model, freeze, split).await;
        let worst = differ(&found, &expected);
        assert!(worst <= 1e-4, "{model} at {split}: {worst}");
    }
}

mod needs_shared {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn squeezenets_losses_do_not_depend_on_the_split() {
        same_losses(
            "squeezenet1_1_pooled.onnx",
            "features",
            &["input", "21", "40", "features"],
        )
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn squeezenets_convolution_head_does_not_depend_on_the_split() {
        same_losses("squeezenet1_1.onnx", "52", &["34", "52"]).await;
    }
}
