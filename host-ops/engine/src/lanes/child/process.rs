//! Control of a lane's process by the host.

use super::super::batch::{BatchRun, Opened, Output, RunEnd, RunError, RunMemory};
use super::super::order::{Loss, LossCause};
use super::super::run::{about, describe};
use super::super::source::Networks;
use super::super::{ChildLanes, LanesConfig};
use super::bell::Bell;
use super::channel::Channel;
use super::command::command;
use super::entry::{names, out_of_turn};
use super::guard::{Guard, Guards};
use super::message::{LaneAnswer, LaneRequest, Limits, MemoryReport, RunRequest, Start};
use super::progress::Progress;
use super::window::Window;
use crate::interrupt::Target;
use crate::prepared::{LaneFolder, Loan};
use crate::{Device, EngineError, Interrupt};
use frostline_tensor::{Cause, OpError, OpErrorCode, Stage};
use frostline_walls::Wall;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// Time limit for starting a process, which loads ONNX Runtime, and CUDA's libraries from a cold disk.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Maximum bytes of a network in the window. The process copies each piece before it requests the next one, which
/// keeps large networks from being in memory twice.
const PIECE_BYTES: usize = 16 << 20;

/// Private memory in bytes that a process may map without touching it, such as the stacks of threads.
pub(super) const UNTOUCHED_BYTES: u64 = 512 << 20;

/// Process of a lane. Dropping this value kills the process.
pub(super) struct LaneProcess {
    pub(super) guard: Guard,
    channel: Channel,
    window: Window,
    bell: Bell,
    grace: Duration,
    /// True if the process has a reservation for private memory.
    is_limited: bool,
    /// True if the process reports device memory.
    on_device: bool,
    /// The only folder in which the process reads files. Stages are lent through this folder.
    folder: Option<LaneFolder>,
    /// Bytes of host memory that the process holds, if device memory bounds the lanes.
    pub(super) host: Option<u64>,
}

/// Reason why the process is unusable: it ended, sent an invalid message or did not answer in time.
pub(super) type Lost = Error;

impl LaneProcess {
    /// Starts the process and waits until it can work.
    pub(super) fn start(
        config: &LanesConfig,
        place: &ChildLanes,
        guards: &Arc<Guards>,
    ) -> Result<Self, EngineError> {
        let prepared = place.prepared.as_ref();
        let folder = prepared.and_then(|stages| LaneFolder::make(&stages.folder).ok());
        let path = folder.as_ref().map(|folder| folder.path().to_owned());
        let mut process = Self::start_in(config, place, guards, path, None)?;
        process.folder = folder;
        Ok(process)
    }

    /// Starts a process that can only open files in `folder`. If `limits` are set, the process can only
    /// prepare networks in that folder.
    pub(super) fn start_in(
        config: &LanesConfig,
        place: &ChildLanes,
        guards: &Arc<Guards>,
        folder: Option<PathBuf>,
        limits: Option<Limits>,
    ) -> Result<Self, EngineError> {
        let library = crate::library::library_path()?;
        let process = Self::spawn(place, library.into(), guards, max_threads(config));
        let mut process = process.map_err(|error| failed(place, error))?;
        process.is_limited = limits.is_some() || config.process_ledger().is_some();
        process.on_device = config.device_memory.is_some();
        let start = start(config, place, folder, limits);
        match process.exchange(&LaneRequest::Start(start), START_LIMIT) {
            Ok(LaneAnswer::Ready { measures, missing }) => {
                say_what_is_missing(measures, &missing);
                Ok(process)
            }
            Ok(LaneAnswer::Unable { reason }) => Err(failed(place, reason)),
            Ok(_) => Err(failed(place, "unexpected answer")),
            Err(lost) => Err(failed(place, process.reap(&lost).how)),
        }
    }

    /// Starts the program with a channel, a window and a pipe for its output. It holds no other descriptor.
    fn spawn(
        place: &ChildLanes,
        library: OsString,
        guards: &Arc<Guards>,
        max_threads: u64,
    ) -> std::io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let window = Window::new()?;
        let measured = Window::from_fd(window.share()?);
        let child = command(place, library)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(window.share()?))
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self {
            // Memory is limited once it is reserved.
            guard: guards.supervise(child, measured, u64::MAX, max_threads)?,
            channel: Channel::new(ours)?,
            window,
            bell: Bell::new()?,
            grace: place.grace,
            is_limited: false,
            on_device: false,
            folder: None,
            host: None,
        })
    }

    /// Returns the error for a process that failed before the first batch.
    pub(super) fn unusable(&mut self, place: &ChildLanes, lost: &Lost) -> EngineError {
        failed(place, self.reap(lost).how)
    }

    /// Ends the process if it uses more than `bytes` of memory and a tolerance. Has no effect if the size is
    /// unknown or memory is not limited.
    pub(super) fn limit(&self, bytes: Option<u64>) {
        if let Some(bytes) = bytes.filter(|_| self.is_limited) {
            self.guard.reserve(bytes);
        }
    }

    /// Releases the memory that the next batch would reuse, here and in the process. Returns the held bytes
    /// if the system reports them. Must not be called during an execution, because the window is emptied.
    pub(super) fn rest(&mut self) -> Result<Option<u64>, Lost> {
        self.window.clear()?;
        self.tidy(&LaneRequest::Rest)
    }

    /// Closes the session of `stage` if it is open. Returns the held bytes if the system reports them. Must
    /// not be called during an execution.
    pub(super) fn close(&mut self, stage: &Stage) -> Result<Option<u64>, Lost> {
        let stage = stage.clone();
        self.tidy(&LaneRequest::Close { stage })
    }

    fn tidy(&mut self, request: &LaneRequest) -> Result<Option<u64>, Lost> {
        match self.exchange(request, self.grace)? {
            LaneAnswer::Holds { bytes, host } if self.on_device => {
                self.host = self.held(host);
                Ok(bytes)
            }
            LaneAnswer::Holds { bytes, .. } => Ok(self.held(bytes)),
            _ => Err(out_of_turn()),
        }
    }

    /// Sends a request and waits up to `limit` for the answer.
    fn exchange(&mut self, request: &LaneRequest, limit: Duration) -> Result<LaneAnswer, Lost> {
        self.channel.send(request)?;
        self.answer(Some(Instant::now() + limit), &Interrupt::new())
    }

    /// Executes `run` and calls `take` with the output. If the process has no session for the stage, it
    /// receives the network from `source`. `opened` is called when the session is ready.
    ///
    /// # Errors
    /// Returns [`Lost`] if the process ended or failed before it reported the result.
    pub(super) fn run<T>(
        &mut self,
        source: &Networks,
        run: &BatchRun<'_>,
        opened: &dyn Fn(),
        take: impl FnOnce(&Output<'_>) -> Result<T, OpError>,
    ) -> Result<RunEnd<T>, Lost> {
        self.bell.silence();
        let mut progress = Progress::default();
        let _guarded = match run.interrupt.guard(Target::Bell(Arc::clone(&self.bell.rope))) {
            Ok(guarded) => guarded,
            Err(cause) => return Ok(progress.end(Err(about(run.stage, &cause.into()).into()), None)),
        };
        if let Err(error) = self.hand_over(run) {
            return Ok(progress.end(Err(error.into()), None));
        }
        let begun = Instant::now();
        // The batch, and later the output.
        let mut in_window = run.batch.pieces().map(<[u8]>::len).sum::<usize>();
        let (outcome, memory) = loop {
            match self.answer(None, run.interrupt)? {
                LaneAnswer::Wanted => self.provide(source, run, &mut progress)?,
                LaneAnswer::Opened { opened: session } => {
                    progress.lent = None;
                    progress.opened = session.map(|session| Opened {
                        time: begun.elapsed(),
                        ..session
                    });
                    progress.since = Some(Instant::now());
                    opened();
                }
                LaneAnswer::Done { output, memory } => {
                    progress.stop();
                    in_window = in_window.max(output.bytes());
                    let output = Output::in_window(&self.window, output)?;
                    break (take(&output).map_err(RunError::from), memory);
                }
                LaneAnswer::OutOfMemory { error, memory } => {
                    let error = explain(run, error).map_or_else(RunError::Failed, RunError::OutOfMemory);
                    break (Err(error), memory);
                }
                LaneAnswer::Failed { error, memory } => {
                    let error = progress.refusal.take().unwrap_or(error);
                    let error = explain(run, error).unwrap_or_else(|cause| cause);
                    break (Err(RunError::Failed(error)), memory);
                }
                _ => return Err(out_of_turn()),
            }
        };
        let memory = self.add_window(memory, in_window);
        self.window.done()?;
        Ok(progress.end(outcome, memory))
    }

    /// Returns the memory usage of an execution that used `in_window` bytes of the window. They are included if host
    /// memory bounds the lanes.
    fn add_window(&mut self, seen: MemoryReport, in_window: usize) -> Option<RunMemory> {
        if self.on_device {
            self.host = self.held(seen.host);
            return seen.run;
        }
        seen.run.map(|run| RunMemory {
            taken: run.taken.map(|taken| taken.saturating_add(in_window as u64)),
            held: self.held(Some(run.held)).unwrap_or(run.held),
            ..run
        })
    }

    /// Returns the bytes that the process and the window hold, as measured by the host. A lost lane could
    /// report another value. `None` if the process did not report any, because `/proc` is not mounted.
    fn held(&self, reported: Option<u64>) -> Option<u64> {
        let reported = reported?;
        Some(self.guard.bytes().unwrap_or(reported))
    }

    /// Sends the batch and the request to the process. On failure, the process has not received the request
    /// and is not at fault.
    fn hand_over(&mut self, run: &BatchRun<'_>) -> Result<(), OpError> {
        let request = LaneRequest::Run(RunRequest {
            stage: run.stage.clone(),
            batch: run.batch.spec.clone(),
            reservation: run.reservation,
        });
        let written = self.window.write(run.batch.pieces());
        let sent = written.and_then(|()| match self.channel.send(&request) {
            // If the process ended, waiting for the answer reports it.
            Err(error) if error.kind() != ErrorKind::InvalidInput => Ok(()),
            sent => sent,
        });
        sent.map_err(|error| not_handed(run.stage, "batch", &error))
    }

    /// Sends the requested network or its next piece to the process, or a message that the network is not
    /// available.
    fn provide(
        &mut self,
        source: &Networks,
        run: &BatchRun<'_>,
        progress: &mut Progress,
    ) -> Result<(), Lost> {
        if progress.network.as_ref().is_some_and(|(rest, _)| rest.is_empty()) {
            return Err(out_of_turn());
        }
        let answer = self.given(source, run, progress).unwrap_or_else(|refusal| {
            progress.network = Some(Default::default());
            progress.refusal = Some(refusal);
            LaneRequest::NoNetwork
        });
        self.channel.send(&answer)
    }

    /// Provides the network of `run` in the process's folder, or its next piece in the window.
    fn given(
        &self,
        source: &Networks,
        run: &BatchRun<'_>,
        progress: &mut Progress,
    ) -> Result<LaneRequest, OpError> {
        if progress.network.is_none() {
            if let Some(loan) = self.lend(source, run.stage) {
                progress.network = Some(Default::default());
                progress.lent = Some(loan);
                return Ok(LaneRequest::Prepared);
            }
            let network = source.bytes(run.stage)?;
            let total = network.len();
            progress.network = Some((network, total));
        }
        let (rest, total) = progress.network.get_or_insert_default();
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        let written = self.window.write([&*piece]);
        written.map_err(|error| not_handed(run.stage, "network", &error))?;
        Ok(LaneRequest::Network {
            piece: piece.len(),
            total: *total,
        })
    }

    /// Lends the prepared form of `stage` to the process, if it exists.
    fn lend(&self, source: &Networks, stage: &Stage) -> Option<Loan> {
        let prepared = source.prepared.as_ref()?.find(&stage.network())?;
        let folder = self.folder.as_ref();
        let folder = folder.ok_or_else(|| Error::other("the process does not have a folder"));
        let lent = folder.and_then(|folder| folder.lend(prepared));
        lent.inspect_err(|error| {
            tracing::warn!(%error, "cannot lend a prepared stage to a lane, so the lane loads a copy of the weights");
        })
        .ok()
    }

    /// Makes the process prepare `network` in the process's folder, with up to `max_bytes` of memory. Returns
    /// the answer.
    pub(super) fn prepare(
        &mut self,
        network: &[u8],
        max_bytes: u64,
        interrupt: &Interrupt,
    ) -> Result<LaneAnswer, Lost> {
        let rope = Target::Bell(Arc::clone(&self.bell.rope));
        let _guarded = interrupt
            .guard(rope)
            .map_err(|cause| Error::other(cause.to_string()))?;
        self.window.write([network])?;
        self.channel.send(&LaneRequest::Prepare {
            bytes: network.len(),
            max_bytes,
        })?;
        self.answer(None, interrupt)
    }

    /// Waits for the next answer, up to the time `until`. If `interrupt` is triggered meanwhile, asks the process to
    /// end the execution. Without `until`, the clock of the lanes decides when to give up the process.
    fn answer(&mut self, until: Option<Instant>, interrupt: &Interrupt) -> Result<LaneAnswer, Lost> {
        loop {
            if let Some(answer) = self.channel.next_message::<LaneAnswer>()? {
                return Ok(answer.in_lines());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    "the process did not answer in time",
                ));
            }
            let (spoken, rung) = self.wait(left)?;
            if rung {
                self.bell.silence();
                if interrupt.is_given_up() {
                    return Err(Error::new(
                        ErrorKind::TimedOut,
                        "the process failed to stop in time",
                    ));
                }
                self.channel.send(&LaneRequest::End)?;
            }
            if spoken {
                self.channel.fill()?;
            }
        }
    }

    /// Waits up to `limit`. Returns whether the process sent data, and whether the bell rang.
    fn wait(&self, limit: Option<Duration>) -> Result<(bool, bool), Lost> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut both = [
            PollFd::new(&self.channel, PollFlags::IN),
            PollFd::new(&self.bell.sound, PollFlags::IN),
        ];
        match poll(&mut both, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [spoken, rung] = both.map(|fd| !fd.revents().is_empty());
        Ok((spoken, rung))
    }

    /// Kills the process if it is still running, and returns a description of the loss.
    pub(super) fn reap(&mut self, lost: &Lost) -> Loss {
        let gone = lost.kind() == ErrorKind::UnexpectedEof;
        let status = self.guard.end();
        let exceeded = self.guard.exceeded();
        match status {
            Ok(status) if gone && exceeded.is_none() => Loss::from_status(status),
            _ => Loss {
                how: exceeded.unwrap_or_else(|| lost.to_string()),
                by: LossCause::Run,
            },
        }
    }
}

fn failed(place: &ChildLanes, reason: impl Into<Cause>) -> EngineError {
    EngineError::Process {
        program: place.program.clone(),
        reason: reason.into(),
    }
}

/// Returns the maximum number of threads of a process, for all sessions and the process itself. There is no
/// limit on a GPU, because the driver starts threads.
fn max_threads(config: &LanesConfig) -> u64 {
    /// The process needs two threads, for messages and for batches. The margin is for libraries.
    const OWN: usize = 6;
    if config.device != Device::Cpu {
        return u64::MAX;
    }
    let per_session = config.threads_per_lane.saturating_sub(1);
    OWN.saturating_add(per_session.saturating_mul(config.sessions_per_lane)) as u64
}

/// Returns the private memory that a lane's process can never exceed: the whole budget, and address space for
/// the weights of prepared stages and for memory that is not touched. `None` if memory is not limited.
fn max_data_bytes(config: &LanesConfig, place: &ChildLanes) -> Option<u64> {
    let budget = config.process_ledger()?.read(|ledger| ledger.budget().bytes);
    let weights = place.prepared.as_ref().map_or(0, |stages| stages.most_bytes);
    Some(budget.saturating_add(weights).saturating_add(UNTOUCHED_BYTES))
}

pub(super) fn start(
    config: &LanesConfig,
    place: &ChildLanes,
    folder: Option<PathBuf>,
    limits: Option<Limits>,
) -> Start {
    Start {
        device: config.device,
        threads: config.threads_per_lane,
        sessions: config.sessions_per_lane,
        session_bytes: config.session_bytes_per_lane,
        gauged: config.device_memory.is_some(),
        arena_bytes: config.arena_bytes,
        cuda: config.cuda,
        address_space: place.address_space,
        data_bytes: limits.map_or_else(|| max_data_bytes(config, place), |limits| Some(limits.memory)),
        folder,
        limits,
        require_walls: place.require_walls,
    }
}

/// Warns once if memory cannot be measured or walls are missing.
fn say_what_is_missing(measures: bool, missing: &[Wall]) {
    static SAID: Once = Once::new();
    if measures && missing.is_empty() {
        return;
    }
    SAID.call_once(|| {
        if !measures {
            tracing::warn!(
                "cannot measure or limit the memory of lanes, because /proc is not available; mount \
                 /proc to enforce memory_budget"
            );
        }
        if !missing.is_empty() {
            let missing = names(missing);
            tracing::warn!(
                missing,
                "lanes run without these walls, so a network that takes over a lane is less confined (runtime/docs/security.md); \
                 set require_walls to refuse this"
            );
        }
    });
}

/// Replaces `error` by the interrupt if `run` was interrupted.
///
/// # Errors
/// Returns the error for the interrupt.
fn explain(run: &BatchRun<'_>, error: OpError) -> Result<OpError, OpError> {
    match run.interrupt.cause() {
        Some(cause) => Err(about(run.stage, &cause.into())),
        None => Ok(error),
    }
}

fn not_handed(stage: &Stage, what: &str, error: &Error) -> OpError {
    let stage = describe(stage);
    OpError::from_host(
        OpErrorCode::RuntimeError,
        format!("{stage}: cannot send the {what} to the lane's process: {error}; try again"),
    )
}
