//! Rows of local files, computed by a guest on a host inside this process.

use super::images::LoadedBatch;
use super::job::PredictionJob;
use crate::event::notices;
use crate::training::run::fetcher;
use crate::{EvaluationJob, Events, Guest, OnBadSample, TrainerError};
use frostline_client::{Fetcher, HostClient, Hosts, Source};
use frostline_job::Unlisted;
use frostline_tensor::is_hidden_name;
use frostline_wire::{Layout, ObjectInfo};
use futures::stream::{self, BoxStream, StreamExt};
use std::path::PathBuf;
use std::sync::Arc;

/// Number of batches that are fetched at the same time.
const AHEAD: usize = 2;

/// A guest that reads local files, and the host that runs it.
pub struct GuestFiles {
    /// The guest with which the model was trained.
    pub guest: Guest,
    /// A host in this process with access to all folders.
    pub host: HostClient,
    /// The files to read.
    pub files: Vec<LocalFiles>,
}

/// Files in a folder.
pub struct LocalFiles {
    /// The folder.
    pub folder: PathBuf,
    /// The data root of the folder as seen by the host.
    pub root: String,
    /// Name of the only file to read. `None` reads all files except hidden ones, in the order of keys.
    pub name: Option<String>,
}

/// Batches of rows in the order of the files.
pub(super) type GuestBatches = BoxStream<'static, Result<LoadedBatch, TrainerError>>;

impl GuestFiles {
    /// Returns the evaluation whose layers and guest a prediction uses.
    pub(super) fn evaluation(&self, job: &PredictionJob) -> EvaluationJob {
        EvaluationJob {
            model: job.model.clone(),
            model_name: "predicting".to_owned(),
            guest: Some(self.guest.clone()),
            root: String::new(),
            part: None,
            layout: Layout::Objects,
            labels: None,
            unlisted: Unlisted::default(),
            batch: job.batch,
            on_bad_sample: OnBadSample::Skip,
            predictions: None,
            pixels: job.pixels.clone(),
            device: job.device,
            threads: job.threads,
            image_pixels: job.image_pixels,
        }
    }

    /// Lists the files, and starts to fetch the rows of `source` in batches of `job`.
    ///
    /// # Errors
    /// Returns [`TrainerError::Client`] if the host cannot list a folder.
    pub(super) async fn start(
        self,
        job: &PredictionJob,
        source: Source,
        events: &Events,
    ) -> Result<GuestBatches, TrainerError> {
        let mut batches = Vec::new();
        for LocalFiles { folder, root, name } in self.files {
            let mut objects = self.host.objects(&root, Layout::Objects).await?;
            objects.retain(|object| match &name {
                Some(name) => object.sample.key == *name,
                None => !is_hidden_name(&object.sample.key),
            });
            let source = Arc::new(Source {
                root,
                ..source.clone()
            });
            batches.extend(objects.chunks(job.batch).map(|objects| FileBatch {
                source: Arc::clone(&source),
                folder: folder.clone(),
                objects: objects.into(),
            }));
        }
        let hosts = Hosts::from(self.host).for_job(notices(events));
        let fetcher = fetcher(AHEAD, job.threads, job.image_pixels)?;
        let fetched = stream::iter(batches).map(move |batch| batch.fetch(fetcher.clone(), hosts.clone()));
        Ok(fetched.buffered(AHEAD).boxed())
    }
}

/// Files of a folder whose rows are fetched together.
struct FileBatch {
    source: Arc<Source>,
    folder: PathBuf,
    objects: Arc<[ObjectInfo]>,
}

impl FileBatch {
    async fn fetch(self, fetcher: Fetcher, hosts: Hosts) -> Result<LoadedBatch, TrainerError> {
        let fetched = fetcher
            .fetch(&hosts, self.source, Arc::clone(&self.objects))
            .await?;
        let paths = self
            .objects
            .iter()
            .map(|object| self.folder.join(&object.sample.key));
        let mut outcomes: Vec<_> = paths.map(|path| (path, Ok(()))).collect();
        for (index, error) in fetched.bad {
            if let Some((_, outcome)) = outcomes.get_mut(index) {
                *outcome = Err(error.to_string());
            }
        }
        Ok(LoadedBatch {
            outcomes,
            rows: (!fetched.indices.is_empty()).then_some(fetched.rows),
        })
    }
}
