//! Rows that are kept already, and what they spare a job.

use super::context::Setup;
use super::prepared::Prepared;
use crate::compute::{blocking, session_options};
use crate::features::{Coverage, Features, OpenMode, rows_of};
use crate::plan::{Chosen, Reuse};
use crate::{Event, Policy, TrainerError};
use frostline_engine::library_version;
use frostline_features::{Exactly, Form, Provenance, Rounding, Row};
use frostline_wire::{Encoding, Split};
use sha2::{Digest, Sha256};
use std::sync::Arc;

impl<'a> Setup<'a> {
    /// The job without hosts' layers and without a plan, where all but a batch of its rows are kept and this machine can make the others itself: that
    /// takes less than finding out who would do it best. Else gives itself back, and knows what will be kept.
    pub(super) async fn reuse(mut self) -> Result<Result<Prepared, Self>, TrainerError> {
        let there = self.cached_features().await?;
        if let Some((features, coverage)) = &there
            && !self.measure
            && self.needs_no_host()
            && coverage.repeats
            && coverage.rows.saturating_sub(coverage.kept) <= self.batch() as u64
        {
            return Ok(Ok(self.with_cached_features(Arc::clone(features), *coverage)?));
        }
        self.keeps = self.to_be_kept(there.map(|(_, coverage)| coverage))?;
        Ok(Err(self))
    }

    /// The store that has most of the job's rows, if there is any for it.
    async fn cached_features(&self) -> Result<Option<(Arc<Features>, Coverage)>, TrainerError> {
        let mut best: Option<(Arc<Features>, Coverage)> = None;
        for (encoding, split) in &self.ways() {
            let Some(features) = self.features(*encoding, split, OpenMode::IfPresent).await? else {
                continue;
            };
            let coverage = features.coverage(&self.data.feed).await?;
            if best.as_ref().is_none_or(|(_, best)| best.kept < coverage.kept) {
                best = Some((features, coverage));
            }
            if coverage.kept == coverage.rows {
                break;
            }
        }
        Ok(best)
    }

    /// In which ways rows may have traveled that the job can use; where bits count, only from the very split.
    fn ways(&self) -> Vec<(Encoding, Split)> {
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
        let from = |encoding: &Encoding| {
            splits
                .iter()
                .map(|split| (*encoding, split.clone()))
                .collect::<Vec<_>>()
        };
        let mut ways: Vec<(Encoding, Split)> = encodings.iter().flat_map(from).collect();
        ways.dedup_by_key(|(encoding, split)| Rounding::for_split(*encoding, split, &job.freeze));
        ways
    }

    /// What later epochs will find, for the plan; nothing where no training sample looks the same again.
    fn to_be_kept(&self, there: Option<Coverage>) -> Result<Option<Reuse>, TrainerError> {
        let (feed, Some(cache)) = (&self.data.feed, &self.job.features) else {
            return Ok(None);
        };
        if !feed.views.repeat() {
            return Ok(None);
        }
        let row = Row {
            shape: self.network.network.frozen_row(&self.job.freeze)?.dims().to_vec(),
            form: Form::F32,
        };
        let bytes = row.disk_bytes(rows_of(feed)).unwrap_or(u64::MAX);
        let there = there.map_or(0.0, |coverage| coverage.kept as f64 / coverage.rows.max(1) as f64);
        Ok(Some(Reuse {
            rows_kept_already: there,
            fits: (cache.limit() as f64 / bytes.max(1) as f64).min(1.0),
            views: feed.views.cacheable(self.job.spec.recipe.epochs).len().max(1) as u32,
            bytes,
        }))
    }

    fn with_cached_features(
        mut self,
        features: Arc<Features>,
        coverage: Coverage,
    ) -> Result<Prepared, TrainerError> {
        let offer = self.stock_offer(None);
        let Coverage { kept, rows, .. } = coverage;
        let chosen: Chosen =
            offer.without_hosts(&format!("{kept} of {rows} features are cached, no plan needed"))?;
        self.report_coverage(coverage);
        self.data.feed.features = Some(features);
        let mut prepared = Prepared::new(self, offer, false, (chosen, None));
        prepared.all_kept = kept == rows;
        Ok(prepared)
    }

    /// The store of rows that travel in `encoding` from `split`.
    async fn features(
        &self,
        encoding: Encoding,
        split: &Split,
        opening: OpenMode,
    ) -> Result<Option<Arc<Features>>, TrainerError> {
        let (job, network) = (self.job, &self.network);
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
        };
        Features::open(job, made, &self.data.feed, self.events, opening).await
    }

    /// Of the layers up to the freeze cut; nothing where nothing is frozen.
    async fn layers_hash(&self) -> Result<String, TrainerError> {
        if self.network.nothing_is_frozen(&self.job.freeze) {
            return Ok(String::new());
        }
        let hash = self.layers_hash.get_or_try_init(|| {
            let (frozen, freeze) = (self.network.frozen.clone(), self.job.freeze.clone());
            blocking(move || Ok(frozen.layers_sha256(&freeze)?))
        });
        hash.await.cloned()
    }

    /// Has the job keep its rows, which travel in `encoding` from `split`.
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
            let coverage = features.coverage(&self.data.feed).await?;
            self.report_coverage(coverage);
        }
        self.data.feed.features = features;
        Ok(())
    }

    fn report_coverage(&self, coverage: Coverage) {
        let Some(cache) = &self.job.features else { return };
        (self.events)(Event::Features {
            kept: coverage.kept,
            rows: coverage.rows,
            bytes: coverage.bytes,
            limit: cache.limit(),
            folder: cache.path().to_owned(),
        });
    }
}
