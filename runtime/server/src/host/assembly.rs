//! Everything a host is made of, by its configuration.

use super::StartError;
use crate::audit::Audit;
use crate::config::upload_units;
use crate::metrics::Metrics;
use crate::scheduling::{Admission, GrantDesk};
use crate::service::{ASKING, Service};
use crate::stages::ModelStages;
use crate::state::{PartialLimits, Partials, SharedState};
use crate::tenants::{Bouncer, Tenants};
use crate::token::TokenHash;
use crate::{HostConfig, StatePlace};
use frostline_batching::{GrantRules, Grants};
use frostline_engine::{Device, Lanes, LanesConfig, library_version};
use frostline_images::DecodePool;
use frostline_objects::Store;
use frostline_profile::{Folder, machine};
use frostline_sandbox::{Sandbox, SandboxConfig};
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Data roots whose stores are kept open, with their connections.
const OPEN_STORES: usize = 64;

/// Guests kept ready to run; loading a compiled one again takes under a millisecond.
const PREPARED_GUESTS: usize = 64;

/// What may be kept of uploads that broke off.
fn partials(config: &HostConfig) -> Result<Partials, StartError> {
    let limits = PartialLimits {
        number: config.limits.partials,
        bytes: config.limits.partial_bytes,
        age: config.limits.partial_age,
    };
    let folder = config.local.join("partials");
    Partials::open(folder.clone(), limits).map_err(|source| StartError::Directory { path: folder, source })
}

fn audit(config: &HostConfig) -> Result<Audit, StartError> {
    Audit::open(&config.local).map_err(|source| StartError::Directory {
        path: config.local.clone(),
        source,
    })
}

pub(super) async fn service(config: HostConfig) -> Result<Service, StartError> {
    let token = TokenHash::read_or_create(&config.token_file)?;
    let limits = config.limits;
    let state = Arc::new(SharedState::open(state_store(&config.state)?, &limits).await?);
    let sandbox = Sandbox::new(SandboxConfig {
        artefacts: Some(config.local.join("artefacts")),
        upload_bytes: usize::try_from(limits.guest_bytes).unwrap_or(usize::MAX),
        compiler: config.compiler.clone(),
        ..SandboxConfig::default()
    })?;
    let lanes = LanesConfig {
        lanes: config.lanes,
        threads_per_lane: config.threads_per_lane,
        place: config.lanes_place.clone(),
        ..LanesConfig::for_device(config.device)
    };
    let stages = ModelStages::new(Arc::clone(&state.models), limits.stage_bytes, Handle::current());
    let lanes = Arc::new(Lanes::start(lanes, Arc::new(stages))?);
    let gpu = match config.device {
        Device::Cpu => None,
        Device::Cuda(index) => Some(index),
    };
    let work = TaskTracker::new();
    let rules = GrantRules {
        samples: config.grant,
        ..GrantRules::default()
    };
    Ok(Service {
        tenants: Tenants::new(token, &config, Arc::clone(&state.tenants), Arc::clone(&lanes)),
        bouncer: Bouncer::new(),
        state,
        sandbox,
        lanes,
        decoders: DecodePool::start(config.decode_threads)
            .map_err(|source| StartError::Threads { source })?,
        stores: Cache::new(OPEN_STORES),
        prepared: Cache::new(PREPARED_GUESTS),
        descriptions: Cache::new(limits.descriptions),
        admission: Admission::new("extractions", config.running, config.queued, work.clone()),
        asking: Admission::new("descriptions", ASKING, config.queued, work.clone()),
        profile_lines: Admission::new("profiles", usize::MAX, config.queued, work.clone()),
        desk: GrantDesk::new(Grants::new(
            rules,
            config.grant.saturating_mul(config.running.max(config.calls)),
        )),
        profiles: Folder::new(config.local.join("profiles")),
        profiling: tokio::sync::Mutex::new(()),
        library: format!("onnxruntime {}", library_version()?),
        machine: machine(gpu),
        partials: partials(&config)?,
        uploads: Arc::new(Semaphore::new(upload_units(limits.upload_bytes) as usize)),
        metrics: Arc::new(Metrics::default()),
        audit: audit(&config)?,
        work,
        end: CancellationToken::new(),
        config,
    })
}

fn state_store(place: &StatePlace) -> Result<Arc<Store>, StartError> {
    let url = match place {
        StatePlace::Store(url) => url.clone(),
        StatePlace::Directory(path) => {
            let directory = |source| StartError::Directory {
                path: path.clone(),
                source,
            };
            std::fs::create_dir_all(path).map_err(directory)?;
            let path = std::fs::canonicalize(path).map_err(directory)?;
            let url = url::Url::from_directory_path(&path)
                .map_err(|()| directory(std::io::ErrorKind::InvalidInput.into()))?;
            url.into()
        }
    };
    let store = Store::open(&url).map_err(|source| StartError::StateStore { source })?;
    Ok(Arc::new(store))
}
