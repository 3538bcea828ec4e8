//! Rows that are kept already, and what they spare a job.

use super::context::Setup;
use super::prepared::Prepared;
use crate::features::{Coverage, Features, Making, Rounding};
use crate::plan::Chosen;
use crate::{Event, TrainerError};
use frostline_wire::Encoding;
use std::sync::Arc;

impl<'a> Setup<'a> {
    /// The job without hosts' layers and without a plan, where all but a batch of its rows are kept and this machine can make the others itself: that
    /// takes less than finding out who would do it best. Else gives itself back.
    pub(super) async fn reuse(self) -> Result<Result<Prepared, Self>, TrainerError> {
        if self.measure || !self.needs_no_host() {
            return Ok(Err(self));
        }
        let roundings = match self.job.encoding {
            None => vec![Rounding::Exact, Rounding::Half],
            Some(encoding) => vec![Rounding::of(encoding)],
        };
        for rounding in roundings {
            let Some(features) = self.features(rounding, true).await? else {
                continue;
            };
            let coverage = features.coverage(&self.data.feed).await?;
            let missing = coverage.rows.saturating_sub(coverage.kept);
            if coverage.repeats && missing <= self.batch() as u64 {
                return Ok(Ok(self.by_rows(features, coverage)?));
            }
        }
        Ok(Err(self))
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
