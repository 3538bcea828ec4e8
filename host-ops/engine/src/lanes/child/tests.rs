//! Memory measurements, limits and opened files of lane processes. These tests do not start a host.

use super::super::batch::{Batch, BatchRun, Output, RunEnd, RunError};
use super::super::order::LossCause;
use super::super::source::Networks;
use super::super::{ChildLanes, LanesConfig, LanesPlace, PreparedStages, StageSource};
use super::message::Start;
use super::process::{self, LaneProcess, Lost};
use super::serve;
use crate::tests::lane_process::program;
use crate::tests::networks::{hungry, misaligned, product, relu, slow, wide};
use crate::{CudaOptions, Interrupt};
use bytes::Bytes;
use frostline_batching::{Budget, Memory};
use frostline_tensor::{OpError, Precision, Stage, Tensor};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: u64 = 1 << 20;

/// Columns of the network `large`, which has 96 MiB of weights, more than a lane may exceed its reservation by.
const LARGE: i64 = 6 << 20;

#[derive(Default)]
struct Source {
    asked: AtomicUsize,
    /// Process to stop when a network is requested.
    stopped: Mutex<Option<u32>>,
}

impl StageSource for Source {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.stopped
            .lock()
            .take()
            .into_iter()
            .for_each(|process| signal(process, Signal::STOP));
        Ok(match stage.model.as_str() {
            "wide" => wide().into(),
            "large" => product(LARGE).into(),
            "hungry" => hungry().into(),
            "slow" => slow(4, 1000).into(),
            "misaligned" => misaligned().into(),
            _ => relu(4).into(),
        })
    }
}

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(process, signal).unwrap();
    if signal == Signal::STOP {
        // Threads continue until one of them has received the signal.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(process), stopped).unwrap();
    }
}

/// A process with a source of networks.
struct Rig {
    source: Arc<Source>,
    networks: Networks,
    config: LanesConfig,
    place: ChildLanes,
    process: LaneProcess,
}

impl Rig {
    fn new(folder: Option<&Path>) -> Self {
        Self::start(folder, Memory::unbounded())
    }

    /// A process that is ended if it exceeds its reservation.
    fn with_memory() -> Self {
        Self::start(
            None,
            Memory::new(Budget {
                bytes: 4 << 30,
                ..Budget::default()
            }),
        )
    }

    fn start(folder: Option<&Path>, memory: Memory) -> Self {
        let place = ChildLanes {
            prepared: folder.map(|folder| PreparedStages {
                folder: folder.to_owned(),
                most_bytes: 1 << 30,
            }),
            ..program()
        };
        let config = LanesConfig {
            place: LanesPlace::Child(place.clone()),
            memory,
            ..LanesConfig::default()
        };
        let source = Arc::new(Source::default());
        let networks = Networks::new(&config, Arc::clone(&source) as Arc<dyn StageSource>);
        Self {
            process: LaneProcess::start(&config, &place, &networks.guards).unwrap(),
            networks,
            source,
            config,
            place,
        }
    }

    fn asked(&self) -> usize {
        self.source.asked.load(Ordering::Relaxed)
    }

    fn run(&mut self, model: &str, batch: &Batch<'_>, reservation: Option<u64>) -> RunEnd<Tensor> {
        let stage = stage(model);
        let run = BatchRun {
            stage: &stage,
            batch,
            interrupt: &Interrupt::new(),
            reservation,
        };
        self.networks.prepare(&stage, "", run.interrupt);
        let ended = self
            .process
            .run(&self.networks, &run, &|| {}, |output| output.whole());
        ended.unwrap()
    }

    /// Like [`Rig::rows`], with the same reservation in the supervision of the process.
    fn limited_rows(&mut self, model: &str, count: usize, reservation: u64) -> RunEnd<Tensor> {
        let held = self.process.rest().unwrap().unwrap();
        self.process.limit(Some(held + reservation));
        self.rows(model, count, Some(reservation))
    }

    fn rows(&mut self, model: &str, count: usize, reservation: Option<u64>) -> RunEnd<Tensor> {
        let tensor = tensor(count);
        let batch = Batch::new(vec![(&tensor, 0..count)]).unwrap();
        self.run(model, &batch, reservation)
    }
}

fn stage(model: &str) -> Stage {
    Stage {
        model: model.to_owned(),
        from: "x".to_owned(),
        to: "y".to_owned(),
        pixels: None,
        precision: Precision::Full,
    }
}

fn tensor(rows: usize) -> Tensor {
    Tensor::f32([rows, 4], (0..rows * 4).map(|index| index as f32).collect()).unwrap()
}

#[test]
fn parts_go_in_and_pieces_come_out() {
    let mut rig = Rig::new(None);
    let left = tensor(3);
    let right = tensor(5);
    let parts = vec![(&left, 1..3), (&right, 0..2), (&right, 4..5), (&right, 4..5)];
    let batch = Batch::new(parts).unwrap();
    assert_eq!(batch.rows(), 6);
    let whole = rig.run("relu", &batch, None).outcome.unwrap();
    assert_eq!(whole, *batch.tensor().unwrap());
    let stage = stage("relu");
    let run = BatchRun {
        stage: &stage,
        batch: &batch,
        interrupt: &Interrupt::new(),
        reservation: None,
    };
    let pieces = |output: &Output<'_>| Ok([output.tensor(0..2)?, output.tensor(2..6)?]);
    let ended = rig.process.run(&rig.networks, &run, &|| {}, pieces).unwrap();
    let [first, rest] = ended.outcome.unwrap();
    assert_eq!(first, left.slice_rows(1, 3).unwrap());
    assert_eq!(rest, whole.slice_rows(2, 6).unwrap());
    let beyond = |output: &Output<'_>| output.tensor(4..7);
    let ended = rig.process.run(&rig.networks, &run, &|| {}, beyond).unwrap();
    assert!(ended.outcome.is_err());
    assert!(Batch::new(vec![(&left, 2..4)]).is_err());
    assert!(Batch::new(Vec::new()).is_err());
}

/// Runs `count` rows of `model`. Calls `begun` during the execution and `done` while the output is read.
fn interfered(
    rig: &mut Rig,
    (model, count): (&str, usize),
    begun: impl Fn(),
    done: impl Fn(),
) -> Result<RunEnd<Tensor>, Lost> {
    let stage = stage(model);
    let rows = tensor(count);
    let batch = Batch::new(vec![(&rows, 0..count)]).unwrap();
    let run = BatchRun {
        stage: &stage,
        batch: &batch,
        interrupt: &Interrupt::new(),
        reservation: None,
    };
    rig.networks.prepare(&stage, "", run.interrupt);
    rig.process.run(&rig.networks, &run, &begun, |output| {
        done();
        output.whole()
    })
}

/// Checks that the next process uses the prepared stage and executes the batch.
fn assert_goes_on(rig: &mut Rig, model: &str, asked: usize) {
    rig.process = LaneProcess::start(&rig.config, &rig.place, &rig.networks.guards).unwrap();
    let rows = rig.rows(model, 3, None).outcome.unwrap();
    assert_eq!(rows.rows(), Ok(3));
    assert_eq!(rig.asked(), asked, "the prepared stage is still valid");
}

#[test]
fn a_lane_killed_while_it_opens_what_was_prepared_leaves_it_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(Some(folder.path()));
    let process = rig.process.guard.id();
    // After this signal, the process does not receive anything.
    *rig.source.stopped.lock() = Some(process);
    let lost = std::thread::scope(|scope| {
        let running = scope.spawn(|| interfered(&mut rig, ("wide", 3), || (), || ()).map(drop));
        let is_prepared = || {
            let mut entries = std::fs::read_dir(folder.path()).unwrap();
            entries.any(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().to_string_lossy().into_owned();
                !name.starts_with('.') && entry.path().is_dir()
            })
        };
        while !is_prepared() {
            std::thread::yield_now();
        }
        signal(process, Signal::KILL);
        running.join().unwrap().unwrap_err()
    });
    assert_eq!(rig.process.reap(&lost).by, LossCause::Other, "{lost:?}");
    assert_goes_on(&mut rig, "wide", 1);
}

#[test]
fn a_lane_killed_during_a_run_is_lost_and_the_next_one_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(Some(folder.path()));
    let process = rig.process.guard.id();
    let kill = || signal(process, Signal::KILL);
    // 1,000 layers of 8 MB each, so the execution has barely started.
    let ended = interfered(&mut rig, ("slow", 1 << 18), kill, || {
        panic!("the process was killed before the output")
    });
    let lost = ended.map(drop).unwrap_err();
    assert_eq!(rig.process.reap(&lost).by, LossCause::Other, "{lost:?}");
    assert_goes_on(&mut rig, "slow", 1);
}

#[test]
fn a_lane_killed_while_its_answer_is_taken_has_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(Some(folder.path()));
    let process = rig.process.guard.id();
    let expected = rig.rows("wide", 3, None).outcome.unwrap();
    let kill = || signal(process, Signal::KILL);
    let ended = interfered(&mut rig, ("wide", 3), || (), kill).unwrap();
    assert_eq!(
        ended.outcome.unwrap(),
        expected,
        "the output is in the host's memory"
    );
    let lost = rig.process.rest().unwrap_err();
    assert_eq!(rig.process.reap(&lost).by, LossCause::Other, "{lost:?}");
    assert_goes_on(&mut rig, "wide", 1);
}

#[test]
fn a_stage_that_cannot_be_prepared_runs_from_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(Some(folder.path()));
    // Simulates a full disk.
    let place = ChildLanes {
        prepared: rig.place.prepared.clone(),
        ..ChildLanes::new("false", ["lanes"])
    };
    let config = LanesConfig {
        place: LanesPlace::Child(place),
        ..LanesConfig::default()
    };
    rig.networks = Networks::new(&config, Arc::clone(&rig.source) as Arc<dyn StageSource>);
    for _ in 0..2 {
        let ended = rig.rows("relu", 2, None);
        assert_eq!(ended.outcome.unwrap(), tensor(2));
        rig.process.close(&stage("relu")).unwrap();
    }
    assert_eq!(rig.asked(), 3, "one attempt to prepare and two sessions");
}

mod needs_proc {
    use super::*;

    #[test]
    fn a_process_says_what_a_run_and_a_session_take() {
        let mut rig = Rig::new(None);
        let first = rig.rows("wide", 1, None);
        assert!(
            first.opened.unwrap().taken.unwrap() >= 16 * MIB,
            "{:?}",
            first.opened
        );
        let one = rig.rows("wide", 1, None).memory.unwrap();
        let many = rig.rows("wide", 9, None);
        assert_eq!(many.opened, None, "it was open");
        let one = one.taken.unwrap();
        let many = many.memory.unwrap().taken.unwrap();
        let rows = many - one;
        assert!(
            (64 * MIB..72 * MIB).contains(&rows),
            "8 rows of 4 MiB in the process and in the window, not {rows} bytes"
        );
        let held = rig.process.rest().unwrap().unwrap();
        let left = rig.process.close(&stage("wide")).unwrap().unwrap();
        assert!(
            left + 14 * MIB < held,
            "{left} of {held} bytes remain without the weights"
        );
    }

    #[test]
    fn a_run_beyond_its_reservation_ends_alone() {
        let mut rig = Rig::new(None);
        rig.rows("wide", 1, Some(200 * MIB)).outcome.unwrap();
        let process = rig.process.guard.id();
        for (model, rows) in [("wide", 64), ("wide", 1 << 25), ("hungry", 1)] {
            let ended = rig.rows(model, rows, Some(100 * MIB)).outcome;
            let Err(RunError::OutOfMemory(error)) = ended else {
                panic!("{rows} rows of {model} within 100 MiB: {ended:?}");
            };
            assert!(error.host_caused, "{error}");
            assert_eq!(
                rig.rows("wide", 4, Some(100 * MIB)).outcome.unwrap().rows(),
                Ok(4)
            );
        }
        assert_eq!(rig.process.guard.id(), process);
        assert!(rig.process.guard.is_alive());
    }

    /// The process is not ended for the network in the window while it runs out of memory.
    #[test]
    fn a_large_network_is_handed_over_in_pieces() {
        let mut rig = Rig::with_memory();
        for reservation in [60, 120] {
            let ended = rig.limited_rows("large", 1, reservation * MIB).outcome;
            assert!(matches!(ended, Err(RunError::OutOfMemory(_))), "{ended:?}");
        }
        let ended = rig.limited_rows("large", 1, 600 * MIB);
        let retained = ended.memory.unwrap().held - rig.process.rest().unwrap().unwrap();
        // The output has 24 MiB, in the window and in the process.
        assert!(retained < 80 * MIB, "the window contains {retained} bytes");
        let output = ended.outcome.unwrap();
        let last = LARGE as usize - 1;
        let expected: f32 = (0..4)
            .map(|row| row as f32 * ((row * LARGE as usize + last) % 251) as f32 / 251.0)
            .sum();
        let found = output.as_f32().unwrap()[last];
        assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
        assert!(rig.process.guard.is_alive());
    }

    #[test]
    fn the_output_in_the_window_belongs_to_the_reservation() {
        let mut rig = Rig::with_memory();
        rig.limited_rows("wide", 1, 200 * MIB).outcome.unwrap();
        // 64 rows are 256 MiB, in the process and in the window.
        let ended = rig.limited_rows("wide", 64, 400 * MIB).outcome;
        assert!(matches!(ended, Err(RunError::OutOfMemory(_))), "{ended:?}");
        let ended = rig.limited_rows("wide", 64, 600 * MIB);
        assert_eq!(ended.outcome.unwrap().rows(), Ok(64));
        assert!(ended.memory.unwrap().taken.unwrap() >= 512 * MIB);
        assert!(rig.process.guard.is_alive());
    }

    /// ONNX Runtime 1.31.1 ends with SIGSEGV when it runs the prepared form of this network.
    #[test]
    fn a_stage_whose_prepared_form_crashes_runs_from_its_bytes() {
        let expected = Rig::new(None).rows("misaligned", 2, None).outcome.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut rig = Rig::new(Some(folder.path()));
        let process = rig.process.guard.id();
        for _ in 0..2 {
            assert_eq!(rig.rows("misaligned", 2, None).outcome.unwrap(), expected);
            rig.process.close(&stage("misaligned")).unwrap();
        }
        assert_eq!((rig.process.guard.id(), rig.asked()), (process, 3));
    }

    #[test]
    fn lanes_share_the_weights_of_a_prepared_stage_and_its_outputs_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let mut bare = Rig::new(None);
        let expected = bare.rows("wide", 3, None);
        let mut rig = Rig::new(Some(folder.path()));
        let first = rig.rows("wide", 3, Some(64 * MIB));
        let output = expected.outcome.unwrap();
        assert_eq!(first.outcome.unwrap(), output);
        rig.process = LaneProcess::start(&rig.config, &rig.place, &rig.networks.guards).unwrap();
        let second = rig.rows("wide", 3, Some(64 * MIB));
        assert_eq!(second.outcome.unwrap(), output);
        assert_eq!(rig.asked(), 1, "the second lane opened the prepared stage");
        let bare = expected.memory.unwrap().held;
        let shared = second.memory.unwrap().held;
        assert!(
            shared + 14 * MIB < bare,
            "{shared} bytes held, {bare} with the weights"
        );
    }
}

#[test]
fn options_of_the_device_reach_the_sessions_of_the_process() {
    let config = LanesConfig {
        arena_bytes: Some(1 << 30),
        threads_per_lane: 3,
        cuda: CudaOptions {
            nhwc: Some(false),
            fuse_conv_bias: true,
            graphs: true,
        },
        ..LanesConfig::default()
    };
    let sent = serde_json::to_vec(&process::start(&config, &program(), None, None)).unwrap();
    let start: Start = serde_json::from_slice(&sent).unwrap();
    let sessions = serve::sessions(&start);
    let options = sessions.options;
    assert_eq!(options.cuda, config.cuda);
    assert_eq!(options.arena_bytes, config.arena_bytes);
    assert_eq!(options.threads, config.threads_per_lane);
}
