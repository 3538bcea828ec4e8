//! What a model says of images on this machine, without a host.

mod answer;
mod images;
mod walk;

pub use answer::{Answer, ClassProbability, LabelAnswer, Prediction, TargetValue};

use crate::compute::{Dedicated, Forward, blocking, session_options};
use crate::evaluation::Scorer;
use crate::{SettingError, TrainerError, notes};
use frostline_client::Task;
use frostline_engine::{Device, Interrupt};
use frostline_graph::{Model, Network};
use frostline_job::{PixelFlags, PixelSource};
use frostline_tensor::PixelSpec;
use images::{Images, LoadedImages};
use std::path::PathBuf;
use std::sync::Arc;

/// The settings of `frostline predict`.
#[derive(Debug, Clone)]
pub struct PredictionJob {
    /// The network, usually a tuned one that carries its classes and preprocessing; outputs without names are called `output 17`, from 0.
    pub model: Model,
    /// Images, and folders with images.
    pub paths: Vec<PathBuf>,
    /// The most classes to tell of an image.
    pub top: usize,
    /// Images per forward pass.
    pub batch: usize,
    /// Preprocessing; what it leaves open is as in the model's own note, else in ImageNet's recipe.
    pub pixels: PixelFlags,
    /// Where the network is run.
    pub device: Device,
    /// Threads that decode, and threads of the engine; 0 takes all cores.
    pub threads: usize,
}

/// A model that is run on images, batch by batch: while one is looked at, the next ones are read and decoded. Holds three batches at most,
/// however many images there are. Dropping it ends everything.
pub struct Predictor {
    pixels: (PixelSpec, PixelSource),
    images: Images,
    network: Dedicated<Scorer>,
    task: Task,
    names: Arc<[String]>,
    top: usize,
}

impl Predictor {
    /// Opens the model, and starts reading.
    ///
    /// # Errors
    /// [`TrainerError`]: for a model that takes no images, or images that only a guest can make.
    pub async fn open(job: PredictionJob) -> Result<Self, TrainerError> {
        SettingError::at_least_one("the batch size", job.batch)?;
        SettingError::at_least_one("the number of classes", job.top)?;
        let PredictionJob {
            model,
            paths,
            top,
            batch,
            pixels,
            device,
            threads,
        } = job;
        let (model, network) = blocking(move || {
            let network = model.network()?;
            Ok((model, network))
        })
        .await?;
        let (pixels, source) = notes::pixels(&model, &network, &pixels, false).map_err(without_guests)?;
        let (task, names) = outputs(&model, &network)?;
        let options = session_options(device, threads);
        let decoders = options.threads;
        let open = move |interrupt: &Interrupt| {
            let forward = Forward::open(&model, batch, &options, interrupt, "predicting")?;
            Ok(Scorer::new(forward, &model, task))
        };
        Ok(Self {
            pixels: (pixels, source),
            network: Dedicated::open(open).await?,
            images: Images::start(paths, batch, pixels, decoders)?,
            task,
            names: names.into(),
            top,
        })
    }

    /// How images become its input, and what says so.
    pub fn pixels(&self) -> (PixelSpec, PixelSource) {
        self.pixels
    }

    /// What the model says of the next images, in their order; nothing after the last.
    ///
    /// # Errors
    /// [`TrainerError`] where the engine fails. A bad image has its error in its place.
    pub async fn next(&mut self) -> Result<Option<Vec<Prediction>>, TrainerError> {
        let Some(LoadedImages { outcomes, rows }) = self.images.next().await? else {
            return Ok(None);
        };
        let answers = match rows {
            None => Vec::new(),
            Some(rows) => {
                let (task, names, top) = (self.task, Arc::clone(&self.names), self.top);
                let answer = move |network: &mut Scorer| {
                    let scores = network.run(&rows)?;
                    let rows = scores
                        .as_f32()
                        .unwrap_or_default()
                        .chunks_exact(names.len().max(1));
                    Ok(rows.map(|row| Answer::from_row(row, task, &names, top)).collect())
                };
                self.network.run(answer).await?
            }
        };
        let mut answers: std::vec::IntoIter<_> = answers.into_iter();
        let none = || Err("the model returned no output".to_owned());
        let prediction = |(path, outcome): (PathBuf, Result<(), String>)| Prediction {
            path,
            answer: outcome.and_then(|()| answers.next().unwrap_or_else(none)),
        };
        Ok(Some(outcomes.into_iter().map(prediction).collect()))
    }
}

/// What the model says of its outputs, else classes that are called by their numbers.
fn outputs(model: &Model, network: &Network) -> Result<(Task, Vec<String>), TrainerError> {
    let outputs = network.output.shape.elements()?;
    let numbered = || (0..outputs).map(|number| format!("output {number}")).collect();
    let (task, names) = notes::outputs(model).unwrap_or_else(|| (Task::Classes, numbered()));
    if names.len() != outputs {
        return Err(TrainerError::Names {
            names: names.len(),
            outputs,
        });
    }
    Ok((task, names))
}

/// Nothing is uploaded here, so no guest can make the input.
fn without_guests(error: TrainerError) -> TrainerError {
    match error {
        TrainerError::GuestNeeded { guest, .. } => TrainerError::Pixels {
            reason: format!(
                "the model was trained on input that the guest '{guest}' makes in its own way, and only a host runs guests; `frostline eval \
                 --guest FILE --predictions FILE` tells what the model says of labeled images"
            ),
        },
        other => other,
    }
}
