//! How the process of a lane begins: what it takes over, what it opens, and the walls that it enters before it starts a thread or hears of
//! anything that is a tenant's.

use super::channel::Channel;
use super::memory;
use super::message::{Answer, Request, Start};
use super::window::Window;
use crate::{Device, EngineError, library, session};
use frostline_walls::{Files, Wall};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// The process of a lane behind its walls.
pub struct ConfinedLane {
    pub(super) requests: Channel,
    pub(super) answers: Channel,
    pub(super) window: Window,
    pub(super) start: Start,
}

/// Makes this process that of a lane, for the one that started it for [`LanesPlace::Child`](crate::LanesPlace::Child): to be called before
/// the process does anything else. Only the calling thread, and those that it starts later, are behind the walls.
///
/// Standard input is the channel of messages, standard output the shared memory for tensors; what anybody prints there later goes to
/// standard error. What else was inherited is closed. The process leaves no core dump, and is ended with the thread that started it.
///
/// # Errors
/// [`EngineError::Lane`] when standard input is no lane's channel, or the process cannot work; the other end is told as well.
pub fn enter_lane() -> std::result::Result<ConfinedLane, EngineError> {
    enter().map_err(|error| EngineError::Lane { reason: error.into() })
}

fn enter() -> Result<ConfinedLane> {
    frostline_walls::close_inherited()?;
    let (mut requests, window) = take_over()?;
    let Request::Start(start) = requests.receive()? else {
        return Err(out_of_turn());
    };
    let mut answers = requests.sender()?;
    let measures = memory::is_measured();
    match prepare(&start) {
        Ok(missing) => answers.send(&Answer::Ready { measures, missing })?,
        Err(reason) => {
            answers.send(&Answer::Unable {
                reason: reason.clone(),
            })?;
            return Err(Error::other(reason));
        }
    }
    Ok(ConfinedLane {
        requests,
        answers,
        window,
        start,
    })
}

/// Takes channel and window from where they were inherited, and leaves nothing there that a library could disturb.
fn take_over() -> Result<(Channel, Window)> {
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    let window = std::io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    limit(Resource::Core, 0)?;
    Ok((Channel::new(UnixStream::from(channel))?, Window::from_fd(window)))
}

fn limit(resource: Resource, value: u64) -> Result<()> {
    let limit = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Bounds the process, opens what it needs of the system, and enters the walls; those that it lacks.
fn prepare(start: &Start) -> std::result::Result<Vec<Wall>, String> {
    let limits = start.limits.map(|limits| {
        [
            (Resource::Data, limits.memory),
            (Resource::Fsize, limits.files),
            (Resource::Cpu, limits.cpu_seconds),
        ]
    });
    let space = start.address_space.map(|bytes| (Resource::As, bytes));
    for (resource, most) in limits.into_iter().flatten().chain(space) {
        limit(resource, most).map_err(|error| format!("cannot bound what it takes: {error}"))?;
    }
    let threads = frostline_walls::threads();
    let ready = library::environment().and_then(|_| session::check_device(start.device));
    ready.map_err(|error| error.to_string())?;
    let missing = confine(start, threads)?;
    match missing.as_slice() {
        [_, ..] if start.require_walls => Err(format!(
            "walls are required, and {} cannot be relied on here; {}",
            names(&missing),
            if start.device == Device::Cpu {
                "use Linux 5.13 or later, let the container or service manager permit them, use a library that starts no threads of its own, or do not require them"
            } else {
                "lanes on a GPU have no walls: use the CPU, or do not require them"
            }
        )),
        _ => Ok(missing),
    }
}

fn confine(start: &Start, threads: Option<usize>) -> std::result::Result<Vec<Wall>, String> {
    if start.device != Device::Cpu {
        // CUDA opens devices and libraries whenever it likes, by calls that differ from driver to driver.
        return Ok(Wall::ALL.to_vec());
    }
    // What ONNX Runtime asks of the machine it asks once, with the first session.
    session::warm_up().map_err(|error| error.to_string())?;
    let files = match (&start.folder, start.limits) {
        (None, _) => Files::None,
        (Some(folder), None) => Files::Read(folder),
        (Some(folder), Some(_)) => Files::Write(folder),
    };
    // A thread that the library started stays outside, with all of the process's memory within its reach.
    let outside = frostline_walls::threads() != threads;
    let missing = frostline_walls::enter(files).map_err(|error| error.to_string())?;
    Ok(if outside { Wall::ALL.to_vec() } else { missing })
}

pub(super) fn names(walls: &[Wall]) -> String {
    let names: Vec<String> = walls.iter().map(Wall::to_string).collect();
    names.join(", ")
}

pub(super) fn out_of_turn() -> Error {
    Error::new(ErrorKind::InvalidData, "a message came out of turn")
}
