use crate::artefacts::Artefacts;
use crate::bindings::{FrozenPrefix, FrozenPrefixPre};
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::guest::Guest;
use crate::state::CallState;
use crate::threads::GuestThreads;
use crate::{engine, upload, world};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio::sync::Semaphore;
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Engine, Store};

/// Compilations at once. Each uses every core already, and holds some hundred times the guest's size in memory.
const COMPILATIONS: usize = 1;

/// Checks, compiles and runs guests. Cheap to clone; the last clone, with the last [`Guest`], ends its threads.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: SandboxConfig,
    pub(crate) threads: GuestThreads,
    pub(crate) places: Arc<Semaphore>,
    engine: Engine,
    linker: Linker<CallState>,
    artefacts: Option<Artefacts>,
    compilations: Arc<Semaphore>,
}

impl Sandbox {
    /// Sets up the engine, its pool of instances and the guests' threads.
    ///
    /// # Errors
    /// [`SandboxError::Host`] when the machine lacks the address space or threads, or the artefact directory cannot be
    /// used.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let engine = engine::start(&config)?;
        let mut linker = Linker::new(&engine);
        FrozenPrefix::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)
            .map_err(|error| SandboxError::host(format!("cannot link the host's functions: {error:#}")))?;
        let artefacts = match &config.artefacts {
            Some(directory) => Some(Artefacts::open(directory, &engine, config.artefact_bytes)?),
            None => None,
        };
        let places = usize::try_from(config.instances)
            .unwrap_or(usize::MAX)
            .min(Semaphore::MAX_PERMITS);
        Ok(Self {
            inner: Arc::new(Inner {
                threads: GuestThreads::start(config.guest_threads)?,
                places: Arc::new(Semaphore::new(places)),
                compilations: Arc::new(Semaphore::new(COMPILATIONS)),
                engine,
                linker,
                artefacts,
                config,
            }),
        })
    }

    /// Makes a guest of the bytes a tenant sent, a component or a core module built with the SDK: checks and compiles
    /// them, or loads what was compiled before.
    ///
    /// # Errors
    /// [`SandboxError::NotAGuest`], [`SandboxError::GuestTooLarge`] and [`SandboxError::OtherWorld`] say what is wrong
    /// with the bytes; [`SandboxError::PrepareDeadline`] that the host had no time for them.
    pub async fn prepare(&self, bytes: impl Into<Bytes>) -> Result<Guest, SandboxError> {
        let bytes = bytes.into();
        let inner = Arc::clone(&self.inner);
        let after = inner.config.prepare_deadline;
        let prepared = async {
            let permit = Arc::clone(&inner.compilations).acquire_owned().await;
            let working = Arc::clone(&inner);
            let work = inner.threads.spawn_blocking(move || {
                let pre = working.prepare(&bytes);
                drop(permit);
                pre
            });
            work.await
        };
        let (sha256, pre) = match tokio::time::timeout(after, prepared).await {
            Ok(done) => done??,
            Err(_) => return Err(SandboxError::PrepareDeadline { after }),
        };
        Ok(Guest::new(self.clone(), sha256, pre))
    }
}

impl Inner {
    fn prepare(&self, bytes: &[u8]) -> Result<(String, FrozenPrefixPre<CallState>), SandboxError> {
        let sha256 = hex::encode(Sha256::digest(bytes));
        let stored = self
            .artefacts
            .as_ref()
            .and_then(|artefacts| artefacts.load(&self.engine, &sha256));
        let component = match stored {
            Some(component) => component,
            None => self.compile(bytes, &sha256)?,
        };
        Ok((sha256, world::link(&self.engine, &self.linker, &component)?))
    }

    fn compile(&self, bytes: &[u8], sha256: &str) -> Result<Component, SandboxError> {
        let encoded = upload::component(bytes, &self.config)?;
        let component = Component::new(&self.engine, &encoded)
            .map_err(|error| SandboxError::not_a_guest(format!("{error:#}")))?;
        if let Some(artefacts) = &self.artefacts {
            artefacts.store(sha256, &component);
        }
        Ok(component)
    }

    /// A store for one call: limited, and interrupted at every tick.
    pub(crate) fn store(&self, state: CallState) -> Store<CallState> {
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| state);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        store
    }
}
