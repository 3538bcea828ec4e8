//! Compares the frozen layers of a new job with ONNX Runtime without optimizations.

use super::TrainingRun;
use crate::event::warn;
use crate::pipeline::Part;
use crate::setup::DividedNetwork;
use crate::verify::{COMPARED_IMAGES, CutActivations};
use crate::{Job, TrainerError};
use frostline_client::{ClientError, Source};
use frostline_tensor::Tensor;
use frostline_wire::{Encoding, ObjectInfo, Split};
use std::sync::Arc;

/// Images of the first batch, with their rows at the split.
struct FirstImages {
    samples: Arc<[ObjectInfo]>,
    source: Arc<Source>,
    /// Rows of the images at the split.
    rows: Tensor,
}

impl TrainingRun {
    /// Compares the activations at the freeze cut of the first images with those that ONNX Runtime computes
    /// without optimizations. Cached features are not compared again. If the guest defines the tensors at the split, or
    /// activations are computed in int8, the f32 layers run on this machine instead.
    pub(crate) async fn check_frozen_layers(
        &mut self,
        job: &Job,
        network: &DividedNetwork,
    ) -> Result<(), TrainerError> {
        if network.nothing_is_frozen(&self.phase.freeze) {
            return Ok(());
        }
        let Some(images) = self.first_images().await? else {
            return Ok(());
        };
        let Some(input) = self.input_of(&images).await? else {
            return Ok(());
        };
        let is_of_network = self.phase.offer.is_of_network(&images.source.split);
        let activations = match is_of_network && network.int8.is_none() {
            true => match self.activations_of(&images).await? {
                None => return Ok(()),
                activations => activations,
            },
            false => None,
        };
        let keys = images.samples.iter().map(|object| object.sample.key.clone());
        let compared = CutActivations {
            layers: network.headed.slice(None, Some(&self.phase.freeze))?,
            cut: self.phase.freeze.clone(),
            keys: keys.collect(),
            input,
            activations,
            split_may_change: self.phase.watch.is_some(),
            precision: job.spec.terms.precision,
            threads: job.spec.threads,
        };
        if let Some(message) = compared.check().await? {
            warn(&self.events, message);
        }
        Ok(())
    }

    /// Returns the first images of the first batch that were fetched. Returns `None` if all of its features are
    /// cached, or all of its samples are bad.
    async fn first_images(&mut self) -> Result<Option<FirstImages>, TrainerError> {
        let part = match self.phase.plan.initial_train_pass {
            true => Part::Train,
            false => Part::Validation,
        };
        let samples = Arc::clone(self.phase.plan.samples(part));
        let batch = self.phase.feed.peek().await?;
        let Some((rows, fetched)) = batch.rows.as_ref().and_then(|rows| Some((rows, rows.fetched()?))) else {
            return Ok(None);
        };
        let positions = rows.fetched_positions().take(COMPARED_IMAGES);
        let indices = positions.filter_map(|position| batch.indices.get(position));
        let samples: Arc<[ObjectInfo]> = indices.filter_map(|index| samples.get(*index)).collect();
        Ok(Some(FirstImages {
            rows: fetched.slice_rows(0, samples.len())?,
            samples,
            source: Arc::clone(&batch.source),
        }))
    }

    /// Returns the network input for `images`, or `None` if it is unavailable, with a warning if the reason is
    /// the guest.
    async fn input_of(&self, images: &FirstImages) -> Result<Option<Tensor>, TrainerError> {
        if let Split::None | Split::Input = images.source.split {
            return Ok(Some(images.rows.clone()));
        }
        if self.phase.offer.pixels().is_none() {
            self.warn_no_pixels("it makes the network's input");
            return Ok(None);
        }
        let source = Source {
            view: images.source.view,
            ..self
                .phase
                .offer
                .source_at(&Split::Input, Encoding::U8, COMPARED_IMAGES)?
        };
        match self.fetch(images, source).await {
            Err(error @ ClientError::Refused { .. }) => {
                self.warn_no_pixels(&error.to_string());
                Ok(None)
            }
            fetched => Ok(fetched?),
        }
    }

    fn warn_no_pixels(&self, reason: &str) {
        let message = format!(
            "the frozen layers are not compared with ONNX Runtime without optimizations, because the guest returns \
             no pixels: {reason}"
        );
        warn(&self.events, message);
    }

    /// Returns the activations at the freeze cut for `images`, transferred in f32.
    async fn activations_of(&self, images: &FirstImages) -> Result<Option<Tensor>, TrainerError> {
        let source = &images.source;
        let is_lossy = source.encoding.values.is_lossy();
        let rows = match source.split {
            Split::Cut(_) if is_lossy => {
                let source = Source {
                    encoding: Encoding::F32,
                    ..Source::clone(source)
                };
                self.fetch(images, source).await?
            }
            _ => Some(images.rows.clone()),
        };
        let Some(rows) = rows else { return Ok(None) };
        let split = source.split.clone();
        self.suffix
            .run(move |suffix| Ok(Some(suffix.activations(&split, rows)?)))
            .await
    }

    /// Fetches the rows of `images` from another source. Returns `None` if an image has become unusable, which
    /// a later batch reports.
    async fn fetch(&self, images: &FirstImages, source: Source) -> Result<Option<Tensor>, ClientError> {
        let samples = Arc::clone(&images.samples);
        let fetched = self.fetcher.fetch(&self.hosts, source.into(), samples).await?;
        Ok(fetched.bad.is_empty().then_some(fetched.rows))
    }
}
