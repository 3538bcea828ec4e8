//! The two tiers with the networks that are measured on them, one after the other, each on a host of its own.

use crate::networks::{Grid, noted};
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

    /// Measures each of these networks by `measure`. One that cannot be trained is reported, and the others go on.
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
            noted(report, name, measured)?;
        }
        Ok(())
    }
}
