//! Simulates a lost lane: a process that enters its walls like a real lane and then attempts attacks.

use crate::Scene;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use frostline_engine::{ChildLanes, EngineError, Lanes, LanesConfig, LanesPlace, StageSource};
use frostline_tensor::{OpError, Stage};
use nix::sys::ptrace;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// First arguments of simulation processes.
const LOST_LANE: &str = "lost-lane";
const LOGGING_HOST: &str = "logging-host";
const LOGGED_LANE: &str = "logged-lane";
const WITHOUT_WALLS: &str = "without-walls";

/// File descriptor that the process inherits by mistake.
const INHERITED: i32 = 9;

/// Signal sent to a process after a forbidden system call.
const SIGSYS: i32 = 31;

/// Targets of the attempts.
#[derive(Debug, Serialize, Deserialize)]
struct Target {
    host: u32,
    /// Process ID of another lane.
    lane: u32,
    address: SocketAddr,
    token: PathBuf,
    state: PathBuf,
    socket: PathBuf,
    /// File in the folder of this lane.
    lane_file: PathBuf,
}

/// Allowed operation, which proves that the simulated lane works.
const ALLOWED: Attempt = ("read its own file", |on| fs::read(&on.lane_file).map(drop));

type Attempt = (&'static str, fn(&Target) -> io::Result<()>);

const ATTEMPTS: [Attempt; 21] = [
    ("read the token", |on| fs::read(&on.token).map(drop)),
    ("read the key of compiled guests", |on| {
        fs::read(on.state.join("artifacts/key")).map(drop)
    }),
    ("list the state", |on| fs::read_dir(&on.state).map(drop)),
    ("write to the state", |on| {
        fs::write(on.state.join("forged"), "forged")
    }),
    ("write elsewhere", |_| tempfile::tempfile().map(drop)),
    ("read the host's environment", |on| {
        fs::read(format!("/proc/{}/environ", on.host)).map(drop)
    }),
    ("open the host's memory", |on| {
        File::open(format!("/proc/{}/mem", on.host)).map(drop)
    }),
    ("read another lane's window", |on| window_of(on.lane)),
    ("take the host's descriptor", |on| {
        let host = rustix::process::pidfd_open(pid(on.host)?, PidfdFlags::empty())?;
        Ok(rustix::process::pidfd_getfd(host, 0, PidfdGetfdFlags::empty()).map(drop)?)
    }),
    ("use an inherited descriptor", |_| {
        nix::unistd::close(INHERITED).map_err(Into::into)
    }),
    ("connect to the admin's socket", |on| {
        UnixStream::connect(&on.socket).map(drop)
    }),
    ("connect by TCP", |on| TcpStream::connect(on.address).map(drop)),
    ("bind by UDP", |_| UdpSocket::bind("127.0.0.1:0").map(drop)),
    (
        "become another program",
        |_| Err(Command::new("/bin/true").exec()),
    ),
    ("start a process", |_| Command::new("/bin/true").spawn().map(drop)),
    ("signal the host", |on| {
        Ok(rustix::process::test_kill_process(pid(on.host)?)?)
    }),
    ("trace the host", |on| {
        let host = nix::unistd::Pid::from_raw(pid(on.host)?.as_raw_nonzero().get());
        Ok(ptrace::seize(host, ptrace::Options::empty())?)
    }),
    ("limit the host", |on| {
        let same = Rlimit {
            current: None,
            maximum: None,
        };
        Ok(rustix::process::prlimit(Some(pid(on.host)?), Resource::Cpu, same).map(drop)?)
    }),
    ("make memory to share", |_| {
        Ok(rustix::fs::memfd_create("shared", rustix::fs::MemfdFlags::empty()).map(drop)?)
    }),
    ("change the root", |_| Ok(rustix::process::chroot("/")?)),
    ("truncate a file", |_| Ok(rustix::fs::ftruncate(io::stdout(), 0)?)),
];

/// First line of the log in [`lost_lane_logs`].
pub const LOGGED: &str = "the host has started";

/// Line that a lost lane tries to add to the log.
pub const FORGED: &str = "the host has failed";

type Attack = fn() -> io::Result<()>;

/// Attacks on the log through the standard streams.
const LOG_ATTACKS: [(&str, Attack); 3] = [
    ("empty the host's log", || {
        rustix::fs::ftruncate(io::stdout(), 0)?;
        Ok(rustix::fs::ftruncate(io::stderr(), 0)?)
    }),
    ("overwrite the host's log", || {
        let line = format!("{FORGED}\n");
        rustix::io::pwrite(io::stdout(), line.as_bytes(), 0)?;
        Ok(rustix::io::pwrite(io::stderr(), line.as_bytes(), 0).map(drop)?)
    }),
    ("forge a line in the host's log", || {
        io::stderr().write_all(format!("\r\n\x1b[2J\n{FORGED}\r{FORGED}\n").as_bytes())
    }),
];

fn pid(process: u32) -> io::Result<Pid> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn window_of(lane: u32) -> io::Result<()> {
    for entry in fs::read_dir(format!("/proc/{lane}/fd"))? {
        let path = entry?.path();
        if fs::read_link(&path)?.to_string_lossy().contains("memfd") {
            return File::open(path).map(drop);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Result of an attempt.
#[derive(Debug)]
pub struct AttemptResult {
    /// Description of the attempt.
    pub what: &'static str,
    /// Error of the system, or `None` if the attempt succeeded.
    pub denied: Option<String>,
}

/// Runs all attempts on the host of `scene`, either as a lane with walls or as an ordinary process of the
/// host's user. `player` is a program that calls [`run_simulation`] with its arguments.
///
/// # Errors
/// Returns an error if the simulation fails.
pub fn lost_lane(player: &Path, scene: &Scene, walled: bool) -> Result<Vec<AttemptResult>> {
    let held = tempfile::tempdir()?;
    let folder = held.path().canonicalize()?;
    let target = target(scene, folder.join("lent"))?;
    fs::write(&target.lane_file, "lent")?;
    let (allowed, _) = ALLOWED;
    if let Some(why) = attempt(player, &target, walled.then_some(folder.as_path()), allowed)? {
        bail!("the simulated lane cannot {allowed}, so denied attempts would prove nothing: {why}");
    }
    let tries = ATTEMPTS.iter().map(|(what, _)| {
        let denied = attempt(player, &target, walled.then_some(folder.as_path()), what)?;
        Ok(AttemptResult { what, denied })
    });
    tries.collect()
}

/// Log of a host whose lane attacked it.
#[derive(Debug)]
pub struct AttackedLog {
    /// Description of the attack.
    pub what: &'static str,
    /// The log, which a host began with [`LOGGED`].
    pub log: String,
}

/// Runs each attack on the log of a host that starts a lane like `frostline serve`. `player` has the same
/// meaning as for [`lost_lane`].
///
/// # Errors
/// Returns an error if the simulation fails.
pub fn lost_lane_logs(player: &Path) -> Result<Vec<AttackedLog>> {
    let attack = |what: &'static str| {
        let log = tempfile::NamedTempFile::new()?;
        let host = Command::new(player)
            .args([LOGGING_HOST, what])
            .stdin(Stdio::null())
            .stderr(log.reopen()?)
            .status()?;
        let log = fs::read_to_string(log.path())?;
        match host.success() {
            true => Ok(AttackedLog { what, log }),
            false => bail!("{what}: {host} {log}"),
        }
    };
    LOG_ATTACKS.iter().map(|(what, _)| attack(what)).collect()
}

/// Starts a lane that attacks the log of this process and exits.
fn play_logging_host(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let attack = arguments.next().context("no attack given")?;
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .init();
    io::stderr().write_all(format!("{LOGGED}\n").as_bytes())?;
    let lane = ChildLanes::new(std::env::current_exe()?, [LOGGED_LANE.into(), attack]);
    let config = LanesConfig {
        lanes: 1,
        place: LanesPlace::Child(lane),
        ..LanesConfig::default()
    };
    match Lanes::start(config, Arc::new(NoNetworks)) {
        Ok(_) => bail!("the lane did not exit"),
        Err(EngineError::Process { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct NoNetworks;

impl StageSource for NoNetworks {
    fn stage_model(&self, _: &Stage) -> Result<Bytes, OpError> {
        Err(OpError::not_found("no network"))
    }
}

fn play_logged_lane(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let what = arguments.next().context("no attack given")?;
    let attack = LOG_ATTACKS.iter().find(|(name, _)| what == *name);
    let (_, attack) = attack.context("unknown attack")?;
    let _lane = frostline_engine::enter_lane()?;
    // The attack may fail; its effect on the log decides.
    attack().or(Ok(()))
}

fn target(scene: &Scene, lane_file: PathBuf) -> Result<Target> {
    let lanes = scene.children("lanes")?;
    Ok(Target {
        host: scene.process()?,
        lane: *lanes.first().context("the host did not start any lane")?,
        address: scene.direct_address()?,
        token: scene.folder().join("token"),
        state: scene.folder().join("state"),
        socket: scene.socket()?,
        lane_file,
    })
}

/// Starts a process for one attempt and acts as the host.
fn attempt(player: &Path, target: &Target, folder: Option<&Path>, what: &str) -> Result<Option<String>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    // Simulates a parent process that leaves a descriptor open.
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!(r#"exec {INHERITED}</dev/null; exec "$0" "$@""#)])
        .arg(player)
        .args([LOST_LANE, what])
        // Every lane is started with this variable.
        .env(frostline_engine::NO_TELEMETRY, "1")
        .arg(serde_json::to_string(target)?)
        .args(folder.is_some().then_some("walled"))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(tempfile::tempfile()?))
        .stderr(Stdio::piped());
    let child = command.spawn()?;
    // Close the parent's copy of the child's socket.
    drop(command);
    if let Some(folder) = folder {
        ours.write_all(&start(folder)?)?;
    }
    let ended = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&ended.stderr);
    if ended.status.signal() == Some(SIGSYS) {
        return Ok(Some("killed by the system".to_owned()));
    }
    if let Some((_, why)) = stderr.split_once("denied: ") {
        return Ok(Some(why.trim().to_owned()));
    }
    match ended.status.success() {
        true => Ok(None),
        false => bail!("{what}: {} {stderr}", ended.status),
    }
}

/// The first message of a host to a lane.
fn start(folder: &Path) -> Result<Vec<u8>> {
    let start = serde_json::json!({"start": {
        "device": "Cpu", "threads": 1, "sessions": 1, "session_bytes": 1 << 20, "gauged": false, "arena_bytes": null,
        "cuda": {"nhwc": null, "fuse_conv_bias": false, "graphs": false},
        "address_space": null, "data_bytes": null, "folder": folder, "limits": null, "require_walls": true,
    }});
    let body = serde_json::to_vec(&start)?;
    Ok([&u32::try_from(body.len())?.to_le_bytes()[..], &body].concat())
}

/// Runs the simulation selected by `arguments`: a lost lane or a host on a kernel without walls.
///
/// # Errors
/// Returns an error if the arguments are invalid or the simulation fails.
pub fn run_simulation(arguments: impl IntoIterator<Item = OsString>) -> Result<()> {
    let mut arguments = arguments.into_iter();
    let part = arguments.next().unwrap_or_default();
    match part.to_str() {
        Some(LOST_LANE) => play_lost_lane(arguments),
        Some(LOGGING_HOST) => play_logging_host(arguments),
        Some(LOGGED_LANE) => play_logged_lane(arguments),
        Some(WITHOUT_WALLS) => become_without_walls(arguments),
        _ => bail!("unknown part {}", part.display()),
    }
}

/// True if `argument` selects a simulation of [`run_simulation`].
pub fn is_simulation(argument: &str) -> bool {
    [LOST_LANE, LOGGING_HOST, LOGGED_LANE, WITHOUT_WALLS].contains(&argument)
}

fn play_lost_lane(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let arguments: Vec<String> = arguments.filter_map(|one| one.into_string().ok()).collect();
    let [what, target, walled @ ..] = arguments.as_slice() else {
        bail!("no attempt given");
    };
    let target: Target = serde_json::from_str(target)?;
    let attempt = ATTEMPTS.iter().chain([&ALLOWED]).find(|(name, _)| name == what);
    let (_, attempt) = attempt.context("unknown attempt")?;
    let _lane = match walled {
        [] => None,
        _ => Some(frostline_engine::enter_lane()?),
    };
    if let Err(error) = attempt(&target) {
        // Standard error is an inherited pipe, so the lane may write to it.
        io::stderr().write_all(format!("denied: {error}").as_bytes())?;
    }
    Ok(())
}

/// Returns a command that runs `program` as on a kernel without Landlock and seccomp. `player` has the same
/// meaning as for [`lost_lane`].
pub fn without_walls(player: &Path, program: &Path) -> Command {
    let mut command = Command::new(player);
    command.arg(WITHOUT_WALLS).arg(program);
    command
}

fn become_without_walls(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    use seccompiler::{SeccompAction, SeccompFilter, TargetArch, apply_filter};
    let program = arguments.next().context("no program given")?;
    let absent = [
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
        libc::SYS_seccomp,
    ];
    let filter = SeccompFilter::new(
        absent.map(|call| (call, Vec::new())).into(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?;
    let filter: seccompiler::BpfProgram = filter.try_into()?;
    apply_filter(&filter)?;
    Err(Command::new(program).args(arguments).exec().into())
}
