//! What the handlers of one host share.

use crate::audit::Audit;
use crate::metrics::{Metrics, Present};
use crate::scheduling::{Admission, GrantDesk};
use crate::state::{Partials, SharedState};
use crate::tenants::{Bouncer, Tenants};
use crate::{HostConfig, Root};
use frostline_engine::Lanes;
use frostline_images::DecodePool;
use frostline_objects::Store;
use frostline_profile::Folder;
use frostline_sandbox::{Guest, Sandbox};
use frostline_wire::{Activity, Description, Load, Platform, TenantActivity};
use quick_cache::sync::Cache;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Requests at once that ask guests something outside of extractions: an honest one answers in microseconds, so a few are plenty.
pub(crate) const ASKING: usize = 8;

/// Whose guest, which a tenant makes ready on its own account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PreparedKey {
    pub(crate) tenant: String,
    /// SHA-256.
    pub(crate) guest: String,
}

/// What a description depends on, and who asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DescriptionKey {
    pub(crate) tenant: String,
    pub(crate) guest: String,
    pub(crate) model: String,
    pub(crate) parameters: String,
}

/// See the module.
pub(crate) struct Service {
    pub(crate) config: HostConfig,
    pub(crate) state: Arc<SharedState>,
    pub(crate) tenants: Tenants,
    /// Who tried bad tokens.
    pub(crate) bouncer: Bouncer,
    pub(crate) sandbox: Sandbox,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) decoders: DecodePool,
    pub(crate) stores: Cache<Root, Arc<Store>>,
    pub(crate) prepared: Cache<PreparedKey, Guest>,
    pub(crate) descriptions: Cache<DescriptionKey, Arc<Description>>,
    pub(crate) admission: Arc<Admission>,
    /// Who asks guests something outside of extractions.
    pub(crate) asking: Arc<Admission>,
    pub(crate) desk: Arc<GrantDesk>,
    /// What models take on this host.
    pub(crate) profiles: Folder,
    /// Tenants' profiles on their way: one of each, so that tenants take turns at `profiling`.
    pub(crate) profile_lines: Arc<Admission>,
    /// Held by whoever measures, so that two profiles do not measure each other; goes to who has waited the longest.
    pub(crate) profiling: tokio::sync::Mutex<()>,
    /// Name and version of the engine's library.
    pub(crate) library: String,
    /// This machine, as profiles name it.
    pub(crate) machine: String,
    /// Uploads on their way, and what came of those that broke off.
    pub(crate) partials: Partials,
    /// Bytes of uploads being received, in the units of [`crate::http::upload_units`].
    pub(crate) uploads: Arc<Semaphore>,
    pub(crate) metrics: Arc<Metrics>,
    /// Who did what.
    pub(crate) audit: Audit,
    /// Everything that must be done before the host may go.
    pub(crate) work: TaskTracker,
    /// Ends what runs, wherever it is.
    pub(crate) end: CancellationToken,
}

impl Service {
    /// What profiles measured on this host depend on.
    pub(crate) fn platform(&self) -> Platform {
        let lanes = self.lanes.config();
        Platform {
            machine: self.machine.clone(),
            device: lanes.device.to_string(),
            library: self.library.clone(),
            lanes: lanes.lanes,
            threads_per_lane: lanes.threads_per_lane,
            decode_threads: self.decoders.threads(),
            rows: self.config.grant,
        }
    }

    pub(crate) fn load(&self) -> Load {
        Load {
            queued: self.admission.queued() as u64,
            running: self.admission.running() as u64,
            lanes: self.lanes.config().lanes as u64,
            samples_per_second: self.metrics.meter.per_second(),
        }
    }

    /// What an admin sees of the host at work.
    pub(crate) fn activity(&self) -> Activity {
        let standings = self.admission.standings();
        let names: BTreeSet<String> = self
            .metrics
            .tenants
            .names()
            .chain(standings.keys().cloned())
            .collect();
        let tenant = |name: String| {
            let standing = standings.get(&name).copied().unwrap_or_default();
            let [extractions, samples, answer_bytes] = self.metrics.tenants.of(&name);
            TenantActivity {
                running: standing.running as u64,
                queued: standing.queued as u64,
                cpu_seconds: self.metrics.tenants.cpu_seconds_of(&name),
                name,
                extractions,
                samples,
                answer_bytes,
            }
        };
        Activity {
            stopping: self.admission.stopped(),
            places: self.config.running as u64,
            running: self.admission.running() as u64,
            queued: self.admission.queued() as u64,
            lanes: self.lanes.config().lanes as u64,
            lane_queue: self.lanes.stats().queued as u64,
            memory_bytes: resident_bytes(),
            tenants: names.into_iter().map(tenant).collect(),
        }
    }

    pub(crate) fn present(&self) -> Present {
        let lanes = self.lanes.stats();
        Present {
            queued: self.admission.queued(),
            running: self.admission.running(),
            lane_queue: lanes.queued,
            lane_samples: lanes.samples_done,
            lane_crashes: lanes.crashes,
        }
    }
}

/// Memory this process holds, as Linux tells it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
