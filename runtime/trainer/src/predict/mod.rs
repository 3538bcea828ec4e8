//! Predicts local images, and local files that a guest reads.

mod answer;
mod guest;
mod images;
mod job;
mod walk;

pub use answer::{Answer, ClassProbability, LabelAnswer, Prediction, TargetValue};
pub use guest::{GuestFiles, LocalFiles};
pub use job::PredictionJob;

use crate::evaluation::{Scorer, open_guest};
use crate::{Events, SettingError, TrainerError, blocking, model_metadata};
use frostline_compute::{ComputeError, Dedicated, Forward, session_options};
use frostline_graph::{Model, Network};
use frostline_images::DecodeLimits;
use frostline_job::{PixelSource, Task};
use frostline_tensor::PixelSpec;
use futures::StreamExt;
use guest::GuestBatches;
use images::{Images, LoadedBatch};
use std::path::PathBuf;
use std::sync::Arc;

/// Runs a model on images in batches, and loads the next images in parallel. Holds up to three batches in
/// memory. Dropping it stops all work.
pub struct Predictor {
    /// The preprocessing in use, and the source of these settings. `None` if a guest makes the rows.
    pub pixels: Option<(PixelSpec, PixelSource)>,
    /// Warning about the preprocessing, if it does not fit the network.
    pub warning: Option<String>,
    files: Files,
    network: Dedicated<Scorer>,
    task: Task,
    names: Arc<[String]>,
    top: usize,
}

/// Source of the batches.
enum Files {
    Images(Images),
    Guest(GuestBatches),
}

impl Files {
    async fn next(&mut self) -> Result<Option<LoadedBatch>, TrainerError> {
        match self {
            Self::Images(images) => images.next().await,
            Self::Guest(batches) => batches.next().await.transpose(),
        }
    }
}

impl Predictor {
    /// Opens the model and starts loading images.
    ///
    /// # Errors
    /// Returns a [`TrainerError`] if a setting is invalid, if the model does not accept images, or if its
    /// input requires a guest.
    pub async fn open(job: PredictionJob) -> Result<Self, TrainerError> {
        SettingError::at_least_one("the batch size", job.batch)?;
        SettingError::at_least_one("the number of classes", job.top)?;
        let model = job.model.clone();
        let network = blocking(move || Ok(model.network()?)).await?;
        let (pixels, source) = model_metadata::pixels(&job.model, &network, &job.pixels, false)?;
        let warning = model_metadata::normalized_twice(&job.model, &pixels, source);
        let (task, names) = outputs(&job.model, &network)?;
        let options = session_options(job.device, job.threads);
        let decoders = options.threads;
        Ok(Self {
            pixels: Some((pixels, source)),
            warning,
            network: Dedicated::open(move |interrupt| {
                let forward = Forward::open(&job.model, job.batch, &options, interrupt, "predicting")?;
                Ok::<_, ComputeError>(Scorer::new(forward, &job.model, task))
            })
            .await?,
            files: Files::Images(Images::start(
                job.paths,
                job.batch,
                pixels,
                decoders,
                DecodeLimits::new(job.image_pixels),
            )?),
            task,
            names: names.into(),
            top: job.top,
        })
    }

    /// Opens a model whose input a guest computes from files. The guest runs up to the split of the training, the other
    /// layers run in this process.
    ///
    /// # Errors
    /// Returns a [`TrainerError`] if a setting is invalid, or if the host refuses the guest or the model.
    pub async fn open_with_guest(
        job: PredictionJob,
        guest: GuestFiles,
        events: &Events,
    ) -> Result<Self, TrainerError> {
        SettingError::at_least_one("the batch size", job.batch)?;
        SettingError::at_least_one("the number of classes", job.top)?;
        let opened = open_guest(guest.evaluation(&job), &guest.host.clone().into(), events).await?;
        let (task, names) = outputs(&job.model, &opened.network)?;
        Ok(Self {
            pixels: None,
            warning: None,
            network: opened.scorer,
            files: Files::Guest(guest.start(&job, opened.source, events).await?),
            task,
            names: names.into(),
            top: job.top,
        })
    }

    /// Returns the predictions for the next images in order, or `None` at the end.
    ///
    /// # Errors
    /// Returns a [`TrainerError`] if the engine fails. Image errors are reported in [`Prediction::answer`]
    /// instead.
    pub async fn next(&mut self) -> Result<Option<Vec<Prediction>>, TrainerError> {
        let Some(LoadedBatch { outcomes, rows }) = self.files.next().await? else {
            return Ok(None);
        };
        let answers = match rows {
            None => Vec::new(),
            Some(rows) => {
                let task = self.task;
                let names = Arc::clone(&self.names);
                let top = self.top;
                self.network
                    .run(move |network| {
                        let scores = network.run(&rows)?;
                        let rows = scores
                            .as_f32()
                            .unwrap_or_default()
                            .chunks_exact(names.len().max(1));
                        let answers = rows.map(|row| Answer::from_row(row, task, &names, top));
                        Ok::<Vec<_>, TrainerError>(answers.collect())
                    })
                    .await?
            }
        };
        let mut answers: std::vec::IntoIter<_> = answers.into_iter();
        let prediction = |(path, outcome): (PathBuf, Result<(), String>)| Prediction {
            path,
            answer: outcome.and_then(|()| {
                answers
                    .next()
                    .unwrap_or_else(|| Err("the model returned no output".to_owned()))
            }),
        };
        Ok(Some(outcomes.into_iter().map(prediction).collect()))
    }
}

/// Returns task and output names from the model's metadata. Without names, outputs are numbered classes.
fn outputs(model: &Model, network: &Network) -> Result<(Task, Vec<String>), TrainerError> {
    let outputs = network.output.shape.elements()?;
    let (task, names) = model_metadata::outputs(model).unwrap_or_else(|| {
        (
            Task::Classes,
            (0..outputs).map(|number| format!("output {number}")).collect(),
        )
    });
    if names.len() != outputs {
        return Err(TrainerError::Names {
            names: names.len(),
            outputs,
        });
    }
    Ok((task, names))
}
