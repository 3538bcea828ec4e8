use super::labels::{FaultLabels, RootLabels};
use frostline_objects::Fault;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Failures of the stores of data roots.
#[derive(Clone)]
pub(crate) struct StoreErrors {
    by_fault: Family<FaultLabels, Counter>,
    /// Roots are named to whoever runs the host alone.
    by_root: Family<RootLabels, Counter>,
}

/// All faults have a series from the start, so that the first one is seen as a rate.
impl Default for StoreErrors {
    fn default() -> Self {
        let by_fault = Family::<FaultLabels, Counter>::default();
        for fault in Fault::ALL.map(Fault::as_str) {
            drop(by_fault.get_or_create(&FaultLabels { fault }));
        }
        Self {
            by_fault,
            by_root: Family::default(),
        }
    }
}

impl StoreErrors {
    pub(crate) fn count(&self, root: &str, fault: Fault) {
        let fault = fault.as_str();
        self.by_fault.get_or_create(&FaultLabels { fault }).inc();
        let root = root.to_owned();
        self.by_root.get_or_create(&RootLabels { root, fault }).inc();
    }

    /// How often a root failed like this.
    #[cfg(test)]
    pub(crate) fn failures(&self, root: &str, fault: Fault) -> u64 {
        let (root, fault) = (root.to_owned(), fault.as_str());
        self.by_root.get_or_create(&RootLabels { root, fault }).get()
    }

    /// Shows it, of the host as a whole and by root.
    pub(super) fn register(&self, host: &mut Registry, operator: &mut Registry) {
        host.register(
            "store_errors",
            "Failed operations on the stores of data roots, repetitions included in each",
            self.by_fault.clone(),
        );
        operator.register(
            "root_errors",
            "Failed operations on the store of a data root",
            self.by_root.clone(),
        );
    }
}
