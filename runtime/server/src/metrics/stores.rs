use super::labels::{Labels, RootLabels};
use frostline_objects::Fault;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Failures of the stores behind data roots.
#[derive(Clone)]
pub(crate) struct StoreErrors {
    by_fault: Family<Labels<1>, Counter>,
    /// Only shown to the operator, because it contains the names of data roots.
    by_root: Family<RootLabels, Counter>,
}

/// Creates a series for every fault, so that a query can compute a rate for the first failure.
impl Default for StoreErrors {
    fn default() -> Self {
        let by_fault = Family::<Labels<1>, Counter>::default();
        for fault in Fault::all().map(Fault::as_str) {
            drop(by_fault.get_or_create(&[("fault", fault)]));
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
        self.by_fault.get_or_create(&[("fault", fault)]).inc();
        let root = root.to_owned();
        self.by_root.get_or_create(&RootLabels { root, fault }).inc();
    }

    /// Removes the series of a data root that no tenant has any more.
    pub(crate) fn forget(&self, root: &str) {
        for fault in Fault::all().map(Fault::as_str) {
            let root = root.to_owned();
            self.by_root.remove(&RootLabels { root, fault });
        }
    }

    #[cfg(test)]
    pub(crate) fn failures(&self, root: &str, fault: Fault) -> u64 {
        let root = root.to_owned();
        let fault = fault.as_str();
        self.by_root.get_or_create(&RootLabels { root, fault }).get()
    }

    /// Registers the failures in total for the `host`, and with root names for the `operator`.
    pub(super) fn register(&self, host: &mut Registry, operator: &mut Registry) {
        register! { host:
            "store_errors", "Failed operations on the stores of data roots, each after all retries", self.by_fault;
        }
        register! { operator: "root_errors", "Failed operations on the store of a data root", self.by_root; }
    }
}
