use crate::Device;
use frostline_batching::Memory;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What the smallest run has to have room for beside a lane's process: a row of the usual networks with its session, whose weights are
/// mapped.
pub(super) const SMALLEST_RUN: u64 = 64 << 20;

/// What a lane's process takes of a GPU beside ONNX Runtime's arena: CUDA's context and the code of kernels (520 MB on an H200), and room for
/// more kernels.
const CUDA_BYTES: u64 = 768 << 20;

/// Is told whatever begins on a lane; it must not wait itself.
#[derive(Clone)]
pub struct OnBegin(pub Arc<dyn Fn(Begun<'_>) + Send + Sync>);

/// Rows of a submission that begin on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun<'a> {
    /// The extraction they are of.
    pub extraction: &'a str,
    /// How many.
    pub rows: usize,
    /// How long they have waited for the lane.
    pub waited: Duration,
}

impl fmt::Debug for OnBegin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnBegin")
    }
}

/// How lanes are set up, and their limits.
#[derive(Debug, Clone)]
pub struct LanesConfig {
    /// The device every lane runs on.
    pub device: Device,
    /// Where the lanes' sessions live.
    pub place: LanesPlace,
    /// Threads that run networks; 0 counts as 1.
    pub lanes: usize,
    /// Where the memory of lanes in child processes is reserved. Of lanes in this process nothing is known, and nothing promised.
    pub memory: Memory,
    /// Where the memory of a device is reserved, which lanes in child processes then go by; what their processes take of the host's is
    /// only booked in `memory`, when a run is over. `None` where the device has none of its own.
    pub device_memory: Option<Memory>,
    /// Bytes of a device that ONNX Runtime's arena of a session may have, all else of CUDA's not counted; `None` for no bound.
    pub arena_bytes: Option<u64>,
    /// Threads one operator may use within a lane; 0 counts as 1.
    pub threads_per_lane: usize,
    /// Submissions that may wait or run; tenants share them, and each may have one.
    pub queue_jobs: usize,
    /// Bytes of their batches, likewise.
    pub queue_bytes: usize,
    /// The longest a submission may wait for a lane.
    pub queue_deadline: Duration,
    /// The longest it may take to have a session for a submission: to get its network, and to read and optimize it.
    pub open_deadline: Duration,
    /// The longest one may run, once its session is open.
    pub run_deadline: Duration,
    /// The longest one run may keep a tenant waiting that has nothing on a lane.
    pub hold_up: Duration,
    /// A lane without work for this long gives back the memory that only its next run would need.
    pub idle: Duration,
    /// Sessions a lane keeps; the one unused for longest goes first.
    pub sessions_per_lane: usize,
    /// Bytes of the models whose sessions a lane keeps, where its memory is not bounded. One larger model is still run, alone.
    pub session_bytes_per_lane: usize,
    /// Who is told of waits, if anyone.
    pub on_begin: Option<OnBegin>,
}

impl LanesConfig {
    /// The defaults for `device`.
    ///
    /// - CPU: one lane per core with one thread each. Whole batches side by side need no meeting of threads inside an
    ///   operator: on two busy cores, 2 lanes x 1 thread ran SqueezeNet (batch 16) at 99 samples/s and 1 x 2 at 83, for
    ///   7.4 and 8.5 ms of processor time a sample. The price is a copy of the weights per lane.
    /// - CUDA: one lane, because a GPU runs one batch at a time well and a second would double the weights on it.
    /// - 256 submissions and 1 GiB wait at most: 256 grants of 16 SqueezeNet samples are 15 s of work for two free cores;
    ///   what waits longer is better refused and sent again. 1 GiB holds 100 such grants of f32 pixels (10 MB each).
    /// - 2 minutes in the queue and 2 minutes running: VGG19, the slowest of the usual networks, takes 0.36 s a sample
    ///   on one thread, 46 s for a batch of 128; twice that leaves room for a busy machine.
    /// - 5 seconds beside somebody who waits: ten times what a run takes where its rows allow it. A row of the slowest of the usual networks takes
    ///   0.36 s, and 5 leave room for a fixed batch of 13 of them.
    /// - 1 minute to open a session: 10,000 layers take 1.6 s, and half a gigabyte of weights from a slow store some
    ///   seconds more. What takes longer was made to take long.
    /// - 1 second until an idle lane gives memory back: touching it again costs some ten milliseconds, a hundredth of this.
    /// - 64 sessions a lane, and 2 GiB of models where its memory is not bounded: three of the largest usual networks (VGG19, 0.57 GB) with
    ///   room to spare. Where it is, what that has room for decides.
    pub fn for_device(device: Device) -> Self {
        let lanes = match device {
            Device::Cpu => std::thread::available_parallelism().map_or(1, usize::from),
            Device::Cuda(_) => 1,
        };
        Self {
            device,
            place: LanesPlace::InProcess,
            lanes,
            memory: Memory::unbounded(),
            device_memory: None,
            arena_bytes: None,
            threads_per_lane: 1,
            queue_jobs: 256,
            queue_bytes: 1 << 30,
            queue_deadline: Duration::from_secs(120),
            open_deadline: Duration::from_secs(60),
            run_deadline: Duration::from_secs(120),
            hold_up: Duration::from_secs(5),
            idle: Duration::from_secs(1),
            sessions_per_lane: 64,
            session_bytes_per_lane: 2 << 30,
            on_begin: None,
        }
    }

    /// The same lanes within `memory`, that of a device. Of a lane's part ONNX Runtime's arena gets what CUDA leaves.
    #[must_use]
    pub fn within(self, memory: Memory) -> Self {
        let bytes = memory.read(|ledger| ledger.budget().bytes);
        let part = (bytes < u64::MAX).then(|| bytes / self.lanes.max(1) as u64);
        Self {
            arena_bytes: part.map(|part| part.saturating_sub(CUDA_BYTES).max(part / 2)),
            device_memory: Some(memory),
            ..self
        }
    }

    /// The memory that the lanes keep to, if they can: a device's own, or else the host's.
    pub(super) fn bounded(&self) -> Option<&Memory> {
        let memory = self.device_memory.as_ref().unwrap_or(&self.memory);
        Some(memory).filter(|memory| self.bounds(memory))
    }

    /// The host's memory, where the lanes keep to a device's.
    pub(super) fn beside(&self) -> Option<&Memory> {
        let beside = self.device_memory.is_some() && self.bounds(&self.memory);
        Some(&self.memory).filter(|_| beside)
    }

    fn bounds(&self, memory: &Memory) -> bool {
        let bounded = memory.read(|ledger| ledger.budget().bytes) < u64::MAX;
        bounded && self.place != LanesPlace::InProcess
    }

    /// The setting of a host that says how much memory there is for its lanes.
    pub(super) fn budget_key(&self) -> &'static str {
        match self.device_memory {
            Some(_) => "device_memory_budget",
            None => "memory_budget",
        }
    }

    /// The same with nothing at 0 that has to be at least 1.
    pub(super) fn checked(self) -> Self {
        let session_bytes_per_lane = match self.bounded() {
            Some(_) => usize::MAX,
            None => self.session_bytes_per_lane,
        };
        Self {
            lanes: self.lanes.max(1),
            threads_per_lane: self.threads_per_lane.max(1),
            sessions_per_lane: self.sessions_per_lane.max(1),
            session_bytes_per_lane,
            ..self
        }
    }
}

impl Default for LanesConfig {
    /// [`LanesConfig::for_device`] of the CPU.
    fn default() -> Self {
        Self::for_device(Device::Cpu)
    }
}

/// Where the lanes' sessions live.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LanesPlace {
    /// In this process: the fastest, and right where every network is one's own.
    #[default]
    InProcess,
    /// Each lane in a child process: a network that crashes ONNX Runtime ends only the run it was in.
    Child(ChildLanes),
}

/// How lanes run in child processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildLanes {
    /// A program that calls [`enter_lane`](crate::enter_lane), best by its full path.
    pub program: PathBuf,
    /// What makes it do so.
    pub arguments: Vec<OsString>,
    /// How long a run that was told to end may take to do so, before its process is killed.
    pub grace: Duration,
    /// How long a model that crashed two processes is not run any more, for the tenant whose work it was.
    pub quarantine: Duration,
    /// Bytes of address space a process may have; `None` for no bound.
    pub address_space: Option<u64>,
    /// Where stages are kept prepared, whose weights lanes share; `None` for a copy of them in each lane.
    pub prepared: Option<PreparedStages>,
    /// What a lane keeps from one tenant to the next.
    pub isolation: Isolation,
    /// Whether a process must not work without one of its walls (`frostline-walls`); else it says which it lacks.
    pub require_walls: bool,
}

/// What a lane keeps when its next run is another tenant's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Its process and sessions; memory of the last run is given back before.
    #[default]
    Shared,
    /// Nothing: its process ends, and another one runs the next tenant's work.
    Tenant,
}

/// Where stages are kept prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedStages {
    /// A folder that nobody but this host writes to.
    pub folder: PathBuf,
    /// Bytes that may lie there; those used longest ago go first.
    pub most_bytes: u64,
}

impl ChildLanes {
    /// Processes of `program`, with the defaults:
    ///
    /// - 10 seconds of grace: ONNX Runtime looks for the signal between two layers, and the largest layers of the usual
    ///   networks take seconds with a batch of 128 on one thread.
    /// - 1 hour of quarantine: whoever tries again and again costs the host two restarts of a lane (0.1 s each) an hour.
    /// - Nothing prepared: that needs a folder.
    /// - Processes that tenants share: another one for each switch costs 0.1 s and the sessions.
    /// - No bound on address space: CUDA reserves hundreds of gigabytes that it never uses. On a CPU, four times the
    ///   session bytes leave room for what networks compute.
    pub fn new(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            grace: Duration::from_secs(10),
            quarantine: Duration::from_secs(3600),
            address_space: None,
            prepared: None,
            isolation: Isolation::Shared,
            require_walls: false,
        }
    }
}
