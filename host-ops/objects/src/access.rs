//! Permits for concurrent reads of a root.

use crate::hedge::Pulse;
use crate::root::DEADLINE;
use frostline_batching::{Charge, Stop, TenantPermits, Unfinished, run_blocking};
use futures::FutureExt;
use object_store::path::Path;
use object_store::{Extensions, GetOptions, ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Maximum number of concurrent reads per store. With a latency of some 30 ms, 64 reads fetch 2,000 small
/// objects per second, more than a host decodes, and stay far below the limit of open files per process.
const READS_AT_ONCE: usize = 64;

/// Interval at which a read that waits for memory beats the pulse, to avoid a hedged request.
const PULSE_INTERVAL: Duration = Duration::from_millis(200);

/// Permits and account of a user of a root: a tenant, or the program that opened the root.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    root: Arc<RootPermits>,
    own: Arc<Semaphore>,
    /// Account for the CPU time of reading threads.
    pub(crate) charge: Charge,
}

/// Permits of all users of a root.
#[derive(Debug)]
struct RootPermits {
    shared: Arc<Semaphore>,
    tenants: TenantPermits,
}

/// Permits of a read. Released when the last thread of the read has ended.
pub(crate) struct Passage {
    root: Arc<RootPermits>,
    /// `None` while the read waits for a private resource.
    shared: Mutex<Option<OwnedSemaphorePermit>>,
    _own: Option<OwnedSemaphorePermit>,
    charge: Charge,
}

impl Access {
    /// Creates the access of the program that opened the root, which can use all permits.
    pub(crate) fn new() -> Self {
        let root = RootPermits {
            shared: Arc::new(Semaphore::new(READS_AT_ONCE)),
            tenants: TenantPermits::new(READS_AT_ONCE / 2),
        };
        Self {
            root: Arc::new(root),
            own: Arc::new(Semaphore::new(READS_AT_ONCE)),
            charge: Charge::default(),
        }
    }

    /// Returns the access of a tenant, which can use half of the permits.
    pub(crate) fn of_tenant(&self, tenant: &str) -> Self {
        Self {
            own: self.root.tenants.for_tenant(&Arc::from(tenant)),
            ..self.clone()
        }
    }

    /// Returns options for a request, with the account for [`LocalFolder`](crate::local::LocalFolder).
    pub(crate) fn options(&self) -> GetOptions {
        GetOptions {
            extensions: self.extensions(),
            ..GetOptions::default()
        }
    }

    /// Asks for the metadata of an object.
    pub(crate) async fn head(
        &self,
        store: &dyn ObjectStore,
        location: &Path,
    ) -> object_store::Result<ObjectMeta> {
        let options = GetOptions {
            head: true,
            ..self.options()
        };
        Ok(store.get_opts(location, options).await?.meta)
    }

    /// Returns the account in the form that [`LocalFolder`](crate::local::LocalFolder) reads.
    pub(crate) fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(self.charge.clone());
        extensions
    }

    /// Waits for a permit of the user, and then for one of the root.
    pub(crate) async fn enter(&self) -> Arc<Passage> {
        // The semaphores are never closed.
        let own = Arc::clone(&self.own).acquire_owned().await.ok();
        let shared = Arc::clone(&self.root.shared).acquire_owned().await.ok();
        Arc::new(Passage {
            root: Arc::clone(&self.root),
            shared: Mutex::new(shared),
            _own: own,
            charge: self.charge.clone(),
        })
    }
}

impl Passage {
    /// Waits for `private`, a resource of the user such as memory. Unless it is available now, other users can
    /// read with the shared permit in the meantime. `pulse` keeps beating, so that a request that the store has
    /// already answered is not hedged.
    pub(crate) async fn wait_outside<T>(&self, private: impl Future<Output = T>, pulse: &Pulse) -> T {
        let mut private = pin!(private);
        if let Some(ready) = private.as_mut().now_or_never() {
            return ready;
        }
        drop(self.shared.lock().take());
        let waiting = async {
            let ready = private.await;
            let again = Arc::clone(&self.root.shared).acquire_owned().await.ok();
            *self.shared.lock() = again;
            ready
        };
        let mut waiting = pin!(waiting);
        loop {
            tokio::select! {
                ready = &mut waiting => return ready,
                () = sleep(PULSE_INTERVAL) => pulse.beat(),
            }
        }
    }

    /// Runs blocking `work` on a thread, which keeps the permits until it ends.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Stop) -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        run_blocking(Arc::clone(self), DEADLINE, self.charge.clone(), work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::future::pending;

    #[tokio::test]
    async fn a_tenant_cannot_take_more_than_half_and_waits_for_itself_without_a_shared_permit() {
        let owner = Access::new();
        let free = || owner.root.shared.available_permits();
        let reading =
            join_all((0..READS_AT_ONCE / 2).map(|_| async { owner.of_tenant("a").enter().await })).await;
        assert!(owner.of_tenant("a").enter().now_or_never().is_none());
        assert_eq!(free(), READS_AT_ONCE / 2);
        let pulse = Pulse::default();
        let waiting = join_all(
            reading
                .iter()
                .map(|read| read.wait_outside(pending::<()>(), &pulse)),
        );
        assert!(waiting.now_or_never().is_none());
        assert_eq!(
            free(),
            READS_AT_ONCE,
            "no shared permit is held during a private wait"
        );
        assert!(
            owner.of_tenant("a").enter().now_or_never().is_none(),
            "private permits are held"
        );
        for read in &reading {
            read.wait_outside(async {}, &pulse).await;
        }
        drop(reading);
        assert!(owner.of_tenant("a").enter().now_or_never().is_some());
    }
}
