use crate::{CudaOptions, Device};
use frostline_batching::Memory;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Memory for the smallest engine batch in addition to the lane's process: a row of a common network and a
/// session with mapped weights.
pub(super) const SMALLEST_RUN: u64 = 64 << 20;

/// GPU memory that a lane's process needs in addition to ONNX Runtime's arena: CUDA's context and kernel code
/// (520 MB on an H200), with a margin for further kernels.
const CUDA_BYTES: u64 = 768 << 20;

/// Callback for rows that start on a lane. The callback must not block.
pub type OnBegin = Arc<dyn Fn(Begun<'_>) + Send + Sync>;

/// Rows that start on a lane. All of them belong to the same submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun<'a> {
    /// The extraction that submitted the rows.
    pub extraction: &'a str,
    /// Number of rows.
    pub rows: usize,
    /// Time the rows waited for the lane.
    pub waited: Duration,
}

/// Settings and limits of lanes.
#[derive(Clone)]
pub struct LanesConfig {
    /// Device of all lanes.
    pub device: Device,
    /// Place of the lanes' sessions.
    pub place: LanesPlace,
    /// Number of lanes; 0 means 1.
    pub lanes: usize,
    /// Ledger in which lanes in child processes reserve host memory. Lanes in this process reserve nothing,
    /// because their memory cannot be measured separately.
    pub memory: Memory,
    /// Ledger in which lanes in child processes reserve device memory. If set, the host memory of these
    /// processes is only booked in `memory` after each batch. `None` if the device has no separate memory.
    pub device_memory: Option<Memory>,
    /// Limit in bytes for the GPU arena of each session. CUDA's other memory is not included. No limit if
    /// `None`.
    pub arena_bytes: Option<u64>,
    /// Options of the CUDA provider.
    pub cuda: CudaOptions,
    /// Number of threads per operator; 0 means 1.
    pub threads_per_lane: usize,
    /// Maximum number of waiting and running submissions. Tenants share this limit fairly, and each tenant
    /// may have at least one submission.
    pub queue_jobs: usize,
    /// Maximum size of all batches in the queue in bytes, shared in the same way.
    pub queue_bytes: usize,
    /// Maximum time a submission waits for a lane.
    pub queue_deadline: Duration,
    /// Maximum time to prepare a stage, and to open a session, which includes reading and optimizing the
    /// network.
    pub open_deadline: Duration,
    /// Maximum execution time of engine batches, measured from the opened session.
    pub run_deadline: Duration,
    /// Maximum time an engine batch, with the opening of the session, may block tenants without rows on any
    /// lane, and a preparation tenants without a preparation.
    pub hold_up: Duration,
    /// Idle time before a lane releases memory that only the next batch would reuse.
    pub idle: Duration,
    /// Maximum number of sessions per lane. The least recently used session is closed first.
    pub sessions_per_lane: usize,
    /// Maximum size in bytes of all models with sessions on a lane, if the memory of lanes is unlimited.
    /// Larger models still run, without other sessions.
    pub session_bytes_per_lane: usize,
    /// Receives the waiting times of rows.
    pub on_begin: Option<OnBegin>,
}

impl LanesConfig {
    /// Returns the defaults for `device`.
    ///
    /// - CPU: one lane per core with a single thread each, which avoids synchronization of threads within
    ///   operators. On two busy cores, SqueezeNet (batch 16) reached 99 samples/s and 7.4 ms of CPU time per
    ///   sample with 2 lanes x 1 thread, but 83 samples/s and 8.5 ms with 1 x 2. The price is a copy of the
    ///   weights per lane.
    /// - CUDA: one lane, because a GPU processes a single batch efficiently and a second lane would double
    ///   the weights.
    /// - 256 submissions and 1 GiB in the queue: 256 grants of 16 SqueezeNet samples are 15 s of work for two
    ///   idle cores. Requests beyond this should be refused and retried instead of waiting longer. 1 GiB is
    ///   enough for 100 such grants of f32 pixels (10 MB each).
    /// - 2 minutes in the queue and 2 minutes of execution: VGG19, the slowest common network, needs 0.36 s
    ///   per sample on a single thread and 46 s for a batch of 128. The limit is more than twice as long
    ///   because machines can be busy.
    /// - 5 seconds while another tenant waits: ten times the time slice, and enough for a fixed batch of 13
    ///   rows of VGG19.
    /// - 1 minute to open a session: 10,000 layers need 1.6 s, and half a gigabyte of weights from a slow
    ///   store some seconds more. Only a malicious network needs longer.
    /// - 1 second until an idle lane releases memory: touching the memory again costs about ten milliseconds,
    ///   a hundredth of this.
    /// - 64 sessions per lane, and 2 GiB of models if memory is unlimited: three of the largest common
    ///   networks (VGG19, 0.57 GB) with a margin. Otherwise the memory budget decides.
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
            cuda: CudaOptions::default(),
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

    /// Bounds the lanes by `memory`, the ledger of a device. Each session's arena is limited to the lane's
    /// part minus CUDA's own memory, but to half of that part or more.
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

    /// Returns the ledger that bounds the lanes: the device's if it is set, otherwise the host's. Returns
    /// `None` if the ledger is unlimited or the lanes run in this process.
    pub(super) fn bounding_ledger(&self) -> Option<&Memory> {
        let memory = self.device_memory.as_ref().unwrap_or(&self.memory);
        Some(memory).filter(|memory| self.bounds(memory))
    }

    /// Returns the ledger that bounds the private memory of the lanes' processes, or `None` if that memory is
    /// not limited: in this process, without a budget, and on a device with separate memory.
    pub(super) fn process_ledger(&self) -> Option<&Memory> {
        self.bounding_ledger().filter(|_| self.device_memory.is_none())
    }

    /// Returns the host's ledger if a device's memory bounds the lanes and the host's memory is limited, too.
    pub(super) fn host_ledger(&self) -> Option<&Memory> {
        let beside = self.device_memory.is_some() && self.bounds(&self.memory);
        Some(&self.memory).filter(|_| beside)
    }

    fn bounds(&self, memory: &Memory) -> bool {
        let bounded = memory.read(|ledger| ledger.budget().bytes) < u64::MAX;
        bounded && self.place != LanesPlace::InProcess
    }

    /// Returns the host setting for the memory of lanes.
    pub(super) fn budget_key(&self) -> &'static str {
        match self.device_memory {
            Some(_) => "device_memory_budget",
            None => "memory_budget",
        }
    }

    /// Replaces zeros that are treated as 1, and removes the limit on session bytes if memory is bounded.
    pub(super) fn checked(self) -> Self {
        let session_bytes_per_lane = match self.bounding_ledger() {
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
    /// Returns [`LanesConfig::for_device`] for the CPU.
    fn default() -> Self {
        Self::for_device(Device::Cpu)
    }
}

/// Place of the lanes' sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LanesPlace {
    /// In this process. This is the fastest place, and appropriate if all networks are trusted.
    #[default]
    InProcess,
    /// In child processes, one per lane. A network that crashes ONNX Runtime only ends the current engine
    /// batch.
    Child(ChildLanes),
}

/// Settings of lanes in child processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildLanes {
    /// Program that calls [`enter_lane`](crate::enter_lane), preferably an absolute path.
    pub program: PathBuf,
    /// Arguments that make the program call [`enter_lane`](crate::enter_lane).
    pub arguments: Vec<OsString>,
    /// Time for an interrupted execution to stop before the process is killed. While another tenant waits for
    /// a lane, it is at most one second.
    pub grace: Duration,
    /// Duration of a quarantine, which follows two crashes with the same model and applies to a single
    /// tenant.
    pub quarantine: Duration,
    /// Limit in bytes for the address space of each process. No limit if `None`.
    pub address_space: Option<u64>,
    /// Folder for prepared stages, which share weights between lanes. With `None`, each lane loads a copy of
    /// the weights.
    pub prepared: Option<PreparedStages>,
    /// State that survives a change of tenants.
    pub isolation: Isolation,
    /// Requires all walls (`frostline-walls`). Without this setting, missing walls are only logged.
    pub require_walls: bool,
}

/// State that a lane keeps when the next engine batch belongs to another tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Keeps the process and sessions, but releases the memory of the last batch.
    #[default]
    Shared,
    /// Keeps nothing. The process is replaced.
    Tenant,
}

/// Settings of the prepared stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedStages {
    /// A folder to which only this host writes.
    pub folder: PathBuf,
    /// Maximum size in bytes. The least recently used stages are evicted.
    pub most_bytes: u64,
}

impl ChildLanes {
    /// Creates settings for `program` with the defaults:
    ///
    /// - 10 seconds of grace: ONNX Runtime checks for interrupts between two layers, and the largest layers
    ///   of common networks need seconds for a batch of 128 on a single thread.
    /// - 1 hour of quarantine: a client that keeps trying costs the host two restarts of a lane (0.1 s each)
    ///   per hour.
    /// - No prepared stages, because they need a folder.
    /// - Shared processes: each replacement costs 0.1 s and the sessions.
    /// - No limit on address space: CUDA reserves hundreds of gigabytes without using them. On a CPU, four
    ///   times the session bytes leave room for the computation.
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
