//! Start of a lane's process: taking over the channel and the window, opening required files, and entering
//! the walls. Threads and data of tenants follow later.

use super::channel::Channel;
use super::memory;
use super::message::{LaneAnswer, LaneRequest, Start};
use super::window::{TENSOR_BYTES, Window};
use crate::{Device, EngineError, library, session};
use frostline_walls::{Files, Wall, limit};
use rustix::process::Resource;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Process of a lane inside the walls.
pub struct ConfinedLane {
    pub(super) requests: Channel,
    pub(super) answers: Channel,
    pub(super) window: Window,
    pub(super) start: Start,
}

/// Turns this process into the process of a lane, on behalf of the process that started it for
/// [`LanesPlace::Child`](crate::LanesPlace::Child). This must be the first call in the process. The walls
/// only confine the calling thread and threads that are started later.
///
/// Standard input is the message channel, standard output is the shared memory for tensors, and standard error
/// is a pipe. Later prints to standard output go to standard error. Other inherited descriptors are closed.
/// The process writes no core dumps and is killed when the thread that started it ends.
///
/// # Errors
/// Returns [`EngineError::Lane`] if standard input is not the channel of a lane or the process cannot work.
/// The other end receives the reason.
pub fn enter_lane() -> std::result::Result<ConfinedLane, EngineError> {
    enter().map_err(|error| EngineError::Lane { reason: error.into() })
}

fn enter() -> Result<ConfinedLane> {
    frostline_walls::close_inherited()?;
    frostline_walls::die_first()?;
    let (mut requests, window) = take_over()?;
    let LaneRequest::Start(start) = requests.receive()? else {
        return Err(out_of_turn());
    };
    let mut answers = requests.sender()?;
    let measures = memory::is_measured();
    match prepare(&start) {
        Ok(missing) => answers.send(&LaneAnswer::Ready { measures, missing })?,
        Err(reason) => {
            answers.send(&LaneAnswer::Unable {
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

/// Takes over the inherited channel and window, and redirects the standard streams so that libraries cannot
/// disturb them.
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

/// Sets resource limits, loads ONNX Runtime and enters the walls. Returns the missing walls.
fn prepare(start: &Start) -> std::result::Result<Vec<Wall>, String> {
    // A lane only writes tensors to the window. On a GPU, CUDA also writes caches.
    let written = (start.device == Device::Cpu).then_some(TENSOR_BYTES as u64);
    let limits = [
        (Resource::As, start.address_space),
        (Resource::Data, start.data_bytes),
        (
            Resource::Fsize,
            start.limits.map(|limits| limits.files).or(written),
        ),
        (Resource::Cpu, start.limits.map(|limits| limits.cpu_seconds)),
    ];
    for (resource, most) in limits {
        let set = most.map_or(Ok(()), |most| limit(resource, most));
        set.map_err(|error| format!("cannot set a resource limit: {error}"))?;
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
                "use Linux 5.13 or later, allow them in the container or service manager, use an ONNX Runtime library that does not start threads, or do not require walls"
            } else {
                "lanes on a GPU have no walls; use the CPU or do not require walls"
            }
        )),
        _ => Ok(missing),
    }
}

fn confine(start: &Start, threads: Option<usize>) -> std::result::Result<Vec<Wall>, String> {
    if start.device != Device::Cpu {
        // CUDA opens devices and libraries at any time. The system calls depend on the driver.
        return Ok(Wall::ALL.to_vec());
    }
    // ONNX Runtime queries the machine when the first session is opened.
    session::warm_up().map_err(|error| error.to_string())?;
    let files = match (&start.folder, start.limits) {
        (None, _) => Files::None,
        (Some(folder), None) => Files::Read(folder),
        (Some(folder), Some(_)) => Files::Write(folder),
    };
    // A thread of the library stays outside of the walls and can access all memory of the process.
    let outside = frostline_walls::threads() != threads;
    let missing = frostline_walls::enter(files).map_err(|error| error.to_string())?;
    Ok(if outside { Wall::ALL.to_vec() } else { missing })
}

pub(super) fn names(walls: &[Wall]) -> String {
    let names: Vec<String> = walls.iter().map(Wall::to_string).collect();
    names.join(", ")
}

pub(super) fn out_of_turn() -> Error {
    Error::new(ErrorKind::InvalidData, "unexpected message")
}
