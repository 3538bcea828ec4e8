//! Plain numbers of what is so now.

use super::exposition::HostSnapshot;
use frostline_engine::LaneStats;

/// A name, what it is, and how much.
pub(super) type Figure = (&'static str, &'static str, u64);

/// Only of lanes whose device has memory of its own.
pub(super) fn device_gauges(lanes: &LaneStats) -> Option<[Figure; 2]> {
    Some([
        (
            "device_memory_budget_bytes",
            "GPU memory that lanes may hold.",
            lanes.device_budget?,
        ),
        (
            "device_memory_held_bytes",
            "GPU memory reserved for lanes and their runs.",
            lanes.memory_reserved,
        ),
    ])
}

pub(super) fn gauges(snapshot: &HostSnapshot) -> [Figure; 7] {
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
        ("lanes", "Engine lanes.", snapshot.lanes.busy.len() as u64),
        (
            "decode_threads",
            "Threads that decode images.",
            snapshot.decode_threads as u64,
        ),
        ("lane_queue", "Batches waiting for a lane.", lanes.queued as u64),
        (
            "lane_memory_held_bytes",
            "Memory that lanes hold between runs.",
            lanes.memory_held,
        ),
        (
            "lane_memory_reserved_bytes",
            "Memory reserved for lanes and their runs.",
            lanes.memory_reserved,
        ),
    ]
}

pub(super) fn counters(lanes: &LaneStats) -> [Figure; 10] {
    [
        (
            "lane_samples",
            "Samples computed by the lanes.",
            lanes.samples_done,
        ),
        ("lane_runs", "Successful engine runs.", lanes.runs),
        ("lane_rows", "Rows in successful engine runs.", lanes.rows),
        (
            "lane_runs_joined",
            "Runs with rows of several batches.",
            lanes.runs_joined,
        ),
        (
            "lane_out_of_memory",
            "Runs retried with fewer rows after running out of memory.",
            lanes.out_of_memory,
        ),
        (
            "lane_memory_misses",
            "Runs that took more memory than predicted.",
            lanes.memory_misses,
        ),
        ("lane_sessions_opened", "Sessions opened.", lanes.sessions_opened),
        (
            "lane_sessions_closed",
            "Sessions evicted for others.",
            lanes.sessions_closed,
        ),
        (
            "lane_crashes",
            "Lane processes that crashed during a run.",
            lanes.crashes,
        ),
        (
            "lane_quarantines",
            "Stages quarantined after crashing lane processes.",
            lanes.quarantines,
        ),
    ]
}
