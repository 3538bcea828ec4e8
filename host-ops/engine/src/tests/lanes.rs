// The gate simulates a slow network. Tests hold its lock while they wait for other events.
#![allow(clippy::await_holding_lock)]
use super::lane_process::{self, program};
use super::networks::relu;
use super::session::ABSENT;
use super::setup::{Source, batch, in_runs_of, large, one_lane, stage, start, wait_for};
use crate::{ChildLanes, Device, Isolation, Lanes, LanesConfig, LanesPlace};
use frostline_batching::{Budget, Memory};
use frostline_tensor::{Data, GraphExecutor, Normalization, OpError, OpErrorCode, PixelSpec, Stage, Tensor};
use futures::future::{join_all, poll_immediate};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Declares tests that run with sessions in this process and in child processes.
macro_rules! in_both_places {
    ($($name:ident)*) => {
        mod in_process {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::LanesPlace::InProcess).await
            })*
        }
        mod in_child {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::lane_process::place()).await
            })*
        }
    };
}

in_both_places! {
    many_submissions_at_once_each_get_their_own_rows
    what_a_tenant_left_in_a_lane_is_gone_before_another_runs
    a_batch_without_elements_is_refused
    pixels_are_normalized_where_the_network_runs
    errors_name_the_stage_and_carry_the_engines_text
    a_panic_costs_one_run_and_the_lane_goes_on
    dropping_a_future_removes_queued_work
    dropping_a_future_ends_running_work
    what_takes_too_long_is_ended
    a_session_that_takes_too_long_to_open_is_given_up
    what_waits_too_long_is_given_up
    a_full_queue_refuses
    a_lane_keeps_the_sessions_used_last
    shutdown_finishes_what_there_is
    shutdown_without_grace_ends_everything
    lanes_on_an_absent_gpu_do_not_start
}

async fn many_submissions_at_once_each_get_their_own_rows(place: LanesPlace) {
    let (_, lanes) = start(LanesConfig {
        lanes: 2,
        ..one_lane(place)
    });
    let lanes = Arc::new(lanes);
    let tasks = (0_u8..100).map(|index| {
        let executor = lanes.for_tenant(&format!("tenant-{}", index % 3));
        tokio::spawn(async move {
            let rows = usize::from(index % 7) + 1;
            let result = executor
                .submit(&stage("relu"), batch(rows, f32::from(index)))
                .await;
            assert_eq!(result, Ok(batch(rows, f32::from(index))));
            rows as u64
        })
    });
    let rows: u64 = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
    let stats = lanes.stats();
    assert_eq!(
        (stats.jobs_done, stats.jobs_failed, stats.samples_done),
        (100, 0, rows)
    );
    assert_eq!(
        (stats.queued, stats.queued_bytes, stats.running, stats.busy.len()),
        (0, 0, 0, 2)
    );
    assert!(stats.busy.iter().sum::<Duration>() > Duration::ZERO);
}

async fn what_a_tenant_left_in_a_lane_is_gone_before_another_runs(place: LanesPlace) {
    let (_, lanes) = start(one_lane(place));
    let secret = batch(1000, 4711.0);
    let run = |tenant, model| lanes.for_tenant(tenant).submit(&stage(model), secret.clone());
    for _ in 0..3 {
        assert!(run("owner", "matrices").await.is_ok());
        // The product over an axis of size 0, which the library leaves unwritten.
        let seen = run("thief", "unwritten").await.unwrap();
        let values = seen.as_f32().unwrap();
        assert!(
            values.iter().all(|value| *value != 4711.0),
            "{} values",
            values.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_isolate_tenants_run_each_in_a_process_of_its_own() {
    let budget = Budget {
        bytes: 2 << 30,
        ..Budget::default()
    };
    for memory in [Memory::unbounded(), Memory::new(budget)] {
        let (_, lanes) = start(LanesConfig {
            memory,
            ..one_lane(LanesPlace::Child(ChildLanes {
                isolation: Isolation::Tenant,
                ..program()
            }))
        });
        let mut tenant = "first";
        let mut processes = lanes.stats().processes;
        // All batches use the same model, so the scheduler assumes that the session exists.
        for next in ["first", "first", "second", "second", "first", "second"] {
            let made = lanes.for_tenant(next).submit(&stage("relu"), batch(3, 2.0)).await;
            assert_eq!(made, Ok(batch(3, 2.0)));
            let after = lanes.stats().processes;
            assert_eq!(after == processes, next == tenant, "{tenant}, {next}");
            (tenant, processes) = (next, after);
        }
        let stats = lanes.stats();
        assert_eq!((stats.crashes, stats.jobs_failed, stats.out_of_memory), (0, 0, 0));
    }
}

async fn a_batch_without_elements_is_refused(place: LanesPlace) {
    let (source, lanes) = start(one_lane(place));
    let no_columns = Tensor::f32([3, 0], Vec::new()).unwrap();
    for nothing in [batch(0, 1.0), no_columns] {
        let error = lanes.submit(&stage("relu"), nothing).await.unwrap_err();
        assert_eq!(error.code, OpErrorCode::InvalidArgument);
        assert!(error.message.contains("axis of size 0"), "{error}");
    }
    assert_eq!(source.asked.load(Ordering::Relaxed), 0);
}

async fn pixels_are_normalized_where_the_network_runs(place: LanesPlace) {
    let (source, lanes) = start(one_lane(place));
    let bytes = Tensor::new([2, 3, 1, 3], Data::U8((100..118).collect())).unwrap();
    let normalization = Normalization::from_spec(&PixelSpec::imagenet(1, 3));
    let floats = normalization.apply(&bytes).unwrap();
    let of_pixels = Stage {
        pixels: Some(normalization),
        ..stage("pixels")
    };
    for _ in 0..2 {
        assert_eq!(lanes.submit(&of_pixels, bytes.clone()).await, Ok(floats.clone()));
        assert_eq!(
            lanes.submit(&stage("pixels"), floats.clone()).await,
            Ok(floats.clone())
        );
    }
    assert_eq!(
        source.asked.load(Ordering::Relaxed),
        1,
        "both use the same session"
    );
    let wrong = Tensor::new([2, 9], Data::U8(vec![0; 18])).unwrap();
    for batch in [wrong, floats] {
        let error = lanes.submit(&of_pixels, batch).await.unwrap_err();
        assert_eq!(error.code, OpErrorCode::InvalidArgument, "{error}");
    }
    let other = lanes.submit(&stage("pixels"), bytes).await.unwrap_err();
    assert_eq!(other.code, OpErrorCode::InvalidArgument, "{other}");
}

async fn errors_name_the_stage_and_carry_the_engines_text(place: LanesPlace) {
    let (_, lanes) = start(one_lane(place));
    let wrong = Tensor::f32([1, 5], vec![0.0; 5]).unwrap();
    let error = lanes.submit(&stage("relu"), wrong).await.unwrap_err();
    assert_eq!(error.code, OpErrorCode::InvalidArgument);
    assert_eq!(
        error.message,
        "model relu, `x` to `y`: input `x` takes f32[?, 4], not f32[1, 5]"
    );
    let error = lanes.submit(&stage("broken"), batch(1, 0.0)).await.unwrap_err();
    assert_eq!(error.code, OpErrorCode::InvalidEncoding);
    let error = lanes.submit(&stage("missing"), batch(1, 0.0)).await.unwrap_err();
    assert_eq!(error, OpError::not_found("unknown model"));
    let other = Stage {
        to: "z".to_owned(),
        ..stage("relu")
    };
    let error = lanes.submit(&other, batch(1, 0.0)).await.unwrap_err();
    assert_eq!(error.code, OpErrorCode::NotFound);
    assert_eq!(lanes.stats().jobs_failed, 4);
}

async fn a_panic_costs_one_run_and_the_lane_goes_on(place: LanesPlace) {
    let (source, lanes) = start(one_lane(place));
    assert!(lanes.submit(&stage("relu"), batch(1, 1.0)).await.is_ok());
    let error = lanes.submit(&stage("panics"), batch(1, 1.0)).await.unwrap_err();
    assert_eq!(error.code, OpErrorCode::RuntimeError);
    assert!(error.message.contains("no good"), "{error}");
    assert!(lanes.submit(&stage("relu"), batch(1, 1.0)).await.is_ok());
    assert_eq!(
        source.asked.load(Ordering::Relaxed),
        3,
        "the lane restarted without sessions"
    );
}

async fn dropping_a_future_removes_queued_work(place: LanesPlace) {
    let (source, lanes) = start(one_lane(place));
    let gate = source.gate.lock().unwrap();
    let first = lanes.submit(&stage("gated"), batch(1, 1.0));
    wait_for(&lanes, |stats| stats.running == 1);
    let second = lanes.submit(&stage("relu"), batch(1, 1.0));
    assert_eq!(lanes.stats().queued, 1, "queued before the first poll");
    drop(second);
    assert_eq!((lanes.stats().queued, lanes.stats().queued_bytes), (0, 0));
    drop(gate);
    assert!(first.await.is_ok());
    assert_eq!(
        source.asked.load(Ordering::Relaxed),
        1,
        "the second was never run"
    );
}

async fn dropping_a_future_ends_running_work(place: LanesPlace) {
    let (_, lanes) = start(one_lane(place));
    let mut running = lanes.submit(&stage("endless"), large());
    wait_for(&lanes, |stats| stats.running == 1);
    assert!(poll_immediate(&mut running).await.is_none());
    drop(running);
    assert!(lanes.submit(&stage("relu"), batch(2, 3.0)).await.is_ok());
    let stats = lanes.stats();
    assert_eq!(
        (stats.jobs_done, stats.jobs_failed),
        (1, 1),
        "ended before completion"
    );
}

async fn what_takes_too_long_is_ended(place: LanesPlace) {
    let (_, lanes) = start(LanesConfig {
        run_deadline: Duration::from_millis(20),
        ..one_lane(place)
    });
    let error = in_runs_of(&lanes, 256)
        .submit(&stage("endless"), large())
        .await
        .unwrap_err();
    assert_eq!(error.code, OpErrorCode::Timeout);
    assert_eq!(
        error.message,
        "model endless, `x` to `y`: the batch timed out after 20ms; send a smaller batch"
    );
    let stats = wait_for(&lanes, |stats| stats.running == 0);
    assert_eq!((stats.jobs_done, stats.jobs_failed), (0, 1));
}

async fn a_session_that_takes_too_long_to_open_is_given_up(place: LanesPlace) {
    let (_, lanes) = start(LanesConfig {
        open_deadline: Duration::from_millis(50),
        ..one_lane(place)
    });
    let error = lanes.submit(&stage("deep"), batch(1, 1.0)).await.unwrap_err();
    assert_eq!(error.code, OpErrorCode::Timeout);
    let expected = "model deep, `x` to `y`: opening a session timed out after 50ms";
    assert!(error.message.starts_with(expected), "{error}");
    let stats = wait_for(&lanes, |stats| stats.running == 0);
    assert_eq!((stats.jobs_done, stats.jobs_failed), (0, 1));
    // The lane continues. Even on slow machines, at least one small network opens in time.
    for name in 0.. {
        match lanes.submit(&stage(&format!("relu-{name}")), batch(2, 3.0)).await {
            Ok(rows) => return assert_eq!(rows, batch(2, 3.0)),
            Err(error) => assert_eq!(error.code, OpErrorCode::Timeout, "{error}"),
        }
    }
}

async fn what_waits_too_long_is_given_up(place: LanesPlace) {
    let (source, lanes) = start(LanesConfig {
        queue_deadline: Duration::from_millis(20),
        ..one_lane(place)
    });
    let gate = source.gate.lock().unwrap();
    let running = lanes.submit(&stage("gated"), batch(1, 1.0));
    wait_for(&lanes, |stats| stats.running == 1);
    let error = lanes.submit(&stage("relu"), batch(1, 1.0)).await.unwrap_err();
    assert_eq!(error.code, OpErrorCode::Timeout);
    assert!(
        error.message.contains("`x` to `y`: all lanes were busy for 20ms"),
        "{error}"
    );
    drop(gate);
    assert!(running.await.is_ok());
}

async fn a_full_queue_refuses(place: LanesPlace) {
    let bytes = batch(4, 0.0).byte_len();
    let (source, lanes) = start(LanesConfig {
        queue_jobs: 3,
        queue_bytes: bytes,
        ..one_lane(place)
    });
    let gate = source.gate.lock().unwrap();
    let running = lanes.submit(&stage("gated"), batch(1, 1.0));
    wait_for(&lanes, |stats| stats.running == 1);
    let queued = lanes.submit(&stage("relu"), batch(1, 1.0));
    let too_large = lanes.submit(&stage("relu"), batch(4, 1.0)).await.unwrap_err();
    assert_eq!(too_large.code, OpErrorCode::TooLarge);
    let last = lanes.submit(&stage("relu"), batch(1, 1.0));
    let too_many = lanes.submit(&stage("relu"), batch(1, 1.0)).await.unwrap_err();
    assert_eq!(too_many.code, OpErrorCode::TooLarge);
    drop(gate);
    for future in [running, queued, last] {
        assert!(future.await.is_ok());
    }
}

async fn a_lane_keeps_the_sessions_used_last(place: LanesPlace) {
    for (sessions_per_lane, expected) in [(1, 4), (2, 3), (3, 3)] {
        let (source, lanes) = start(LanesConfig {
            sessions_per_lane,
            ..one_lane(place.clone())
        });
        for model in ["a", "b", "b", "c", "b"] {
            assert!(lanes.submit(&stage(model), batch(1, 1.0)).await.is_ok());
        }
        assert_eq!(
            source.asked.load(Ordering::Relaxed),
            expected,
            "with room for {sessions_per_lane}"
        );
    }
    let one_model = relu(4).len();
    let (source, lanes) = start(LanesConfig {
        session_bytes_per_lane: one_model,
        ..one_lane(place)
    });
    for model in ["a", "b", "a"] {
        assert!(lanes.submit(&stage(model), batch(1, 1.0)).await.is_ok());
    }
    assert_eq!(
        source.asked.load(Ordering::Relaxed),
        3,
        "the limit allows a single model"
    );
}

async fn shutdown_finishes_what_there_is(place: LanesPlace) {
    let (source, lanes) = start(one_lane(place));
    let gate = source.gate.lock().unwrap();
    let first = lanes.submit(&stage("gated"), batch(1, 1.0));
    let second = lanes.submit(&stage("relu"), batch(2, 2.0));
    wait_for(&lanes, |stats| stats.running == 1);
    drop(gate);
    lanes.shutdown(Duration::from_secs(60));
    assert_eq!(first.await, Ok(batch(1, 1.0)));
    assert_eq!(second.await, Ok(batch(2, 2.0)));
    let refused = lanes.submit(&stage("relu"), batch(1, 1.0)).await.unwrap_err();
    assert!(refused.message.contains("shutting down"), "{refused}");
}

async fn shutdown_without_grace_ends_everything(place: LanesPlace) {
    let (_, lanes) = start(one_lane(place));
    let running = lanes.submit(&stage("endless"), large());
    wait_for(&lanes, |stats| stats.running == 1);
    let queued = lanes.submit(&stage("relu"), batch(1, 1.0));
    drop(lanes);
    for future in [running, queued] {
        let error = future.await.unwrap_err();
        assert!(error.message.contains("shutting down"), "{error}");
    }
}

async fn lanes_on_an_absent_gpu_do_not_start(place: LanesPlace) {
    let config = LanesConfig {
        device: ABSENT,
        ..one_lane(place)
    };
    let error = Lanes::start(config, Arc::new(Source::default())).err().unwrap();
    assert!(error.to_string().contains("device cuda:4095"), "{error}");
}

mod needs_gpu {
    use super::*;
    use frostline_batching::{Budget, Memory};
    use frostline_tensor::{ExecutionTerms, Precision, Terms};

    /// Runs lanes in this process and in a child process on a GPU, one after another.
    #[tokio::test]
    #[ignore = "requires a GPU, run by cargo xtask test"]
    async fn lanes_run_on_a_gpu() {
        for place in [LanesPlace::InProcess, lane_process::place()] {
            let config = LanesConfig {
                device: Device::Cuda(0),
                ..one_lane(place)
            };
            let (_, lanes) = start(config);
            assert_eq!(
                lanes.submit(&stage("relu"), batch(2, 1.0)).await,
                Ok(batch(2, 1.0))
            );
        }
    }

    #[tokio::test]
    #[ignore = "requires a GPU, run by cargo xtask test"]
    async fn gpu_memory_is_measured_and_each_precision_has_a_session() {
        let device = Device::Cuda(0);
        let free = crate::free_device_memory(device).unwrap();
        let config = LanesConfig {
            device,
            ..one_lane(lane_process::place())
        };
        let config = config.within(Memory::new(Budget {
            bytes: free / 2,
            ..Budget::default()
        }));
        let (_, lanes) = start(config);
        let less = ExecutionTerms {
            terms: Terms {
                precision: Precision::Tf32,
                ..Terms::default()
            },
            ..ExecutionTerms::default()
        };
        for lanes in [lanes.for_tenant(""), lanes.for_tenant("").on_terms(1, less)] {
            let rows = lanes.submit(&stage("relu"), batch(2, 1.0)).await;
            assert_eq!(rows, Ok(batch(2, 1.0)));
        }
        let stats = lanes.stats();
        assert_eq!((stats.sessions_opened, stats.crashes), (2, 0));
        match stats.memory_held {
            0 => eprintln!("skipped: the driver does not report memory per process here"),
            held => assert!(held < free / 2, "{stats:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_held_against_what_the_model_makes() {
    for place in [LanesPlace::InProcess, lane_process::place()] {
        let (_, lanes) = start(one_lane(place));
        let error = lanes
            .submit(&stage("misshapen"), batch(2, 1.0))
            .await
            .unwrap_err();
        assert!(
            error
                .message
                .contains("the output rows are f32[4], but the model's are f32[5]"),
            "{error}"
        );
        assert!(lanes.submit(&stage("relu"), batch(2, 1.0)).await.is_ok());
    }
}
