use super::context::Setup;
use super::data::Data;
use super::network::DividedNetwork;
use crate::compute::SuffixParts;
use crate::offer::Offer;
use crate::plan::{Chosen, Modules};
use crate::replan::Watch;
use crate::{Event, Events};
use frostline_client::Hosts;
use std::sync::Arc;

/// A job that is ready to begin: the data are listed, the network is divided, the host has what it needs.
pub(crate) struct Prepared {
    pub(crate) data: Data,
    /// Trained weights are merged into its whole.
    pub(crate) network: DividedNetwork,
    pub(crate) suffix: SuffixParts,
    pub(crate) offer: Arc<Offer>,
    pub(crate) chosen: Chosen,
    modules: Modules,
    /// Whether hosts have the frozen layers, so that a split can be planned again.
    pub(super) pushes: bool,
    /// Samples of one guest call, where the hosts tell.
    pub(super) grant: Option<usize>,
    /// Counts the bytes received for measurements.
    pub(crate) measuring: Hosts,
    /// Watches a split that was planned; `None` for one that was given, or that nothing was measured for.
    pub(crate) watch: Option<Watch>,
    /// Whether all rows are kept already, so that nothing comes from a split.
    pub(crate) all_kept: bool,
}

impl Prepared {
    pub(super) fn new(
        setup: Setup<'_>,
        offer: Offer,
        pushes: bool,
        (chosen, watch): (Chosen, Option<Watch>),
    ) -> Self {
        Self {
            suffix: setup.network.suffix_parts(setup.job, setup.batch()),
            modules: Modules::from_network(&setup.network.network),
            data: setup.data,
            network: setup.network,
            pushes,
            grant: setup.grant,
            offer: Arc::new(offer),
            chosen,
            measuring: setup.measuring,
            watch,
            all_kept: false,
        }
    }

    /// Emits the split.
    pub(super) fn announce(&self, events: &Events) {
        events(Event::Split {
            split: self.chosen.split.clone(),
            module: self.modules.at(&self.chosen.split).map(str::to_owned),
            encoding: self.chosen.encoding,
            bytes_per_sample: self.chosen.bytes_per_sample.round() as u64,
            reason: self.chosen.reason.clone(),
        });
    }
}
