//! Stages are prepared in processes that are thrown away: optimizing a stranger's network may crash, or take what it can get.

use super::super::{ChildLanes, LanesConfig};
use super::message::{Answer, Limits};
use super::process::LaneProcess;
use crate::Interrupt;
use frostline_tensor::OpError;
use std::path::Path;

/// Memory of a process that prepares a network, in bytes of it, and beside that: the usual ones took up to 3.5 times theirs (VGG19), and a
/// process without one 60 to 100 MiB.
const HELD: (u64, u64) = (4, 128 << 20);

/// What a process may take of address space beyond the network that it prepares.
const BASE_BYTES: u64 = 512 << 20;

/// Address space and files of a process, in bytes of its network: it holds the network as it came, as it was parsed, laid out for kernels and as
/// it is written, and files have most weights twice, as they were and laid out (VGG19: 3.5 and 1.9 times).
const TIMES: u64 = 6;

/// Bytes that preparing a network of so many may hold: those of the process.
pub(crate) fn held(network: usize) -> u64 {
    let (times, beside) = HELD;
    (network as u64).saturating_mul(times).saturating_add(beside)
}

/// Bytes that preparing it takes: those, and the window's, where the network lies.
pub(crate) fn takes(network: usize) -> u64 {
    held(network).saturating_add(network as u64)
}

/// Leaves `network` prepared in `folder`.
///
/// # Errors
/// Why that could not be done.
pub(crate) fn prepare(
    config: &LanesConfig,
    place: &ChildLanes,
    network: &[u8],
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(), String> {
    let bytes = (network.len() as u64)
        .saturating_mul(TIMES)
        .saturating_add(BASE_BYTES);
    let seconds = config.open_deadline.as_secs().saturating_add(1);
    let limits = Limits {
        memory: bytes,
        files: bytes,
        cpu_seconds: seconds.saturating_mul(config.threads_per_lane as u64),
    };
    let folder = folder.canonicalize().map_err(|error| error.to_string())?;
    let process = LaneProcess::start_in(config, place, Some(folder), Some(limits));
    let mut process = process.map_err(|error| error.to_string())?;
    let (limit, most) = (config.open_deadline, held(network.len()));
    match process.prepare(network, limit, most, interrupt) {
        Ok(Answer::Prepared) => Ok(()),
        Ok(Answer::Failed { error, .. } | Answer::OutOfMemory { error, .. }) => Err(message_of(error)),
        Ok(_) => Err("the process that prepares it answered out of turn".to_owned()),
        Err(lost) => Err(format!(
            "the process that prepares it was lost: {}",
            process.reap(&lost).how
        )),
    }
}

fn message_of(error: OpError) -> String {
    error.message
}
