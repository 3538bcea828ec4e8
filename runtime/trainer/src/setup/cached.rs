//! Reuse of features that are already cached.

use super::context::Setup;
use super::prepared::Prepared;
use crate::features::{Coverage, OpenMode, cacheable_features, coverage, open_cache};
use crate::{Event, Policy, TrainerError, blocking};
use frostline_compute::session_options;
use frostline_engine::library_version;
use frostline_features::{Exactly, Form, Provenance, Rounding, Row};
use frostline_plan::{ChosenSplit, Reuse};
use frostline_profile::cut_tensors;
use frostline_rows::RowCache;
use frostline_wire::{Encoding, Split, TensorInfo};
use sha2::{Digest, Sha256};
use std::sync::Arc;

impl<'a> Setup<'a> {
    /// Skips uploads and the plan if all but one batch of the features are cached and this machine can
    /// compute the rest: measuring the splits would cost more. Otherwise returns the setup, with the expected
    /// reuse of cached features filled in for the plan.
    pub(super) async fn reuse(mut self) -> Result<Result<Prepared, Self>, TrainerError> {
        let there = self.expect_reuse().await?;
        if let Some((features, coverage)) = there
            && !self.measure
            && self.needs_no_host()
            && coverage.repeats
            && coverage.cacheable.saturating_sub(coverage.cached) <= self.batch() as u64
        {
            return Ok(Ok(self.with_cached_features(features, coverage)?));
        }
        Ok(Err(self))
    }

    /// Fills in the expected reuse of cached features for the plan, and returns the cache that has the most of them.
    pub(super) async fn expect_reuse(&mut self) -> Result<Option<(Arc<RowCache>, Coverage)>, TrainerError> {
        let there = self.cached_features().await?;
        self.planned_reuse = self.plan_reuse(there.as_ref().map(|(_, coverage)| *coverage))?;
        Ok(there)
    }

    /// Opens the cache with the most features of this job, or returns `None` if no cache has any.
    async fn cached_features(&self) -> Result<Option<(Arc<RowCache>, Coverage)>, TrainerError> {
        let mut best: Option<(Arc<RowCache>, Coverage)> = None;
        for (encoding, split) in &self.cached_transports() {
            let Some(features) = self.features(*encoding, split, OpenMode::IfPresent).await? else {
                continue;
            };
            let coverage = coverage(&features, &self.data.feed).await?;
            if best
                .as_ref()
                .is_none_or(|(_, best)| best.cached < coverage.cached)
            {
                best = Some((features, coverage));
            }
            if coverage.cached == coverage.cacheable {
                break;
            }
        }
        Ok(best)
    }

    /// Encodings and splits of usable cached features, a single pair for each rounding in transit. With
    /// `--reproducible` only a fixed split qualifies.
    fn cached_transports(&self) -> Vec<(Encoding, Split)> {
        let job = self.job;
        let splits = match &job.spec.split {
            Policy::Fixed(split) => vec![split.clone()],
            _ if job.spec.reproducible => Vec::new(),
            _ => vec![Split::Cut(job.freeze.clone()), Split::None],
        };
        let encodings = match job.spec.encoding.fixed() {
            None => vec![Encoding::F32, Encoding::F16],
            Some(encoding) => vec![encoding],
        };
        let mut ways: Vec<(Encoding, Split)> = encodings
            .iter()
            .flat_map(|encoding| splits.iter().map(move |split| (*encoding, split.clone())))
            .collect();
        ways.dedup_by_key(|(encoding, split)| Rounding::for_split(*encoding, split, &job.freeze));
        ways
    }

    /// Cached features that later epochs can reuse, for the plan. Returns `None` without a cache, or if every
    /// epoch augments the training samples differently.
    fn plan_reuse(&self, there: Option<Coverage>) -> Result<Option<Reuse>, TrainerError> {
        let (feed, Some(cache)) = (&self.data.feed, &self.job.features) else {
            return Ok(None);
        };
        if !feed.views.repeat() {
            return Ok(None);
        }
        let row = Row {
            shape: self.network.network.frozen_row(&self.job.freeze)?.dims().to_vec(),
            form: Form::F32,
            tensors: self.frozen_tensors(),
        };
        let bytes = row.disk_bytes(cacheable_features(feed)).unwrap_or(u64::MAX);
        let there = there.map_or(0.0, |coverage| {
            coverage.cached as f64 / coverage.cacheable.max(1) as f64
        });
        Ok(Some(Reuse {
            rows_kept_already: there,
            fits: (cache.limit() as f64 / bytes.max(1) as f64).min(1.0),
            views: feed.views.cacheable(self.job.spec.recipe.epochs).len().max(1) as u32,
            bytes,
        }))
    }

    fn with_cached_features(
        mut self,
        features: Arc<RowCache>,
        coverage: Coverage,
    ) -> Result<Prepared, TrainerError> {
        let offer = self.stock_offer(None)?;
        let Coverage {
            cached, cacheable, ..
        } = coverage;
        let chosen: ChosenSplit = offer.without_hosts(&format!(
            "{cached} of {cacheable} features are cached, no plan needed"
        ))?;
        self.report_coverage(coverage);
        self.data.feed.features = Some(features);
        let mut prepared = Prepared::new(self, offer, false, (chosen, None));
        prepared.all_cached = cached == cacheable;
        Ok(prepared)
    }

    /// Opens the cache of features that travel in `encoding` from `split`. Returns `None` if the job has no
    /// feature cache.
    async fn features(
        &self,
        encoding: Encoding,
        split: &Split,
        opening: OpenMode,
    ) -> Result<Option<Arc<RowCache>>, TrainerError> {
        let job = self.job;
        let network = &self.network;
        if job.features.is_none() {
            return Ok(None);
        }
        let exactly = job.spec.reproducible.then(|| Exactly {
            split: split.clone(),
            batch: self.batch(),
            threads: session_options(job.device, job.spec.threads).threads,
        });
        let made = Provenance {
            model: job.model_name(),
            freeze: job.freeze.clone(),
            data: job.spec.data.clone(),
            layers: self.layers_hash().await?,
            guest: hex::encode(Sha256::digest(&job.guest.bytes)),
            parameters: network.parameters.clone(),
            rounding: Rounding::for_split(encoding, split, &job.freeze),
            precision: job.terms().precision,
            fixed_batch: job.terms().fixed_batch,
            library: library_version().unwrap_or_default(),
            device: job.device.to_string(),
            exactly,
            shape: network.network.frozen_row(&job.freeze)?.dims().to_vec(),
            tensors: self.frozen_tensors(),
        };
        open_cache(job, made, &self.data.feed, self.events, opening).await
    }

    /// Tensors of the network that a row at the freeze cut concatenates. Empty for a single tensor.
    fn frozen_tensors(&self) -> Vec<TensorInfo> {
        let cut = self.network.network.cut(&self.job.freeze);
        cut.map(cut_tensors).unwrap_or_default()
    }

    /// Hash of the frozen layers. Returns an empty string if no layers are frozen.
    async fn layers_hash(&self) -> Result<String, TrainerError> {
        if self.network.nothing_is_frozen(&self.job.freeze) {
            return Ok(String::new());
        }
        let hash = self.layers_hash.get_or_try_init(|| {
            let frozen = self.network.frozen.clone();
            let freeze = self.job.freeze.clone();
            blocking(move || Ok(frozen.layers_sha256(&freeze)?))
        });
        hash.await.cloned()
    }

    /// Opens the cache for features that travel in `encoding` from `split`, and creates it if
    /// necessary. Skipped in a measuring setup.
    pub(super) async fn open_features(
        &mut self,
        encoding: Encoding,
        split: &Split,
    ) -> Result<(), TrainerError> {
        if self.measure {
            return Ok(());
        }
        let features = self.features(encoding, split, OpenMode::Create).await?;
        if let Some(features) = &features {
            let coverage = coverage(features, &self.data.feed).await?;
            self.report_coverage(coverage);
        }
        self.data.feed.features = features;
        Ok(())
    }

    fn report_coverage(&self, coverage: Coverage) {
        let Some(cache) = &self.job.features else { return };
        (self.events)(Event::Features {
            kept: coverage.cached,
            rows: coverage.cacheable,
            bytes: coverage.bytes,
            limit: cache.limit(),
            folder: cache.path().to_owned(),
        });
    }
}
