//! Effects on other submissions when a lane's process dies.

use super::lane_process::{place, place_in, program};
use super::setup::{Source, batch, in_runs_for, large, one_lane, stage, start, wait_for};
use crate::{ChildLanes, EngineError, Lanes, LanesConfig, LanesPlace, PreparedStages};
use frostline_batching::{Budget, Memory};
use frostline_tensor::{GraphExecutor, OpErrorCode, Tensor};
use futures::future::poll_immediate;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn wholes(value: i64) -> Tensor {
    Tensor::i64([1, 4], vec![value; 4]).unwrap()
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(i32::try_from(process).unwrap()).unwrap()
}

fn wait_until_asked(source: &Source, times: usize) {
    while source.asked.load(Ordering::Relaxed) < times {
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_whose_process_was_killed_is_done_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = LanesPlace::Child(ChildLanes {
        prepared: Some(PreparedStages {
            folder: folder.path().to_owned(),
            most_bytes: 1 << 30,
        }),
        ..program()
    });
    for place in [place(), prepared] {
        let (source, lanes) = start(one_lane(place));
        let before = lanes.stats().processes;
        let running = lanes.submit(&stage("slow"), large());
        wait_until_asked(&source, 1);
        kill_process(pid(before[0]), Signal::KILL).unwrap();
        assert_eq!(running.await, Ok(large()), "the identity, 400 times");
        let stats = lanes.stats();
        assert_eq!((stats.crashes, stats.jobs_done, stats.jobs_failed), (1, 1, 0));
        assert_eq!((stats.quarantines, stats.processes.len()), (0, 1));
        assert_ne!(stats.processes, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_whose_process_is_killed_again_and_again_fails_as_the_hosts() {
    let (_, lanes) = start(one_lane(place()));
    let work = lanes.submit(&stage("endless"), large());
    let killing = async {
        let mut killed = 0;
        loop {
            let stats = lanes.stats();
            if let Some(process) = stats.processes.first().filter(|_| stats.running == 1)
                && *process != killed
            {
                killed = *process;
                kill_process(pid(killed), Signal::KILL).unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    let error = tokio::select! {
        ended = work => ended.unwrap_err(),
        () = killing => unreachable!(),
    };
    assert!(
        error.host_caused && error.message.contains("crashed repeatedly"),
        "{error}"
    );
    assert_eq!(lanes.stats().quarantines, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_of_a_bounded_run_is_taken_for_want_of_memory() {
    let (source, lanes) = start(LanesConfig {
        memory: Memory::new(Budget {
            bytes: 1 << 30,
            ..Budget::default()
        }),
        ..one_lane(place())
    });
    let running = lanes.submit(&stage("slow"), large());
    wait_until_asked(&source, 1);
    kill_process(pid(lanes.stats().processes[0]), Signal::ABORT).unwrap();
    assert_eq!(running.await, Ok(large()));
    let stats = lanes.stats();
    assert_eq!(
        (stats.out_of_memory, stats.quarantines, stats.jobs_failed),
        (1, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_crashes_twice_is_put_away_and_others_go_on() {
    let (_, lanes) = start(one_lane(place()));
    let neighbor = lanes.for_tenant("neighbor");
    for model in ["divided", "folded"] {
        let guilty = lanes.for_tenant(model);
        let crashing = guilty.submit(&stage(model), wholes(i64::MIN));
        let meanwhile = neighbor.submit(&stage("relu"), batch(3, 2.0));
        let error = crashing.await.unwrap_err();
        assert_eq!(error.code, OpErrorCode::RuntimeError);
        let expected = format!(
            "model {model}, `x` to `y`: this model crashed the engine 2 times (the last time: signal: 8"
        );
        assert!(error.message.starts_with(&expected), "{error}");
        assert!(error.message.contains("not run again for 60 minutes"), "{error}");
        assert_eq!(meanwhile.await, Ok(batch(3, 2.0)));
        let again = guilty.submit(&stage(model), wholes(10)).await.unwrap_err();
        assert!(again.message.starts_with(&expected), "{again}");
    }
    assert_eq!(lanes.stats().crashes, 4, "quarantined models do not run");
    let same = neighbor.submit(&stage("divided"), wholes(10)).await;
    assert_eq!(
        same,
        Ok(wholes(-10)),
        "the model works with another tenant's data"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_models_crash_pauses_with_all_of_them() {
    let (_, lanes) = start(one_lane(for_hours()));
    let guilty = lanes.for_tenant("guilty");
    let neighbor = lanes.for_tenant("neighbor");
    let crashing = guilty.submit(&stage("divided"), wholes(i64::MIN));
    crashing.await.unwrap_err();
    for model in ["folded", "relu"] {
        let refused = guilty.submit(&stage(model), wholes(i64::MIN));
        let refused = refused.await.unwrap_err();
        let pauses = refused.message.contains("refuses your batches for 3");
        assert!(refused.host_caused && pauses, "{refused}");
    }
    assert_eq!(lanes.stats().crashes, 2, "other models do not run");
    assert!(neighbor.submit(&stage("relu"), batch(1, 1.0)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_keeps_another_tenant_waiting_is_ended_and_counted() {
    let (_, lanes) = start(LanesConfig {
        hold_up: Duration::from_millis(100),
        ..one_lane(for_hours())
    });
    let rows = 16 << 10;
    let slow = in_runs_for("slow", &lanes, rows);
    let neighbor = lanes.for_tenant("neighbor");
    // At least half a minute of work.
    let endless = Tensor::f32([rows, 256], vec![1.0; rows * 256]).unwrap();
    // The second one counts like a crash, even if it stopped in time.
    for _ in 0..2 {
        let running = slow.submit(&stage("endless"), endless.clone());
        wait_for(&lanes, |stats| stats.running == 1);
        let waited = neighbor.submit(&stage("relu"), batch(1, 1.0)).await;
        assert_eq!(waited, Ok(batch(1, 1.0)));
        let ended = running.await.unwrap_err();
        assert_eq!((ended.code, ended.host_caused), (OpErrorCode::Timeout, true));
        assert!(ended.message.contains("another tenant was waiting"), "{ended}");
    }
    let refused = slow.submit(&stage("relu"), batch(1, 1.0)).await.unwrap_err();
    assert!(refused.message.contains("refuses your batches"), "{refused}");
}

/// Lanes with quarantines and pauses that are longer than a test on any machine.
fn for_hours() -> LanesPlace {
    LanesPlace::Child(ChildLanes {
        quarantine: Duration::from_secs(3600 * 3600),
        ..program()
    })
}

mod needs_proc {
    use super::*;

    /// Runs a network in lanes that `process` serves until it is quarantined.
    async fn assert_ended_and_blamed(process: &str, how: &str) {
        let (_, lanes) = start(LanesConfig {
            memory: Memory::new(Budget {
                bytes: 512 << 20,
                ..Budget::default()
            }),
            ..one_lane(place_in(process))
        });
        let guilty = lanes.for_tenant("guilty");
        // The process exceeds its limits during a batch or afterwards.
        let refused = loop {
            let ended = guilty.submit(&stage("wide"), batch(1, 1.0)).await;
            if let Some(refused) = ended
                .err()
                .filter(|error| error.message.contains("not run again"))
            {
                break refused;
            }
        };
        assert!(refused.message.contains(how), "{refused}");
        // A batch that was queued when the idle process was blamed still runs.
        assert!(lanes.stats().over_limit >= 2);
        let neighbor = lanes.for_tenant("neighbor").submit(&stage("relu"), batch(1, 1.0));
        assert_eq!(neighbor.await, Ok(batch(1, 1.0)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lane_that_exceeds_its_reservation_is_ended_and_its_network_blamed() {
        assert_ended_and_blamed("serves_a_lane_that_uses_memory", "the process used").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lane_that_starts_many_threads_is_ended_and_its_network_blamed() {
        assert_ended_and_blamed("serves_a_lane_that_starts_threads", "the process had").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_on_address_space_holds() {
    let (_, lanes) = start(one_lane(LanesPlace::Child(ChildLanes {
        address_space: Some(1 << 30),
        ..program()
    })));
    let error = lanes.submit(&stage("hungry"), batch(1, 1.0)).await.unwrap_err();
    assert_eq!(error.code, OpErrorCode::RuntimeError);
    assert!(lanes.submit(&stage("relu"), batch(1, 1.0)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_lanes_leave_no_process() {
    let (_, lanes) = start(one_lane(place()));
    let processes = lanes.stats().processes;
    assert_eq!(processes.len(), 1);
    drop(lanes);
    assert!(rustix::process::test_kill_process(pid(processes[0])).is_err());
}

#[test]
fn a_program_that_serves_no_lane_is_named() {
    for program in ["true", "no-such-program"] {
        let place = LanesPlace::Child(ChildLanes::new(program, ["lanes"]));
        let refused = Lanes::start(one_lane(place), Arc::new(Source::default()));
        let Err(error @ EngineError::Process { .. }) = refused else {
            panic!("lanes of `{program}` started");
        };
        assert!(error.to_string().contains(&format!("`{program}`")), "{error}");
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_process_that_does_not_end_a_run_is_killed() {
        let (_, lanes) = start(LanesConfig {
            // Enough for a new process to execute a batch.
            run_deadline: Duration::from_secs(8),
            open_deadline: Duration::from_secs(8),
            ..one_lane(LanesPlace::Child(ChildLanes {
                // Enough for processes that still answer, including the first answer of a new process.
                grace: Duration::from_secs(2),
                ..program()
            }))
        });
        assert!(lanes.submit(&stage("relu"), batch(1, 1.0)).await.is_ok());
        // A stopped process cannot end an execution.
        let stop = || {
            let process = pid(lanes.stats().processes[0]);
            kill_process(process, Signal::STOP).unwrap();
            // Threads continue until one of them has received the signal.
            let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(process), stopped).unwrap();
        };
        stop();
        let error = lanes.submit(&stage("relu"), batch(1, 1.0)).await.unwrap_err();
        assert_eq!(error.code, OpErrorCode::Timeout);
        assert!(lanes.submit(&stage("relu"), batch(1, 1.0)).await.is_ok());
        assert_eq!(lanes.stats().crashes, 1);
        stop();
        let mut dropped = lanes.submit(&stage("relu"), batch(1, 1.0));
        // A lane that was about to rest has already replaced the process, and the batch succeeds.
        while lanes.stats().running == 0 && poll_immediate(&mut dropped).await.is_none() {
            tokio::task::yield_now().await;
        }
        drop(dropped);
        let next = lanes.submit(&stage("relu"), batch(1, 1.0)).await;
        // If the batch was cancelled before the process received it, the process is still stopped during the
        // next batch.
        let heard = next.is_ok();
        assert!(
            heard
                || next
                    .as_ref()
                    .is_err_and(|error| error.code == OpErrorCode::Timeout),
            "{next:?}"
        );
        let crashes = if heard { 1 } else { 2 };
        // The caller receives a timeout. The process is lost after the grace, and the model is then
        // quarantined.
        while lanes.stats().crashes < crashes {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            lanes.stats().crashes,
            crashes,
            "a cancelled submission does not count against the model"
        );
    }
}
