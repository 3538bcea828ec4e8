//! The process of one lane, as the lane sees it.

use super::super::batch::{BatchRun, Opened, Output, RunEnd, RunError, RunMemory};
use super::super::order::{Loss, LossBy};
use super::super::run::{about, describe};
use super::super::source::{Given, Networks};
use super::super::{ChildLanes, LanesConfig};
use super::bell::Bell;
use super::channel::Channel;
use super::command::command;
use super::entry::names;
use super::message::{Answer, Limits, Request, Seen, Start};
use super::progress::Progress;
use super::window::Window;
use crate::interrupt::Target;
use crate::prepared::{LaneFolder, Lent, Loan};
use crate::{EngineError, Interrupt, InterruptCause};
use frostline_tensor::{Cause, OpError, OpErrorCode, Stage};
use frostline_walls::Wall;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// The longest a process may take to be ready: it loads ONNX Runtime, and CUDA's libraries from a cold disk.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long a run that holds up another tenant may take to end: a few layers of the usual networks.
const HELD_UP_GRACE: Duration = Duration::from_secs(1);

/// A process that runs one lane. Dropping it ends it.
pub(super) struct LaneProcess {
    child: Child,
    channel: Channel,
    window: Window,
    bell: Bell,
    grace: Duration,
    /// The one folder that it reads files in, where stages are lent to it.
    folder: Option<LaneFolder>,
    /// Bytes that it holds of the host's memory, where lanes go by a device's.
    pub(super) host: Option<u64>,
}

/// The process is gone, or no longer makes sense.
#[derive(Debug)]
pub(super) struct Lost {
    why: Error,
}

impl From<Error> for Lost {
    fn from(why: Error) -> Self {
        Self { why }
    }
}

impl LaneProcess {
    /// Starts the process and waits until it can work.
    pub(super) fn start(config: &LanesConfig, place: &ChildLanes) -> Result<Self, EngineError> {
        let prepared = place.prepared.as_ref();
        let folder = prepared.and_then(|stages| LaneFolder::make(&stages.folder).ok());
        let path = folder.as_ref().map(|folder| folder.path().to_owned());
        let mut process = Self::start_in(config, place, path, None)?;
        process.folder = folder;
        Ok(process)
    }

    /// Starts one that opens files in `folder` alone; with `limits`, which it never goes beyond, it prepares a network there.
    pub(super) fn start_in(
        config: &LanesConfig,
        place: &ChildLanes,
        folder: Option<PathBuf>,
        limits: Option<Limits>,
    ) -> Result<Self, EngineError> {
        let failed = |reason: Cause| EngineError::Process {
            program: place.program.clone(),
            reason,
        };
        let library = crate::library::library_path()?;
        let mut process = Self::spawn(place, library.into()).map_err(|error| failed(error.into()))?;
        let start = start(config, place, folder, limits);
        match process.greet(start) {
            Ok(Answer::Ready { measures, missing }) => {
                say_what_is_missing(measures, &missing);
                Ok(process)
            }
            Ok(Answer::Unable { reason }) => Err(failed(reason.into())),
            Ok(_) => Err(failed("it answers something else than lanes do".into())),
            Err(lost) => Err(failed(process.reap(&lost).how.into())),
        }
    }

    fn spawn(place: &ChildLanes, library: OsString) -> std::io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let window = Window::new()?;
        let child = command(place, library)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(window.share()?))
            .spawn()?;
        Ok(Self {
            child,
            channel: Channel::new(ours)?,
            window,
            bell: Bell::new()?,
            grace: place.grace,
            folder: None,
            host: None,
        })
    }

    fn greet(&mut self, start: Start) -> Result<Answer, Lost> {
        self.channel.send(&Request::Start(start))?;
        let mut progress = Progress {
            killed_at: Some(Instant::now() + START_LIMIT),
            ..Progress::default()
        };
        self.answer(&mut progress, &Interrupt::new())
    }

    /// Why one that was lost before its first run cannot be used.
    pub(super) fn unusable(&mut self, place: &ChildLanes, lost: &Lost) -> EngineError {
        EngineError::Process {
            program: place.program.clone(),
            reason: self.reap(lost).how.into(),
        }
    }

    /// What the system knows it by.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended, as far as the system knows.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Keeps no memory for the next run, here or there; the bytes that it still holds, where the system tells. Only between two: this
    /// empties the window.
    pub(super) fn rest(&mut self) -> Result<Option<u64>, Lost> {
        self.window.clear()?;
        self.tidy(&Request::Rest)
    }

    /// Closes the session of `stage`, if it has one; the bytes that it still holds. Only between two runs.
    pub(super) fn close(&mut self, stage: &Stage) -> Result<Option<u64>, Lost> {
        let stage = stage.clone();
        self.tidy(&Request::Close { stage })
    }

    fn tidy(&mut self, request: &Request) -> Result<Option<u64>, Lost> {
        self.channel.send(request)?;
        let mut progress = Progress {
            killed_at: Some(Instant::now() + self.grace),
            ..Progress::default()
        };
        match self.answer(&mut progress, &Interrupt::new())? {
            Answer::Holds { bytes, host: None } => Ok(self.with_window(bytes)),
            Answer::Holds { bytes, host } => {
                self.host = self.with_window(host);
                Ok(bytes)
            }
            _ => Err(out_of_turn()),
        }
    }

    /// Does `run` and shows `take` its output: the network comes from `source` when the process has no session, `opened` is told when
    /// it has one.
    ///
    /// # Errors
    /// [`Lost`] when the process did not live to say how the run ended.
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
        let (outcome, memory) = loop {
            match self.answer(&mut progress, run.interrupt)? {
                Answer::Wanted if !progress.wanted => {
                    progress.wanted = true;
                    self.provide(source, run, &mut progress)?;
                }
                Answer::Opened { opened: session } => {
                    progress.lent = None;
                    progress.opened = session.map(|session| Opened {
                        time: begun.elapsed(),
                        ..session
                    });
                    progress.since = Some(Instant::now());
                    opened();
                }
                Answer::Done { output, memory } => {
                    progress.stop();
                    let output = Output::in_window(&self.window, output)?;
                    break (take(&output).map_err(RunError::from), memory);
                }
                Answer::OutOfMemory { error, memory } => {
                    let error = explain(run, error).map_or_else(RunError::Failed, RunError::OutOfMemory);
                    break (Err(error), memory);
                }
                Answer::Failed { error, memory } => {
                    let error = progress.refusal.take().unwrap_or(error);
                    let error = explain(run, error).unwrap_or_else(|cause| cause);
                    break (Err(RunError::Failed(error)), memory);
                }
                _ => return Err(out_of_turn()),
            }
        };
        let memory = self.add_window(memory, run);
        self.window.done()?;
        Ok(progress.end(outcome, memory))
    }

    /// What a run took of what lanes go by, the window among it where that is the host's memory.
    fn add_window(&mut self, seen: Seen, run: &BatchRun<'_>) -> Option<RunMemory> {
        let in_window = run.batch.pieces().map(<[u8]>::len).sum::<usize>() as u64;
        match seen {
            Seen { run, host: None } => run.map(|run| RunMemory {
                taken: run.taken.map(|taken| taken + in_window),
                held: self.with_window(Some(run.held)).unwrap_or(run.held),
                ..run
            }),
            Seen { run, host } => {
                self.host = self.with_window(host);
                run
            }
        }
    }

    /// `bytes` that the process holds, and those that lie in the window.
    fn with_window(&self, bytes: Option<u64>) -> Option<u64> {
        Some(bytes?.saturating_add(self.window.bytes().unwrap_or(0)))
    }

    /// Gives the process the run. What fails here is not its fault, and it has heard nothing of the run.
    fn hand_over(&mut self, run: &BatchRun<'_>) -> Result<(), OpError> {
        let request = Request::Run {
            stage: run.stage.clone(),
            batch: run.batch.spec(),
            reservation: run.reservation,
        };
        let written = self.window.write(run.batch.pieces());
        let sent = written.and_then(|()| match self.channel.send(&request) {
            // The answer that never comes tells that the process is gone.
            Err(error) if error.kind() != ErrorKind::InvalidInput => Ok(()),
            sent => sent,
        });
        sent.map_err(|error| not_handed(run.stage, "batch", &error))
    }

    /// Gives the process the network it wants, or the word that there is none.
    fn provide(
        &mut self,
        source: &Networks,
        run: &BatchRun<'_>,
        progress: &mut Progress,
    ) -> Result<(), Lost> {
        let answer = self.given(source, run, progress).unwrap_or_else(|refusal| {
            progress.refusal = Some(refusal);
            Request::NoNetwork
        });
        self.channel.send(&answer)?;
        // While it was prepared, the bell was that of another process.
        match run.interrupt.cause() {
            Some(_) => self.end(progress, run.interrupt),
            None => Ok(()),
        }
    }

    /// The network of `run`: lent in the process's folder, or laid into the window.
    fn given(
        &self,
        source: &Networks,
        run: &BatchRun<'_>,
        progress: &mut Progress,
    ) -> Result<Request, OpError> {
        let network = match source.given(run)? {
            Given::Bytes(network) => network,
            Given::Prepared(lent) => match self.lend(lent) {
                Ok(loan) => {
                    progress.lent = Some(loan);
                    return Ok(Request::Prepared);
                }
                Err(error) => {
                    tracing::warn!(%error, "a prepared stage cannot be lent to a lane, which keeps a copy of its weights");
                    source.bytes(run.stage)?
                }
            },
        };
        let written = self.window.write([&*network]);
        written.map_err(|error| not_handed(run.stage, "network", &error))?;
        Ok(Request::Network { bytes: network.len() })
    }

    fn lend(&self, lent: Lent) -> std::io::Result<Loan> {
        let folder = self.folder.as_ref();
        let folder = folder.ok_or_else(|| Error::other("it has no folder of its own"))?;
        folder.lend(lent)
    }

    /// Has the process leave `network` prepared in its folder, within `limit` and `most` bytes of memory; its answer.
    pub(super) fn prepare(
        &mut self,
        network: &[u8],
        limit: Duration,
        most: u64,
        interrupt: &Interrupt,
    ) -> Result<Answer, Lost> {
        let rope = Target::Bell(Arc::clone(&self.bell.rope));
        let _guarded = interrupt
            .guard(rope)
            .map_err(|cause| Error::other(cause.to_string()))?;
        self.window.write([network])?;
        self.channel.send(&Request::Prepare {
            bytes: network.len(),
            most,
        })?;
        let mut progress = Progress {
            killed_at: Some(Instant::now() + limit),
            ..Progress::default()
        };
        self.answer(&mut progress, interrupt)
    }

    /// Waits for the next answer. When `interrupt` rings meanwhile, tells the process to end the run, and gives it up
    /// when it has not after the grace.
    fn answer(&mut self, progress: &mut Progress, interrupt: &Interrupt) -> Result<Answer, Lost> {
        loop {
            if let Some(answer) = self.channel.next_message()? {
                return Ok(answer);
            }
            let left = progress
                .killed_at
                .map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Error::new(ErrorKind::TimedOut, "it did not end when it was told to").into());
            }
            let (spoken, rung) = self.wait(left)?;
            if rung {
                self.bell.silence();
                self.end(progress, interrupt)?;
            }
            if spoken {
                self.channel.fill()?;
            }
        }
    }

    fn end(&mut self, progress: &mut Progress, interrupt: &Interrupt) -> Result<(), Lost> {
        let grace = match interrupt.cause() {
            // Nobody needs the sessions of a host that is shutting down.
            Some(InterruptCause::Shutdown) => Duration::ZERO,
            // Somebody else waits for the lane.
            Some(InterruptCause::HeldUp { .. }) => self.grace.min(HELD_UP_GRACE),
            _ => self.grace,
        };
        progress.killed_at = Some(Instant::now() + grace);
        Ok(self.channel.send(&Request::End)?)
    }

    /// Whether the process said something, and whether the bell rang, within `limit`.
    fn wait(&self, limit: Option<Duration>) -> Result<(bool, bool), Lost> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut both = [
            PollFd::new(&self.channel, PollFlags::IN),
            PollFd::new(&self.bell.sound, PollFlags::IN),
        ];
        match poll(&mut both, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::from(error).into()),
        }
        let [spoken, rung] = both.map(|fd| !fd.revents().is_empty());
        Ok((spoken, rung))
    }

    /// Ends what is left of it, and says how it ended.
    pub(super) fn reap(&mut self, lost: &Lost) -> Loss {
        let gone = lost.why.kind() == ErrorKind::UnexpectedEof;
        // Of one that is ending already this changes nothing.
        drop(self.child.kill());
        match self.child.wait() {
            Ok(status) if gone => Loss::from_status(status),
            _ => Loss {
                how: lost.why.to_string(),
                by: LossBy::Run,
            },
        }
    }
}

impl Drop for LaneProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn start(config: &LanesConfig, place: &ChildLanes, folder: Option<PathBuf>, limits: Option<Limits>) -> Start {
    Start {
        device: config.device,
        threads: config.threads_per_lane,
        sessions: config.sessions_per_lane,
        session_bytes: config.session_bytes_per_lane,
        gauged: config.device_memory.is_some(),
        arena_bytes: config.arena_bytes,
        address_space: place.address_space,
        folder,
        limits,
        require_walls: place.require_walls,
    }
}

/// Says once that nothing is known of what runs take, and which walls are not there.
fn say_what_is_missing(measures: bool, missing: &[Wall]) {
    static SAID: Once = Once::new();
    if measures && missing.is_empty() {
        return;
    }
    SAID.call_once(|| {
        if !measures {
            tracing::warn!(
                "the memory of lanes cannot be measured or bounded, as there is no /proc; the host works, but promises nothing of it: mount \
                 /proc where memory_budget is to hold"
            );
        }
        if !missing.is_empty() {
            let missing = names(missing);
            tracing::warn!(
                missing,
                "lanes run without these walls: a network that takes its lane over can do more than it should (runtime/docs/security.md); \
                 --require-walls refuses that"
            );
        }
    });
}

/// An error that came while `run` was interrupted comes from that.
///
/// # Errors
/// That it was interrupted.
fn explain(run: &BatchRun<'_>, error: OpError) -> Result<OpError, OpError> {
    match run.interrupt.cause() {
        Some(cause) => Err(about(run.stage, &cause.into())),
        None => Ok(error),
    }
}

fn not_handed(stage: &Stage, what: &str, error: &Error) -> OpError {
    let stage = describe(stage);
    OpError::of_host(
        OpErrorCode::RuntimeError,
        format!("{stage}: cannot hand the {what} to the lane's process: {error}; try again"),
    )
}

fn out_of_turn() -> Lost {
    Error::new(ErrorKind::InvalidData, "it answered out of turn").into()
}
