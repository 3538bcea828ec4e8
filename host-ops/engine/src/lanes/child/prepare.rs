//! Stages are prepared in processes that are thrown away: optimising a stranger's network may crash, or take what it can get.

use super::super::{ChildLanes, LanesConfig};
use super::message::{Answer, Limits};
use super::process::LaneProcess;
use crate::Interrupt;
use frostline_tensor::OpError;
use std::path::Path;

/// What a process may take beyond the network that it prepares.
const BASE_BYTES: u64 = 512 << 20;

/// Memory and files of a process, in bytes of its network: it holds the network as it came, as it was parsed, laid out for kernels and as
/// it is written, and files have most weights twice, as they were and laid out (VGG19: 3.5 and 1.9 times).
const TIMES: u64 = 6;

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
    let folder = folder.to_str().ok_or("the folder's path is no UTF-8")?;
    let process = LaneProcess::start_within(config, place, Some(limits));
    let mut process = process.map_err(|error| error.to_string())?;
    match process.prepare(network, folder, config.open_deadline, interrupt) {
        Ok(Answer::Prepared) => Ok(()),
        Ok(Answer::Failed { error, .. } | Answer::OutOfMemory { error, .. }) => Err(told(error)),
        Ok(_) => Err("the process that prepares it answered out of turn".to_owned()),
        Err(lost) => Err(format!(
            "the process that prepares it was lost: {}",
            process.bury(&lost).how
        )),
    }
}

fn told(error: OpError) -> String {
    error.message
}
