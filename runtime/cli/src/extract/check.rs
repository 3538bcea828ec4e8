//! Compares the activations of the first images with ONNX Runtime without optimizations.

use super::input::ExtractionInput;
use super::remote::RemoteActivations;
use crate::reporter::Reporter;
use anyhow::Result;
use frostline_client::{Fetched, Inquiry, InquiryError, Source};
use frostline_graph::Model;
use frostline_tensor::Tensor;
use frostline_trainer::{COMPARED_IMAGES, CutActivations};
use frostline_wire::{Encoding, ObjectInfo, Split};
use std::sync::Arc;

/// Number of images to try if images cannot be decoded.
const TRIED_IMAGES: usize = 8;

/// Comparison for an extraction.
pub(super) struct ActivationCheck<'a> {
    pub(super) asked: &'a ExtractionInput,
    pub(super) inquiry: &'a Inquiry,
    pub(super) remote: &'a RemoteActivations,
    pub(super) reporter: &'a Reporter,
}

impl ActivationCheck<'_> {
    /// Compares the activations of the first images that can be decoded. This is not required if all activations
    /// are cached, because they were compared before. A custom guest can compute its activations from other
    /// pixels than those it returns, so the layers run on this machine.
    pub(super) async fn run(&self, samples: &[ObjectInfo]) -> Result<()> {
        let pixels = Inquiry {
            encoding: Encoding::U8,
            ..self.inquiry.clone()
        };
        let pixels = pixels.source(&self.remote.hosts, Split::Input).await;
        let pixels = match pixels {
            Err(InquiryError::Wrong(reason)) if !self.asked.stock_guest => {
                return self.without_pixels(&reason);
            }
            pixels => pixels?,
        };
        let tried = samples.get(..TRIED_IMAGES).unwrap_or(samples);
        for images in tried.chunks(COMPARED_IMAGES) {
            let input = match self.fetch(&pixels, images.into()).await {
                Err(error) if !self.asked.stock_guest => return self.without_pixels(&error.to_string()),
                input => input?,
            };
            let decoded = input
                .indices
                .iter()
                .filter_map(|index| images.get(*index).cloned());
            let decoded: Arc<[ObjectInfo]> = decoded.collect();
            if !decoded.is_empty() {
                return self.compare(&decoded, input.rows).await;
            }
        }
        self.not_compared(&format!(
            "none of the first {} images can be decoded",
            tried.len()
        ))
    }

    async fn compare(&self, images: &Arc<[ObjectInfo]>, input: Tensor) -> Result<()> {
        let RemoteActivations { source, .. } = self.remote;
        let activations = match self.asked.stock_guest {
            true => {
                let source = Source {
                    encoding: Encoding::F32,
                    ..Source::clone(source)
                };
                let fetched = self.fetch(&source, Arc::clone(images)).await?;
                // A batch reports images that have become unusable.
                if !fetched.bad.is_empty() {
                    return Ok(());
                }
                Some(fetched.rows)
            }
            false => None,
        };
        let compared = CutActivations {
            layers: Model::from_bytes(self.asked.layers.clone())?,
            cut: self.asked.cut.clone(),
            keys: images.iter().map(|image| image.sample.key.clone()).collect(),
            input,
            activations,
            split_may_change: false,
            precision: source.terms.precision,
            threads: 0,
        };
        if let Some(message) = compared.check().await? {
            self.reporter.warning(message);
        }
        Ok(())
    }

    async fn fetch(&self, source: &Source, images: Arc<[ObjectInfo]>) -> Result<Fetched> {
        let RemoteActivations { fetcher, hosts, .. } = self.remote;
        Ok(fetcher.fetch(hosts, Arc::new(source.clone()), images).await?)
    }

    fn without_pixels(&self, reason: &str) -> Result<()> {
        self.not_compared(&format!("the guest returns no pixels: {reason}"))
    }

    fn not_compared(&self, reason: &str) -> Result<()> {
        let message = format!(
            "the activations are not compared with ONNX Runtime without optimizations, because {reason}"
        );
        self.reporter.warning(message);
        Ok(())
    }
}
