use frostline_primitives::Lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

/// A fixed number of private permits per tenant. Tenants take one of these before they wait for a shared permit,
/// so they cannot fill the shared queue.
#[derive(Debug)]
pub struct TenantPermits {
    each: usize,
    /// Entries without handles are removed.
    by_tenant: Lock<BTreeMap<Arc<str>, Weak<Semaphore>>>,
}

impl TenantPermits {
    /// Creates `each` permits per tenant.
    pub const fn new(each: usize) -> Self {
        Self {
            each,
            by_tenant: Lock::new(BTreeMap::new()),
        }
    }

    /// Returns the permits that all handles of the tenant share.
    pub fn for_tenant(&self, tenant: &Arc<str>) -> Arc<Semaphore> {
        let mut permits = self.by_tenant.lock();
        if let Some(known) = permits.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        permits.retain(|_, others| others.strong_count() > 0);
        let new = Arc::new(Semaphore::new(self.each));
        permits.insert(Arc::clone(tenant), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_a_tenant_share_permits_and_unused_ones_are_removed() {
        let permits = TenantPermits::new(2);
        let [one, same, other] = ["a", "a", "b"].map(|tenant| permits.for_tenant(&Arc::from(tenant)));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert_eq!(one.available_permits(), 2);
        drop(other);
        permits.for_tenant(&Arc::from("c"));
        assert_eq!(permits.by_tenant.lock().len(), 2);
    }
}
