//! Preparation of stages in disposable processes, because optimizing an untrusted network may crash or
//! exhaust memory.

use super::super::{ChildLanes, LanesConfig};
use super::guard::Guards;
use super::message::{Answer, Limits};
use super::process::{LaneProcess, UNTOUCHED_BYTES};
use crate::Interrupt;
use frostline_tensor::OpError;
use std::path::Path;
use std::sync::Arc;

/// Memory limit for preparing a network: a factor of the network's size and a constant. Common networks
/// needed a factor of up to 3.5 (VGG19), and a process without a network 60 to 100 MiB.
const HELD: (u64, u64) = (4, 128 << 20);

/// Limit on private memory and written files as a factor of the network's size. The process holds the network
/// as received, parsed, in kernel layout and as written. Written files contain most weights both in the
/// original and in the kernel layout. VGG19 needs a factor of 3.5 in memory and 1.9 in files.
const TIMES: u64 = 6;

/// Returns the maximum number of bytes a process holds while preparing a network of this size.
pub(crate) fn held(network: usize) -> u64 {
    let (times, beside) = HELD;
    (network as u64).saturating_mul(times).saturating_add(beside)
}

/// Returns the bytes to reserve for preparing a network of this size: those of the process and of the window
/// that contains the network.
pub(crate) fn reserved_bytes(network: usize) -> u64 {
    held(network).saturating_add(network as u64)
}

/// Prepares `network` in `folder`.
///
/// # Errors
/// Returns the reason if the network cannot be prepared.
pub(crate) fn prepare(
    config: &LanesConfig,
    place: &ChildLanes,
    guards: &Arc<Guards>,
    network: &[u8],
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(), String> {
    let bytes = (network.len() as u64)
        .saturating_mul(TIMES)
        .saturating_add(UNTOUCHED_BYTES);
    let seconds = config.open_deadline.as_secs().saturating_add(1);
    let limits = Limits {
        memory: bytes,
        files: bytes,
        cpu_seconds: seconds.saturating_mul(config.threads_per_lane as u64),
    };
    let folder = folder.canonicalize().map_err(|error| error.to_string())?;
    let process = LaneProcess::start_in(config, place, guards, Some(folder), Some(limits));
    let mut process = process.map_err(|error| error.to_string())?;
    process.limit(Some(reserved_bytes(network.len())));
    match process.prepare(network, held(network.len()), interrupt) {
        Ok(Answer::Prepared) => Ok(()),
        Ok(Answer::Failed { error, .. } | Answer::OutOfMemory { error, .. }) => Err(message_of(error)),
        Ok(_) => Err("unexpected answer of the process that prepares the stage".to_owned()),
        Err(lost) => Err(format!(
            "the process that prepares the stage was lost: {}",
            process.reap(&lost).how
        )),
    }
}

fn message_of(error: OpError) -> String {
    error.message
}
