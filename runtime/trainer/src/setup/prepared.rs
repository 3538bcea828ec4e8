use super::context::Setup;
use super::data::JobData;
use super::network::DividedNetwork;
use crate::event::warn;
use crate::offer::Offer;
use crate::replan::Watch;
use crate::{Event, Events, Job};
use frostline_client::{Hosts, Notice};
use frostline_compute::SuffixParts;
use frostline_plan::{ChosenSplit, Modules};
use frostline_wire::Split;
use std::sync::Arc;

/// A prepared job. The data is listed, the network is divided, and the hosts have everything they need.
pub(crate) struct Prepared {
    pub(crate) data: JobData,
    /// Trained weights are merged into this network for export.
    pub(crate) network: DividedNetwork,
    pub(crate) suffix: SuffixParts,
    pub(crate) offer: Arc<Offer>,
    pub(crate) chosen: ChosenSplit,
    modules: Modules,
    /// True if the hosts have the frozen layers, so that a split can be planned again.
    pub(super) layers_on_hosts: bool,
    /// Samples per guest call, if the hosts report it.
    pub(super) grant: Option<usize>,
    /// Counts the bytes received for measurements.
    pub(crate) measuring: Hosts,
    /// Watches a planned split; `None` if the split is fixed or was not measured.
    pub(crate) watch: Option<Watch>,
    /// True if all features are cached, so that nothing is fetched.
    pub(crate) all_cached: bool,
}

impl Prepared {
    pub(super) fn new(
        setup: Setup<'_>,
        offer: Offer,
        layers_on_hosts: bool,
        (chosen, watch): (ChosenSplit, Option<Watch>),
    ) -> Self {
        Self {
            suffix: setup.network.suffix_parts(setup.job, setup.batch()),
            modules: Modules::from_network(&setup.network.network),
            data: setup.data,
            network: setup.network,
            layers_on_hosts,
            grant: setup.grant,
            offer: Arc::new(offer),
            chosen,
            measuring: setup.measuring,
            watch,
            all_cached: false,
        }
    }

    /// Emits the chosen split as an event.
    pub(super) fn announce(&self, events: &Events) {
        events(Event::Split {
            split: self.chosen.split.clone(),
            module: self.modules.at(&self.chosen.split).map(str::to_owned),
            encoding: self.chosen.encoding,
            bytes_per_sample: self.chosen.bytes_per_sample.round() as u64,
            reason: self.chosen.reason.clone(),
        });
    }

    /// Emits a warning if this machine computes frozen layers in full precision although the job requests
    /// less. Hosts report their precision in the answers.
    pub(super) fn report_precision(&self, job: &Job, events: &Events) {
        let permitted = job.spec.terms.precision;
        let is_at_freeze = matches!(&self.chosen.split, Split::Cut(cut) if *cut == job.freeze);
        let computes = !is_at_freeze && !self.all_cached && !self.network.nothing_is_frozen(&job.freeze);
        if computes && job.device.precision(permitted) != permitted {
            warn(events, Notice::precision_text("this machine", permitted));
        }
    }
}
