//! Rows that are kept already, and what they spare a job.

use super::context::Setup;
use super::prepared::Prepared;
use crate::features::{Coverage, Features, Making, Rounding, rows_of};
use crate::plan::{Chosen, Reuse};
use crate::{Event, TrainerError};
use frostline_features::{Form, Row};
use frostline_wire::Encoding;
use std::sync::Arc;

impl<'a> Setup<'a> {
    /// The job without hosts' layers and without a plan, where all but a batch of its rows are kept and this machine can make the others itself: that
    /// takes less than finding out who would do it best. Else gives itself back, and knows what will be kept.
    pub(super) async fn reuse(mut self) -> Result<Result<Prepared, Self>, TrainerError> {
        let there = self.there().await?;
        if let Some((features, coverage)) = &there
            && !self.measure
            && self.needs_no_host()
            && coverage.repeats
            && coverage.rows.saturating_sub(coverage.kept) <= self.batch() as u64
        {
            return Ok(Ok(self.by_rows(Arc::clone(features), *coverage)?));
        }
        self.keeps = self.to_be_kept(there.map(|(_, coverage)| coverage))?;
        Ok(Err(self))
    }

    /// The store that has most of the job's rows, if there is any for it.
    async fn there(&self) -> Result<Option<(Arc<Features>, Coverage)>, TrainerError> {
        let roundings = match self.job.spec.encoding.fixed() {
            None => vec![Rounding::Exact, Rounding::Half],
            Some(encoding) => vec![Rounding::of(encoding)],
        };
        let mut best: Option<(Arc<Features>, Coverage)> = None;
        for rounding in roundings {
            let Some(features) = self.features(rounding, true).await? else {
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
            views: feed.views.kept(self.job.spec.recipe.epochs).len().max(1) as u32,
            bytes,
        }))
    }

    fn by_rows(mut self, features: Arc<Features>, coverage: Coverage) -> Result<Prepared, TrainerError> {
        let offer = self.stock_offer(None);
        let Coverage { kept, rows, .. } = coverage;
        let chosen: Chosen = offer.without_hosts(&format!(
            "{kept} of the {rows} rows at the freeze cut are kept on this machine, so nothing is planned"
        ))?;
        self.tell(coverage);
        self.data.feed.features = Some(features);
        let mut prepared = Prepared::new(self, offer, false, (chosen, None));
        prepared.all_kept = kept == rows;
        Ok(prepared)
    }

    /// The store of rows that travel with this much rounding: made where there is none, unless it has to be `there`.
    async fn features(&self, rounding: Rounding, there: bool) -> Result<Option<Arc<Features>>, TrainerError> {
        if self.job.features.is_none() {
            return Ok(None);
        }
        let Some(layers) = self.layers_sha256().await else {
            return Ok(None);
        };
        let network = &self.network;
        let making = Making {
            layers,
            parameters: network.parameters.clone(),
            shape: network.network.frozen_row(&self.job.freeze)?.dims().to_vec(),
        };
        Features::open(self.job, making, rounding, &self.data.feed, self.events, there).await
    }

    /// Of the layers up to the freeze cut; nothing where nothing is frozen, `None` where they are no file.
    async fn layers_sha256(&self) -> Option<String> {
        if self.network.nothing_is_frozen(&self.job.freeze) {
            return Some(String::new());
        }
        let layers = self.frozen_layers().await;
        layers.ok().map(|layers| layers.sha256)
    }

    /// Has the job keep its rows, which travel in `encoding`.
    pub(super) async fn keep(&mut self, encoding: Encoding) -> Result<(), TrainerError> {
        if self.measure {
            return Ok(());
        }
        let features = self.features(Rounding::of(encoding), false).await?;
        if let Some(features) = &features {
            let coverage = features.coverage(&self.data.feed).await?;
            self.tell(coverage);
        }
        self.data.feed.features = features;
        Ok(())
    }

    fn tell(&self, coverage: Coverage) {
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
