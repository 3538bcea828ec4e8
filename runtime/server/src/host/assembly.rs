//! Assembles the components of a host from the configuration.

use super::error::StartError;
use crate::config::{HostConfig, StateLocation, Stores};
use crate::extraction::DEFAULT_GRANT;
use crate::fleet::{Cancellations, Fleet};
use crate::guest_logs::{GuestLogs, since_1970};
use crate::jobs::Jobs;
use crate::library::{Library, Uploads};
use crate::machine::Machine;
use crate::metrics::{Build, Exposition, Metrics, Queue};
use crate::partials::{PartialLimits, Partials};
use crate::roots::RootHealth;
use crate::scheduling::Scheduling;
use crate::service::{Operations, Service};
use crate::stages::ModelStages;
use crate::tenants::{CONFIGURED, Revocations, TenantRecord, Tenants, TokenThrottle};
use crate::tls::Certificate;
use crate::token::TokenFile;
use frostline_batching::{Budget, Charge, Memory};
use frostline_engine::{
    Device, Lanes, LanesConfig, LanesPlace, PreparedStages, free_device_memory, library_version,
};
use frostline_images::DecodePool;
use frostline_objects::Store;
use frostline_profile::ProfileFolder;
use frostline_sandbox::{Sandbox, SandboxConfig};
use frostline_state::{
    Accounts, Audit, Clock, ClockCheck, Documents, ModelFacts, SHARED, SharedState, StateError, UploadLimits,
    UploadStore, unique_id,
};
use frostline_wire::JobStage;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Opens the folder for interrupted uploads.
fn partials(config: &HostConfig, clock: &Arc<Clock>) -> Result<Partials, StartError> {
    let limits = PartialLimits {
        number: config.limits.partials,
        bytes: config.limits.partial_bytes,
        age: config.limits.partial_age,
    };
    let folder = config.local.join("partials");
    let opened = Partials::open(folder.clone(), limits, Arc::clone(clock));
    opened.map_err(StartError::directory(&folder))
}

/// Creates the folders of the host, readable only for the current user. Existing folders are not changed; a
/// warning is logged if other users can read them.
pub(super) fn make_folders(config: &HostConfig) -> Result<(), StartError> {
    let state = match &config.state {
        StateLocation::Directory(path) => Some(path),
        StateLocation::Store(_) => None,
    };
    let local = (state != Some(&config.local)).then_some(&config.local);
    for path in state.into_iter().chain(local) {
        let opened = frostline_sealed::make_folder(path).map_err(StartError::directory(path))?;
        if opened & 0o077 != 0 {
            let folder = path.display();
            tracing::warn!(%folder, "other users can read the host's folder; run chmod go-rwx on it");
        }
    }
    Ok(())
}

fn saturating_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn sandbox_config(config: &HostConfig) -> SandboxConfig {
    SandboxConfig {
        artifacts: Some(config.local.join("artifacts")),
        upload_bytes: saturating_usize(config.limits.guest_bytes),
        memory_bytes: saturating_usize(config.guests.memory_bytes),
        table_elements: config.guests.table_elements,
        handles: config.guests.handles,
        compiler: config.compiler.clone(),
        compiler_memory_bytes: config.guests.compile_bytes.min(config.memory_budget / 2),
        compiler_cpu_seconds: config.guests.compile_seconds,
        ..SandboxConfig::default()
    }
}

pub(super) async fn service(
    config: HostConfig,
    token: Arc<TokenFile>,
    certificate: Option<Arc<Certificate>>,
) -> Result<Service, StartError> {
    let metrics = Arc::<Metrics>::default();
    let jobs = Arc::<Jobs>::default();
    let OpenState {
        audit,
        accounts,
        clock,
        fleet,
        tenants,
        revocations,
        uploads,
    } = open_state(&config, &metrics).await?;
    let scheduling = Scheduling::new(&config);
    let machine = machine(
        &config,
        scheduling.memory.clone(),
        Arc::clone(&uploads.models),
        &metrics,
        &jobs,
    )?;
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        device: config.device.to_string(),
        library: machine.library.clone(),
    };
    let hides_settings = config.hides_store_settings;
    let roots = RootHealth::new(config.live.clone(), hides_settings, metrics.store_errors.clone());
    Ok(Service {
        tenants: Tenants::new(token, &config, tenants, revocations, Arc::clone(&machine.lanes)),
        throttle: TokenThrottle::new(),
        library: Library::new(
            uploads,
            Arc::clone(&roots),
            Sandbox::new(sandbox_config(&config))?,
            config.limits.descriptions,
            scheduling.memory.clone(),
        ),
        operations: Operations {
            exposition: Exposition::new(&metrics, build),
            metrics,
            roots,
            lines: Arc::new(GuestLogs::new(since_1970())),
            audit,
            jobs,
            accounts,
            certificate,
        },
        machine,
        scheduling,
        fleet,
        clock,
        config,
    })
}

/// The opened state, and what compares this host with the other hosts of the state.
struct OpenState {
    audit: Audit,
    accounts: Accounts,
    clock: Arc<Clock>,
    fleet: Fleet,
    tenants: Documents<TenantRecord>,
    revocations: Arc<Revocations>,
    uploads: Uploads,
}

/// Opens the state, and checks the clock.
async fn open_state(config: &HostConfig, metrics: &Arc<Metrics>) -> Result<OpenState, StartError> {
    let store = state_store(&config.state, &config.live.get().stores)?;
    let metrics = Arc::clone(metrics);
    let limits = UploadLimits {
        names: config.limits.names,
        versions: config.limits.versions,
    };
    let opening = SharedState::open(Arc::clone(&store), limits, move |owner| match owner {
        SHARED => Charge::default(),
        tenant => metrics.tenants.blocking_of(tenant),
    });
    let state = opening.await?;
    let run = unique_id().map_err(StateError::from)?;
    let clock = Arc::new(Clock::new(config.clock.clone(), Arc::clone(&store)));
    let fleet = Fleet::new(
        Arc::clone(&store),
        Arc::clone(&clock),
        run.clone(),
        Cancellations::new(state.jobs),
        state.drains,
    );
    fleet.list().await?;
    // The state's store and another host contradict the clock of this machine.
    if let ClockCheck::Outvoted(ahead) = clock.check() {
        return Err(StartError::Clock { ahead });
    }
    Ok(OpenState {
        audit: Audit::new(
            Arc::clone(&store),
            run.clone(),
            config.name.clone(),
            Arc::clone(&clock),
        ),
        accounts: Accounts::new(store, run, Arc::clone(&clock)),
        fleet,
        tenants: state.tenants,
        revocations: revocations(config)?,
        uploads: Uploads {
            guests: state.guests,
            models: state.models,
            journal: state.journal,
            partials: partials(config, &clock)?,
        },
        clock,
    })
}

/// Reads the revocations that an earlier run could not write to the state.
fn revocations(config: &HostConfig) -> Result<Arc<Revocations>, StartError> {
    let path = config.local.join("revocations.json");
    let opened = Revocations::open(path.clone());
    opened.map(Arc::new).map_err(StartError::directory(&path))
}

/// Returns the location of the lanes. Lanes in child processes share prepared stages in a folder of the host.
fn place(config: &HostConfig) -> LanesPlace {
    let mut place = config.lanes_place.clone();
    if let LanesPlace::Child(child) = &mut place {
        child.prepared = Some(PreparedStages {
            folder: config.local.join("stages"),
            most_bytes: config.limits.prepared_bytes,
        });
    }
    place
}

/// Memory budget for the GPU: the configured value, or 90 % of the free memory, because the driver also needs
/// some and this amount grows. `None` if the lanes run on the CPU.
fn device_memory(config: &HostConfig) -> Option<Memory> {
    if config.device == Device::Cpu {
        return None;
    }
    let budget = config
        .device_memory_budget
        .or_else(|| free_device_memory(config.device).map(|free| free / 10 * 9));
    let bytes = budget.unwrap_or_else(|| {
        let device = config.device;
        tracing::warn!(%device, "cannot determine the free GPU memory, so it is not limited; set engine.device_memory_budget");
        u64::MAX
    });
    Some(Memory::new(Budget {
        bytes,
        ..Budget::default()
    }))
}

/// Starts the lanes and decode threads.
fn machine(
    config: &HostConfig,
    memory: Memory,
    models: Arc<UploadStore<ModelFacts>>,
    metrics: &Arc<Metrics>,
    jobs: &Arc<Jobs>,
) -> Result<Machine, StartError> {
    let waits = metrics.queue_waits.clone();
    let jobs = Arc::clone(jobs);
    let device_memory = device_memory(config);
    let lanes = LanesConfig {
        lanes: config.lanes,
        threads_per_lane: config.threads_per_lane,
        place: place(config),
        memory,
        on_begin: Some(Arc::new(move |begun| {
            waits.observe(Queue::Lane, begun.waited);
            if let Some(clock) = jobs.clock(begun.extraction) {
                clock.add(JobStage::Lane, begun.waited, begun.rows as u64);
            }
        })),
        ..LanesConfig::for_device(config.device)
    };
    let lanes = match device_memory {
        Some(memory) => lanes.within(memory),
        None => lanes,
    };
    let stages = ModelStages::new(models, Handle::current(), &lanes.memory, config.limits.model);
    let gpu = match config.device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(index),
    };
    Ok(Machine {
        lanes: Arc::new(Lanes::start(lanes, Arc::new(stages))?),
        decoders: DecodePool::start(config.decode_threads)
            .map_err(|source| StartError::Threads { source })?,
        profile_rows: config
            .device
            .padded_rows()
            .unwrap_or_else(|| config.grant.min(DEFAULT_GRANT)),
        profiles: ProfileFolder::new(config.local.join("profiles")),
        library: format!("onnxruntime {}", library_version()?),
        name: frostline_profile::machine(gpu),
    })
}

pub(super) fn state_store(place: &StateLocation, stores: &Stores) -> Result<Arc<Store>, StartError> {
    let url = match place {
        StateLocation::Store(url) => url.clone(),
        StateLocation::Directory(path) => directory_url(path).map_err(StartError::directory(path))?,
    };
    let store = stores
        .open(&url, CONFIGURED)
        .map_err(|source| StartError::StateStore { source })?;
    Ok(Arc::new(store))
}

/// Creates a directory if it is missing, and returns its URL.
fn directory_url(path: &Path) -> std::io::Result<String> {
    std::fs::create_dir_all(path)?;
    let path = std::fs::canonicalize(path)?;
    let url = url::Url::from_directory_path(&path).map_err(|()| std::io::ErrorKind::InvalidInput)?;
    Ok(url.into())
}
