//! Preparation of stages in disposable processes, because optimizing an untrusted network may crash or
//! exhaust memory.

use super::super::source::Networks;
use super::super::{ChildLanes, LanesPlace};
use super::message::{LaneAnswer, Limits};
use super::process::{LaneProcess, UNTOUCHED_BYTES};
use crate::{Interrupt, InterruptCause};
use frostline_batching::Kind;
use frostline_tensor::Stage;
use std::path::Path;
use std::time::Duration;

/// Time to wait for the memory that preparing a stage needs. If this time expires, the stage runs from its
/// bytes and is prepared the next time it is opened.
const WAIT: Duration = Duration::from_secs(1);

/// Memory limit for preparing a network: a factor of the network's size and a constant. Common networks
/// needed a factor of up to 3.5 (VGG19), and a process without a network 60 to 100 MiB.
const HELD: (u64, u64) = (4, 128 << 20);

/// Limit on private memory and written files as a factor of the network's size. The process holds the network
/// as received, parsed, in kernel layout and as written. Written files contain most weights both in the
/// original and in the kernel layout. VGG19 needs a factor of 3.5 in memory and 1.9 in files.
const TIMES: u64 = 6;

impl Networks {
    /// Prepares `stage` for `tenant` in a disposable process until `interrupt` is triggered. Blocks. A failure is
    /// logged, and lanes then open the stage from its bytes.
    ///
    /// The memory belongs to the tenant, as that of a guest call, although the caller may hold such memory: a
    /// preparation can need most of the host's memory for a minute, and the memory of lanes would leave nothing to
    /// read the objects of other tenants. The wait is short, so callers cannot block each other.
    pub(crate) fn prepare(&self, stage: &Stage, tenant: &str, interrupt: &Interrupt) {
        let (Some(prepared), LanesPlace::Child(place)) = (&self.prepared, &self.config.place) else {
            return;
        };
        let stage = stage.network();
        let made = prepared.get(&stage, |folder| {
            // The lane reports an error of the source.
            let network = self.bytes(&stage).map_err(drop)?;
            let takes = reserved_bytes(network.len());
            let memory = &self.config.memory;
            let Ok(_memory) = memory.reserve_blocking(tenant, Kind::Grant, takes, WAIT) else {
                tracing::debug!(
                    takes,
                    "not enough memory to prepare a stage; running from its bytes"
                );
                return Err(());
            };
            let made = prepare(self, place, &network, folder, interrupt);
            match interrupt.cause() {
                // Nothing is known about the stage.
                Some(InterruptCause::Cancelled | InterruptCause::Shutdown) => Err(()),
                _ => Ok(made),
            }
        });
        drop(made);
    }
}

/// Returns the maximum number of bytes a process holds while preparing a network of this size.
fn held(network: usize) -> u64 {
    let (times, beside) = HELD;
    (network as u64).saturating_mul(times).saturating_add(beside)
}

/// Returns the bytes to reserve for preparing a network of this size: those of the process and of the window
/// that contains the network.
fn reserved_bytes(network: usize) -> u64 {
    held(network).saturating_add(network as u64)
}

/// Prepares `network` in `folder`.
///
/// # Errors
/// Returns the reason if the network cannot be prepared.
fn prepare(
    networks: &Networks,
    place: &ChildLanes,
    network: &[u8],
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(), String> {
    let bytes = (network.len() as u64)
        .saturating_mul(TIMES)
        .saturating_add(UNTOUCHED_BYTES);
    let config = &networks.config;
    let seconds = config.open_deadline.as_secs().saturating_add(1);
    let limits = Limits {
        memory: bytes,
        files: bytes,
        cpu_seconds: seconds.saturating_mul(config.threads_per_lane as u64),
    };
    let folder = folder.canonicalize().map_err(|error| error.to_string())?;
    let process = LaneProcess::start_in(config, place, &networks.guards, Some(folder), Some(limits));
    let mut process = process.map_err(|error| error.to_string())?;
    process.limit(Some(reserved_bytes(network.len())));
    match process.prepare(network, held(network.len()), interrupt) {
        Ok(LaneAnswer::Prepared) => Ok(()),
        Ok(LaneAnswer::Failed { error, .. } | LaneAnswer::OutOfMemory { error, .. }) => Err(error.message),
        Ok(_) => Err("unexpected answer of the process that prepares the stage".to_owned()),
        Err(lost) => Err(format!(
            "the process that prepares the stage was lost: {}",
            process.reap(&lost).how
        )),
    }
}
