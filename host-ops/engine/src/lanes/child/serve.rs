//! Main loop of a lane's process.

use super::super::LanesConfig;
use super::super::batch::{Opened, Output, RunError};
use super::super::execute::Sessions;
use super::super::run::describe;
use super::super::source::StageModel;
use super::super::threads::text_of;
use super::channel::{Channel, MESSAGE_BYTES};
use super::entry::{ConfinedLane, out_of_turn};
use super::memory::{self, Bound, Floor};
use super::message::{LaneAnswer, LaneRequest, MemoryReport, RunRequest, Start};
use super::meter::RunMeter;
use super::window::{KEPT_BYTES, TENSOR_BYTES, Window};
use crate::binding::StageRun;
use crate::gauge::{Driver, Gauge};
use crate::prepared::WEIGHTS;
use crate::tensor_spec::TensorSpec;
use crate::{EngineError, Interrupt, InterruptCause, Session};
use frostline_tensor::{OpError, OpErrorCode, Stage, Tensor};
use parking_lot::Mutex;
use rustix::fs::fstat;
use std::cell::Cell;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Maximum number of characters in an error text. JSON needs up to six bytes per character.
const TEXT_CHARACTERS: usize = MESSAGE_BYTES / 8;

impl ConfinedLane {
    /// Serves the lane until the process that started this one ends or closes standard input. Errors of
    /// single batches are reported to the other end.
    ///
    /// # Errors
    /// Returns [`EngineError::Lane`] if the other end sends invalid messages.
    pub fn serve(self) -> std::result::Result<(), EngineError> {
        self.serve_on(Arc::new(Driver))
    }

    /// [`ConfinedLane::serve`] with `gauge` for the device's memory.
    pub(crate) fn serve_on(self, gauge: Arc<dyn Gauge>) -> std::result::Result<(), EngineError> {
        match serve(self, gauge) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
            served => served.map_err(|error| EngineError::Lane { reason: error.into() }),
        }
    }
}

/// Receives requests. Another thread owns the sessions, so that this one can receive interrupts.
fn serve(lane: ConfinedLane, gauge: Arc<dyn Gauge>) -> Result<()> {
    let ConfinedLane {
        mut requests,
        answers,
        window,
        start,
    } = lane;
    let (works, incoming) = channel::<(LaneRequest, Interrupt)>();
    let (networks, given) = channel();
    let answers = Arc::new(Mutex::new(answers));
    let source = Remote {
        answers: Arc::clone(&answers),
        window,
        folder: start.folder.clone(),
        given,
    };
    let thread = std::thread::Builder::new().name("lane".to_owned());
    #[expect(clippy::disallowed_methods, reason = "runs batches in the process of a lane")]
    thread.spawn(move || {
        let mut worker = Worker {
            sessions: sessions(&start),
            gauge: Some(gauge).filter(|_| start.gauged),
            start,
            source,
            spare: None,
            floor: Floor::default(),
        };
        while let Ok((request, interrupt)) = incoming.recv() {
            let answer = match request {
                LaneRequest::Run(run) => worker.work(&run, &interrupt),
                LaneRequest::Rest => worker.rest(),
                LaneRequest::Close { stage } => worker.close(&stage),
                LaneRequest::Prepare { bytes, max_bytes } => worker.prepare(bytes, max_bytes, &interrupt),
                // The other thread handles the other requests.
                _ => return,
            };
            if let Err(error) = answers.lock().send(&answer) {
                tracing::debug!(%error, "the lane went away during a run");
            }
        }
    })?;
    let mut current = Interrupt::new();
    loop {
        match requests.receive()? {
            LaneRequest::End => current.trigger(InterruptCause::Cancelled),
            LaneRequest::Start(_) => return Err(out_of_turn()),
            network @ (LaneRequest::Network { .. } | LaneRequest::Prepared | LaneRequest::NoNetwork) => {
                networks.send(network).map_err(|_| out_of_turn())?;
            }
            work => {
                current = Interrupt::new();
                let sent = works.send((work, current.clone()));
                sent.map_err(|_| out_of_turn())?;
            }
        }
    }
}

pub(super) fn sessions(start: &Start) -> Sessions {
    let config = LanesConfig {
        threads_per_lane: start.threads,
        sessions_per_lane: start.sessions,
        session_bytes_per_lane: start.session_bytes,
        arena_bytes: start.arena_bytes,
        cuda: start.cuda,
        ..LanesConfig::for_device(start.device)
    };
    Sessions::new(&config, false)
}

struct Worker {
    start: Start,
    source: Remote,
    sessions: Sessions,
    /// Memory of the last batch for reuse.
    spare: Option<Tensor>,
    floor: Floor,
    /// Measures the memory that bounds the lanes, if it is not the memory of the process.
    gauge: Option<Arc<dyn Gauge>>,
}

impl Worker {
    fn rest(&mut self) -> LaneAnswer {
        self.spare = None;
        self.sessions.rest();
        memory::give_back();
        self.holds()
    }

    fn close(&mut self, stage: &Stage) -> LaneAnswer {
        self.sessions.close(stage);
        self.floor.forget();
        memory::give_back();
        self.holds()
    }

    fn holds(&self) -> LaneAnswer {
        let own = memory::usage().map(|usage| usage.anonymous);
        match &self.gauge {
            None => LaneAnswer::Holds {
                bytes: own,
                host: None,
            },
            Some(gauge) => LaneAnswer::Holds {
                bytes: gauge.used(),
                host: own,
            },
        }
    }

    /// Prepares the network of `bytes` bytes in the window, with a total memory of up to `max_bytes` bytes.
    fn prepare(&self, bytes: usize, max_bytes: u64, interrupt: &Interrupt) -> LaneAnswer {
        let held = memory::usage().map_or(0, |usage| usage.anonymous);
        let _bound = memory::bound(Some(max_bytes.saturating_sub(held)));
        let network = self.source.window.read(bytes);
        let prepared = network.map_err(|error| error.to_string()).and_then(|network| {
            let options = &self.sessions.options;
            let folder = self.start.folder.as_deref();
            let folder = folder.ok_or("the process has no folder to prepare it in")?;
            let prepared = Session::prepare(&network, folder, options, interrupt);
            prepared.map_err(|error| error.to_string())
        });
        match prepared {
            Ok(()) => LaneAnswer::Prepared,
            Err(reason) => LaneAnswer::Failed {
                error: shortened(OpError::runtime(reason)),
                memory: MemoryReport::default(),
            },
        }
    }

    fn work(&mut self, asked: &RunRequest, interrupt: &Interrupt) -> LaneAnswer {
        let mut meter = None;
        // The batch is also in the window.
        let in_window = asked.batch.bytes() as u64;
        let reservation = asked.reservation.map(|bytes| bytes.saturating_sub(in_window));
        let bound = memory::bound(reservation);
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.execute(asked, interrupt, bound.as_ref(), &mut meter)
        }))
        .unwrap_or_else(|panic| {
            self.sessions = sessions(&self.start);
            let reason = text_of(&*panic);
            let text = format!("the engine failed on this batch: {reason}");
            Err(OpError::runtime(text).into())
        });
        drop(bound);
        if self.gauge.is_some() && matches!(done, Err(RunError::OutOfMemory(_))) {
            // The arena may be fragmented so that other batches cannot use it.
            self.sessions.close(&asked.stage);
        }
        let memory = meter.map_or_else(MemoryReport::default, RunMeter::end);
        match done {
            Ok(output) => LaneAnswer::Done { output, memory },
            Err(RunError::Failed(error)) => LaneAnswer::Failed {
                error: shortened(error),
                memory,
            },
            Err(RunError::OutOfMemory(error)) => LaneAnswer::OutOfMemory {
                error: shortened(error),
                memory,
            },
        }
    }

    /// Executes the request and leaves the output in the window.
    fn execute(
        &mut self,
        asked: &RunRequest,
        interrupt: &Interrupt,
        bound: Option<&Bound>,
        meter: &mut Option<RunMeter>,
    ) -> std::result::Result<TensorSpec, RunError> {
        let stage = &asked.stage;
        let Self {
            source,
            sessions,
            floor,
            gauge,
            ..
        } = self;
        let batch = source.window.read_tensor(&asked.batch, self.spare.take());
        let batch = batch.map_err(|error| failed(stage, "read the batch", &error))?;
        let meter = meter.insert(RunMeter::new(gauge.as_ref(), batch.byte_len()));
        let is_mapped = Cell::new(false);
        let run = StageRun {
            stage,
            batch: &batch,
            interrupt,
        };
        let in_window = batch.byte_len();
        let output = sessions.execute(
            run,
            || {
                let model = source.find(stage)?;
                is_mapped.set(matches!(model, StageModel::Prepared(_)));
                Ok(model)
            },
            |fresh, kept| {
                let opened = fresh.then(|| Opened {
                    time: Duration::ZERO,
                    taken: meter.opening(is_mapped.get()),
                    prepared: is_mapped.get(),
                });
                if let Some((bound, now)) = bound.zip(meter.opened(floor, kept)) {
                    bound.renew(&now);
                }
                // If this fails, the lane has ended and the result has no reader.
                drop(source.answers.lock().send(&LaneAnswer::Opened { opened }));
            },
            |output| hand_on(&source.window, bound, in_window, stage, output),
        );
        self.spare = Some(batch).filter(|batch| batch.byte_len() <= KEPT_BYTES);
        output
    }
}

fn shortened(error: OpError) -> OpError {
    OpError {
        message: error.message.chars().take(TEXT_CHARACTERS).collect(),
        ..error
    }
}

/// Copies the output from the engine's memory to the window, of which the reservation covers `in_window` bytes.
///
/// # Errors
/// Returns [`RunError::OutOfMemory`] if the reservation does not cover the output in the window.
fn hand_on(
    window: &Window,
    bound: Option<&Bound>,
    in_window: usize,
    stage: &Stage,
    output: &Output<'_>,
) -> std::result::Result<TensorSpec, RunError> {
    let bytes = output.bytes().unwrap_or_default();
    if bytes.len() > TENSOR_BYTES {
        return Err(OpError::too_large(format!(
            "{}: the output {} has {} bytes, but a lane can return only {TENSOR_BYTES}; send a smaller batch",
            describe(stage),
            output.spec,
            bytes.len()
        ))
        .into());
    }
    let grown = bytes.len().saturating_sub(in_window);
    if bound.is_some_and(|bound| !bound.fits(grown as u64)) {
        return Err(failed(stage, "return the output", &ErrorKind::OutOfMemory.into()));
    }
    let written = window.write([bytes]);
    written.map_err(|error| failed(stage, "return the output", &error))?;
    Ok(output.spec.clone())
}

fn failed(stage: &Stage, doing: &str, error: &Error) -> RunError {
    let text = format!("{}: the lane's process cannot {doing}: {error}", describe(stage));
    let told = OpError::from_host(OpErrorCode::RuntimeError, text);
    match error.kind() {
        ErrorKind::OutOfMemory => RunError::OutOfMemory(told),
        _ => RunError::Failed(told),
    }
}

fn unread(stage: &Stage, error: &Error) -> RunError {
    failed(stage, "read the network", error)
}

/// Receives networks from the other end.
struct Remote {
    answers: Arc<Mutex<Channel>>,
    window: Window,
    /// The only folder in which files may be opened.
    folder: Option<PathBuf>,
    /// Requests that answer [`LaneAnswer::Wanted`].
    given: Receiver<LaneRequest>,
}

impl Remote {
    fn find(&self, stage: &Stage) -> std::result::Result<StageModel, RunError> {
        match (self.ask(stage)?, &self.folder) {
            (Some(LaneRequest::Network { piece, total }), _) => {
                let network = self.read_pieces(stage, piece, total)?;
                Ok(StageModel::Bytes(network.into()))
            }
            (Some(LaneRequest::Prepared), Some(folder)) => {
                let weights = File::open(folder.join(WEIGHTS));
                let weights = weights.and_then(|file| Ok(fstat(&file)?.st_size.unsigned_abs()));
                memory::widen(weights.unwrap_or(0));
                Ok(StageModel::Prepared(folder.clone()))
            }
            _ => Err(OpError::not_found(format!("{}: no network", describe(stage))).into()),
        }
    }

    /// Requests the network or its next piece.
    fn ask(&self, stage: &Stage) -> std::result::Result<Option<LaneRequest>, RunError> {
        let asked = self.answers.lock().send(&LaneAnswer::Wanted);
        asked.map_err(|error| failed(stage, "ask for the network", &error))?;
        Ok(self.given.recv().ok())
    }

    /// Reads a network of `total` bytes, of which the first piece is in the window.
    fn read_pieces(
        &self,
        stage: &Stage,
        mut piece: usize,
        total: usize,
    ) -> std::result::Result<Vec<u8>, RunError> {
        let mut network = bytemuck::allocation::try_zeroed_vec(total)
            .map_err(|()| unread(stage, &Error::from(ErrorKind::OutOfMemory)))?;
        let mut rest = network.as_mut_slice();
        loop {
            let (target, after) = rest
                .split_at_mut_checked(piece)
                .ok_or_else(|| unread(stage, &out_of_turn()))?;
            self.window
                .read_at(target, 0)
                .map_err(|error| unread(stage, &error))?;
            if after.is_empty() {
                return Ok(network);
            }
            rest = after;
            piece = match self.ask(stage)? {
                Some(LaneRequest::Network { piece, .. }) if piece > 0 => piece,
                _ => return Err(unread(stage, &out_of_turn())),
            };
        }
    }
}
