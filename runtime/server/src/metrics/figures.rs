//! Integer values for `/metrics`.

use super::exposition::HostSnapshot;
use frostline_engine::LaneStats;

/// Metric with name, help text and value.
pub(super) type Figure = (&'static str, &'static str, u64);

/// Returns the GPU memory gauges, or `None` if the lanes do not use a limited GPU memory.
pub(super) fn device_gauges(lanes: &LaneStats) -> Option<[Figure; 2]> {
    Some([
        (
            "device_memory_budget_bytes",
            "GPU memory budget of the lanes.",
            lanes.device_budget?,
        ),
        (
            "device_memory_held_bytes",
            "GPU memory reserved for lanes and engine batches.",
            lanes.memory_reserved,
        ),
    ])
}

pub(super) fn gauges(snapshot: &HostSnapshot) -> [Figure; 8] {
    let lanes = &snapshot.lanes;
    [
        (
            "extractions_queued",
            "Extractions waiting.",
            snapshot.queued as u64,
        ),
        (
            "extractions_running",
            "Extractions running.",
            snapshot.running as u64,
        ),
        (
            "revocations_pending",
            "Revocations of tokens that the state does not contain yet.",
            snapshot.revocations as u64,
        ),
        ("lanes", "Engine lanes.", snapshot.lanes.busy.len() as u64),
        (
            "decode_threads",
            "Threads that decode images.",
            snapshot.decode_threads as u64,
        ),
        ("lane_queue", "Batches waiting for a lane.", lanes.queued as u64),
        (
            "lane_memory_held_bytes",
            "Memory that lanes hold between engine batches.",
            lanes.memory_held,
        ),
        (
            "lane_memory_reserved_bytes",
            "Memory reserved for lanes and engine batches.",
            lanes.memory_reserved,
        ),
    ]
}

pub(super) fn counters(lanes: &LaneStats) -> [Figure; 12] {
    [
        (
            "lane_samples",
            "Samples computed by the lanes.",
            lanes.samples_done,
        ),
        ("lane_runs", "Successful engine batches.", lanes.runs),
        ("lane_rows", "Rows in successful engine batches.", lanes.rows),
        (
            "lane_runs_joined",
            "Engine batches with rows of several requests.",
            lanes.runs_joined,
        ),
        (
            "lane_out_of_memory",
            "Engine batches retried with fewer rows after running out of memory.",
            lanes.out_of_memory,
        ),
        (
            "lane_memory_misses",
            "Engine batches that used more memory than predicted.",
            lanes.memory_misses,
        ),
        ("lane_sessions_opened", "Sessions opened.", lanes.sessions_opened),
        (
            "lane_sessions_closed",
            "Sessions evicted for other sessions.",
            lanes.sessions_closed,
        ),
        (
            "lane_crashes",
            "Lane processes that crashed during an engine batch.",
            lanes.crashes,
        ),
        (
            "lane_limits_exceeded",
            "Processes of lanes and preparations that exceeded a limit on memory or threads.",
            lanes.over_limit,
        ),
        (
            "lane_held_up",
            "Engine batches and preparations ended because other work waited.",
            lanes.held_up,
        ),
        (
            "lane_quarantines",
            "Stages quarantined after crashing lane processes.",
            lanes.quarantines,
        ),
    ]
}
