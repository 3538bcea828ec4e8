//! Lanes with memory budgets, based on the measured usage of their processes.

use super::lane_process::{place, place_on_device, program};
use super::setup::{Source, batch, in_runs_of, one_lane, stage, start, wait_for};
use crate::{ChildLanes, EngineError, Lanes, LanesConfig, LanesPlace, PreparedStages};
use frostline_batching::{Budget, Kind, Memory};
use frostline_tensor::{GraphExecutor, OpErrorCode};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn budget(bytes: u64) -> Memory {
    Memory::new(Budget {
        bytes,
        ..Budget::default()
    })
}

fn within(memory: &Memory) -> LanesConfig {
    LanesConfig {
        memory: memory.clone(),
        ..one_lane(place())
    }
}

fn held(memory: &Memory) -> u64 {
    memory.read(|ledger| ledger.held(Kind::Lane))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greedy_tenant_that_cancels_releases_all_memory() {
    let memory = budget(1024 * MIB);
    let (_, lanes) = start(within(&memory));
    let greedy = lanes.for_tenant("greedy");
    // 32 GiB of rows.
    let asked: Vec<_> = (0..64)
        .map(|_| greedy.submit(&stage("swollen"), batch(16, 1.0)))
        .collect();
    wait_for(&lanes, |stats| stats.running > 0);
    let neighbor = lanes.for_tenant("neighbor").submit(&stage("relu"), batch(2, 1.0));
    drop(asked);
    assert_eq!(neighbor.await, Ok(batch(2, 1.0)));
    let stats = wait_for(&lanes, |stats| {
        stats.queued + stats.running == 0 && stats.memory_reserved == stats.memory_held
    });
    assert_eq!(held(&memory), stats.memory_held);
    assert_eq!((stats.crashes, stats.quarantines), (0, 0));
}

#[test]
fn lanes_that_memory_has_no_room_for_do_not_start() {
    let memory = budget(100 * MIB);
    let refused = Lanes::start(within(&memory), Arc::new(Source::default()));
    let Err(error @ EngineError::Memory { .. }) = refused else {
        panic!("a lane started in 100 MiB");
    };
    assert!(error.to_string().contains("larger memory_budget"), "{error}");
    assert_eq!(held(&memory), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_in_turn_open_one_session_each() {
    let (_, lanes) = start(LanesConfig {
        lanes: 2,
        ..within(&budget(2048 * MIB))
    });
    for _ in 0..3 {
        for model in 0..9 {
            let stage = stage(&format!("stage-{model}"));
            assert!(lanes.submit(&stage, batch(1, 1.0)).await.is_ok());
        }
    }
    let stats = lanes.stats();
    assert_eq!((stats.sessions_opened, stats.sessions_closed), (9, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_go_when_others_lack_memory() {
    let memory = budget(1024 * MIB);
    let (_, lanes) = start(within(&memory));
    assert!(lanes.submit(&stage("swollen"), batch(1, 1.0)).await.is_ok());
    memory.request_release(1024 * MIB);
    let stats = wait_for(&lanes, |stats| stats.sessions_closed == 1);
    assert_eq!(stats.jobs_failed, 0);
    assert!(lanes.submit(&stage("swollen"), batch(1, 1.0)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_of_removed_models_are_closed() {
    let (_, lanes) = start(within(&budget(2048 * MIB)));
    for model in ["kept", "removed"] {
        assert!(lanes.submit(&stage(model), batch(1, 1.0)).await.is_ok());
    }
    wait_for(&lanes, |stats| stats.running == 0);
    lanes.retain_models(|model| model == "kept").unwrap();
    wait_for(&lanes, |stats| stats.sessions_closed == 1);
    for (model, opened) in [("kept", 2), ("removed", 3)] {
        assert!(lanes.submit(&stage(model), batch(1, 1.0)).await.is_ok());
        assert_eq!(lanes.stats().sessions_opened, opened, "{model}");
    }
}

/// Lanes on a device with `bytes` of memory and `host` as the host's ledger.
fn on_device(bytes: u64, host: &Memory) -> (Memory, LanesConfig) {
    let memory = budget(bytes);
    let config = LanesConfig {
        device_memory: Some(memory.clone()),
        memory: host.clone(),
        ..one_lane(place_on_device())
    };
    (memory, config)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_is_prepared_where_there_is_memory_for_that_and_else_runs_from_its_bytes() {
    let memory = budget(1024 * MIB);
    let folder = tempfile::tempdir().unwrap();
    let prepared = PreparedStages {
        folder: folder.path().to_owned(),
        most_bytes: 1 << 30,
    };
    let (_, lanes) = start(LanesConfig {
        place: LanesPlace::Child(ChildLanes {
            prepared: Some(prepared),
            ..program()
        }),
        ..within(&memory)
    });
    let free = memory.read(|ledger| ledger.room(Kind::Lane));
    // Enough for a small batch, but not for the process that prepares the stage.
    let others = memory.try_reserve("", Kind::Request, free - 100 * MIB).unwrap();
    for (others, model, folders) in [(Some(others), "first", 0), (None, "second", 1)] {
        let made = lanes.submit(&stage(model), batch(1, 1.0)).await;
        assert_eq!(made, Ok(batch(1, 1.0)));
        drop(others);
        let entries = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        // Ignores the folders of lanes.
        let visible = |entry: &std::fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
        let prepared = entries.filter(|entry| entry.path().is_dir() && visible(entry));
        assert_eq!(prepared.count(), folders, "{model}");
    }
    let stats = wait_for(&lanes, |stats| stats.running == 0);
    assert_eq!(
        held(&memory),
        stats.memory_held,
        "memory for preparing is released"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_batch_is_padded_and_its_rows_are_its_own() {
    let (_, lanes) = start(one_lane(place()));
    for rows in [1, 4, 6] {
        let submitted = in_runs_of(&lanes, 4).submit(&stage("relu"), batch(rows, 3.0));
        assert_eq!(submitted.await, Ok(batch(rows, 3.0)));
    }
    assert_eq!(lanes.stats().runs, 4);
}

mod needs_proc {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_of_many_times_the_guess_is_tried_again_and_nobody_is_blamed() {
        let memory = budget(1024 * MIB);
        let (_, lanes) = start(within(&memory));
        let stats = lanes.stats();
        assert_eq!(held(&memory), stats.memory_held, "memory of the process");
        let tenant = lanes.for_tenant("a");
        assert_eq!(
            tenant.submit(&stage("swollen"), batch(5, 2.0)).await,
            Ok(batch(5, 2.0))
        );
        let stats = wait_for(&lanes, |stats| stats.running == 0);
        assert!(stats.out_of_memory > 0, "{stats:?}");
        assert_eq!((stats.crashes, stats.jobs_done, stats.jobs_failed), (0, 1, 0));
        assert_eq!(
            stats.memory_reserved, stats.memory_held,
            "memory of batches is released"
        );
        let learned = stats.out_of_memory;
        assert_eq!(
            tenant.submit(&stage("swollen"), batch(5, 2.0)).await,
            Ok(batch(5, 2.0))
        );
        let stats = wait_for(&lanes, |stats| stats.running == 0);
        assert_eq!(
            stats.out_of_memory, learned,
            "later batches reserve what earlier ones used"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_that_grows_faster_than_rows_is_kept_to_the_budget() {
        let memory = budget(768 * MIB);
        let (_, lanes) = start(within(&memory));
        // A single batch would need 1.6 GB.
        let rows = 20_000;
        assert_eq!(
            lanes.submit(&stage("squared"), batch(rows, 2.0)).await,
            Ok(batch(rows, 2.0))
        );
        let stats = wait_for(&lanes, |stats| stats.running == 0);
        assert!(stats.runs > 1, "{stats:?}");
        assert_eq!((stats.crashes, stats.quarantines, stats.jobs_failed), (0, 0, 0));
        assert!(memory.read(|ledger| ledger.held_in_all()) <= 768 * MIB);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_row_that_cannot_fit_is_refused_with_both_numbers() {
        let memory = budget(512 * MIB);
        let (_, lanes) = start(within(&memory));
        let error = lanes.submit(&stage("bloated"), batch(1, 1.0)).await.unwrap_err();
        assert_eq!(error.code, OpErrorCode::TooLarge);
        assert!(
            !error.host_caused && error.message.contains("larger memory_budget"),
            "{error}"
        );
        assert_eq!(
            lanes.submit(&stage("relu"), batch(3, 1.0)).await,
            Ok(batch(3, 1.0))
        );
        assert_eq!(lanes.stats().crashes, 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lanes_on_a_device_go_by_its_memory_and_book_what_they_hold_of_the_hosts() {
        let host = budget(4096 * MIB);
        let (device, config) = on_device(512 * MIB, &host);
        let (_, lanes) = start(config);
        for _ in 0..2 {
            let rows = lanes.submit(&stage("swollen"), batch(3, 2.0)).await;
            assert_eq!(rows, Ok(batch(3, 2.0)));
        }
        // The first batch is not limited. Its measurement shows that the device cannot run another batch of 1
        // GiB.
        assert!(lanes.submit(&stage("bloated"), batch(1, 1.0)).await.is_ok());
        let error = lanes.submit(&stage("bloated"), batch(1, 1.0)).await.unwrap_err();
        assert_eq!(error.code, OpErrorCode::TooLarge, "{error}");
        assert!(
            !error.host_caused && error.message.contains("larger device_memory_budget"),
            "{error}"
        );
        let stats = wait_for(&lanes, |stats| stats.running == 0);
        assert_eq!(stats.device_budget, Some(512 * MIB));
        assert_eq!(
            (stats.memory_reserved, stats.crashes),
            (held(&device), 0),
            "{stats:?}"
        );
        assert!(held(&device) > 0 && held(&host) > 0);
    }
}
