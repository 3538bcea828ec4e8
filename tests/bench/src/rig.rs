//! Measures networks on the two tiers sequentially, each on a separate host.

use crate::networks::{Grid, skip_untrainable};
use crate::report::Report;
use crate::tiers::Tiers;
use crate::trainer::Trainer;
use anyhow::Result;

pub(crate) struct Rig {
    pub(crate) grid: Grid,
    pub(crate) tiers: Tiers,
}

impl Rig {
    pub(crate) fn open(report: &Report) -> Result<Self> {
        Ok(Self {
            grid: Grid::read()?,
            tiers: Tiers::open(&report.photos())?,
        })
    }

    /// Calls `measure` for each of these networks. Reports and skips untrainable networks.
    pub(crate) fn each(
        &self,
        report: &mut Report,
        names: &[String],
        mut measure: impl FnMut(&mut Report, &mut Trainer<'_>) -> Result<()>,
    ) -> Result<()> {
        for name in names {
            let network = self.grid.network(name)?;
            let batch = network.batch(report.quick());
            let measured =
                Trainer::with_host(&self.tiers, &network, batch, |trainer| measure(report, trainer));
            skip_untrainable(report, name, measured)?;
        }
        Ok(())
    }
}
