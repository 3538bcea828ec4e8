use super::context::Setup;
use crate::compute::SuffixParts;
use crate::offer::Offer;
use crate::pipeline::FeedPlan;
use crate::plan::{Chosen, Modules};
use crate::replan::Watch;
use crate::{Event, Events};
use frostline_client::{Hosts, Task};
use frostline_graph::Model;
use std::sync::Arc;

/// A job that is ready to begin: the data are listed, the network is divided, the host has what it needs.
pub(crate) struct Prepared {
    pub(crate) task: Task,
    /// Names of the outputs.
    pub(crate) classes: Vec<String>,
    /// The whole network under its fresh head; trained weights are merged into it.
    pub(crate) headed: Model,
    pub(crate) suffix: SuffixParts,
    pub(crate) feed: FeedPlan,
    pub(crate) offer: Arc<Offer>,
    pub(crate) chosen: Chosen,
    modules: Modules,
    /// Bytes received for the listing.
    pub(crate) listed: u64,
    /// Counts the bytes received for measurements.
    pub(crate) measuring: Hosts,
    /// Watches a split that was planned; `None` for one that was given, or that nothing was measured for.
    pub(crate) watch: Option<Watch>,
}

impl Prepared {
    pub(super) fn new(setup: Setup<'_>, offer: Offer, chosen: Chosen, watch: Option<Watch>) -> Self {
        Self {
            suffix: setup.network.suffix_parts(setup.job, setup.batch()),
            task: setup.data.feed.task,
            modules: Modules::of(&setup.network.network),
            classes: setup.data.classes,
            headed: setup.network.headed,
            feed: setup.data.feed,
            offer: Arc::new(offer),
            chosen,
            listed: setup.data.listed,
            measuring: setup.measuring,
            watch,
        }
    }

    /// Tells where the network is divided.
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
