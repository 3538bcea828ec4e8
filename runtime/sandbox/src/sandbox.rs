use crate::allowance::Allowance;
use crate::artifacts::Artifacts;
use crate::bindings::FrozenPrefix;
use crate::child::{Compilation, KillOnDrop};
use crate::compiler::ChildCompiler;
use crate::config::{Compiler, Limits, SandboxConfig};
use crate::error::SandboxError;
use crate::guest::Guest;
use crate::runner::Runner;
use crate::state::CallState;
use crate::text::{MAX_MESSAGE_BYTES, one_line};
use crate::{compiler, upload, world};
use bytes::Bytes;
use frostline_batching::{Charge, Permit, Share, TurnGate};
use sha2::{Digest, Sha256};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use wasmtime::component::{Component, HasSelf, Linker};

/// Maximum number of concurrent compilations. A compilation uses a core, and about a hundred times the size
/// of the guest in memory.
const COMPILATIONS: usize = 1;

/// Maximum number of compiled guests loaded at the same time, in addition to compilations. Loading takes a
/// millisecond.
const LOADS: usize = 1;

/// Checks, compiles and runs guests. Cloning is cheap. The threads end after the last clone and the last
/// [`Guest`] are dropped.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
    tenant: Arc<str>,
}

struct Inner {
    runner: Arc<Runner>,
    linker: Linker<CallState>,
    artifacts: Option<Artifacts>,
    compilations: Arc<TurnGate>,
    loads: Arc<TurnGate>,
}

impl Sandbox {
    /// Creates the engine, the instance pool and the threads for guest code.
    ///
    /// # Errors
    /// Returns [`SandboxError::Host`] if the machine does not have enough address space or threads, or if the
    /// artifact directory cannot be used.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let runner = Runner::start(config)?;
        let mut linker = Linker::new(&runner.engine);
        FrozenPrefix::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)
            .map_err(|error| SandboxError::host(format!("cannot link the host functions: {error:#}")))?;
        let max_bytes = runner.config.artifact_bytes;
        let directory = runner.config.artifacts.as_deref();
        let inner = Inner {
            artifacts: directory
                .map(|directory| Artifacts::open(directory, &runner.engine, max_bytes))
                .transpose()?,
            compilations: TurnGate::open(COMPILATIONS, usize::MAX),
            loads: TurnGate::open(LOADS, usize::MAX),
            linker,
            runner: Arc::new(runner),
        };
        Ok(Self {
            inner: Arc::new(inner),
            tenant: Arc::from(""),
        })
    }

    /// Returns a handle to the same sandbox for a tenant. Tenants take turns in preparing and describing
    /// guests. The tenant of an extraction is set in [`Labels`](crate::Labels) instead.
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            tenant: Arc::from(tenant),
        }
    }

    /// Removes cached artifacts except those of `guests`, pairs of tenant and SHA-256. Blocks.
    ///
    /// # Errors
    /// Returns the operating system's error if the directory cannot be read or a file cannot be removed.
    pub fn retain<'a>(&self, guests: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
        let artifacts = self.inner.artifacts.as_ref();
        artifacts.map_or(Ok(()), |artifacts| artifacts.retain(guests))
    }

    /// Calls [`Self::prepare_within`] with default limits.
    ///
    /// # Errors
    /// Returns the errors of [`Self::prepare_within`].
    pub async fn prepare(&self, bytes: impl Into<Bytes>) -> Result<Guest, SandboxError> {
        self.prepare_within(bytes, &Allowance::new(Limits::default()))
            .await
    }

    /// Prepares a guest from the bytes sent by a tenant, either a component or a core module built with the
    /// SDK. Loads the guest from the cache, or checks and compiles it. Compile time is charged to
    /// `allowance`. Dropping the future kills the compiler process.
    ///
    /// # Errors
    /// Returns [`SandboxError::NotAGuest`], [`SandboxError::GuestTooLarge`], [`SandboxError::TooComplex`] or
    /// [`SandboxError::OtherWorld`] if the bytes are invalid. Returns [`SandboxError::TooCostly`] if
    /// compilation exceeds a limit, and [`SandboxError::PrepareDeadline`] if the host is too busy.
    pub async fn prepare_within(
        &self,
        bytes: impl Into<Bytes>,
        allowance: &Arc<Allowance>,
    ) -> Result<Guest, SandboxError> {
        self.in_time(self.prepare_in_turn(bytes.into(), allowance)).await
    }

    /// Returns the guest with this SHA-256 from the cache, without its bytes, or `None` if it is not cached for the
    /// tenant. The time is charged to `allowance`.
    ///
    /// # Errors
    /// Returns [`SandboxError::PrepareDeadline`] if the host is too busy, and other errors if the guest cannot be
    /// linked.
    pub async fn cached(
        &self,
        sha256: &str,
        allowance: &Arc<Allowance>,
    ) -> Result<Option<Guest>, SandboxError> {
        let sha256 = sha256.to_owned();
        self.in_time(self.load_in_turn(move || sha256, allowance)).await
    }

    /// Waits for a preparation up to the deadline.
    async fn in_time<T>(
        &self,
        preparation: impl Future<Output = Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        let after = self.inner.runner.config.prepare_deadline;
        let prepared = tokio::time::timeout(after, preparation).await;
        prepared.map_err(|_| SandboxError::PrepareDeadline { after })?
    }

    async fn prepare_in_turn(&self, bytes: Bytes, allowance: &Arc<Allowance>) -> Result<Guest, SandboxError> {
        // Cached guests do not wait for compilations.
        let hashed = bytes.clone();
        let loading = self.load_in_turn(move || hex::encode(Sha256::digest(&hashed)), allowance);
        if let Some(guest) = loading.await? {
            return Ok(guest);
        }
        let permit = self.permit(&self.inner.compilations).await?;
        let compilation = Compilation::default();
        let _kill = KillOnDrop(compilation.clone());
        let sandbox = self.clone();
        let allowance = Arc::clone(allowance);
        let Runner { threads, config, .. } = &*self.inner.runner;
        // The work counts its duration, which includes that of the compiler process.
        let charge = Charge::default();
        threads
            .prepare(permit, config.prepare_deadline, charge, move |_| {
                let started = Instant::now();
                let prepared = sandbox.compile_once(&bytes, &compilation);
                allowance.count_compiling(started.elapsed());
                prepared
            })
            .await?
    }

    /// Loads the guest with the SHA-256 that `sha256` computes on a thread for blocking work.
    async fn load_in_turn(
        &self,
        sha256: impl FnOnce() -> String + Send + 'static,
        allowance: &Arc<Allowance>,
    ) -> Result<Option<Guest>, SandboxError> {
        if self.inner.artifacts.is_none() {
            return Ok(None);
        }
        let permit = self.permit(&self.inner.loads).await?;
        let sandbox = self.clone();
        let Runner { threads, config, .. } = &*self.inner.runner;
        let allowance = Arc::clone(allowance);
        let charge = Charge::new(move |spent| allowance.count_compiling(spent));
        threads
            .prepare(permit, config.prepare_deadline, charge, move |_| {
                sandbox.load(&sha256())
            })
            .await?
    }

    async fn permit(&self, gate: &Arc<TurnGate>) -> Result<Permit, SandboxError> {
        Ok(gate.enter(&self.tenant, Share::Adaptive).await?)
    }

    fn compile_once(&self, bytes: &[u8], compilation: &Compilation) -> Result<Guest, SandboxError> {
        let sha256 = hex::encode(Sha256::digest(bytes));
        // Another request may have compiled the guest in the meantime.
        if let Some(loaded) = self.load(&sha256)? {
            return Ok(loaded);
        }
        let component = self.compile(bytes, &sha256, compilation)?;
        self.link(&sha256, &component)
    }

    /// Loads and links a cached guest. Returns `None` if the cache does not contain it.
    fn load(&self, sha256: &str) -> Result<Option<Guest>, SandboxError> {
        let engine = &self.inner.runner.engine;
        let artifacts = self.inner.artifacts.as_ref();
        let stored = artifacts.and_then(|artifacts| artifacts.load(engine, &self.tenant, sha256));
        stored.map(|component| self.link(sha256, &component)).transpose()
    }

    fn link(&self, sha256: &str, component: &Component) -> Result<Guest, SandboxError> {
        let Inner { runner, linker, .. } = &*self.inner;
        Ok(Guest {
            pre: world::link(&runner.engine, linker, component)?,
            runner: Arc::clone(runner),
            tenant: Arc::clone(&self.tenant),
            sha256: Arc::from(sha256),
        })
    }

    fn compile(
        &self,
        bytes: &[u8],
        sha256: &str,
        compilation: &Compilation,
    ) -> Result<Component, SandboxError> {
        let Inner {
            runner, artifacts, ..
        } = &*self.inner;
        upload::check(bytes, &runner.config)?;
        let compiled = match &runner.config.compiler {
            Compiler::InProcess => compiler::compile(&runner.engine, bytes)?,
            Compiler::Child { program, arguments } => {
                let limits = ChildCompiler::from_config(&runner.config);
                compilation.run(program, arguments, &limits, bytes)?
            }
        };
        let component = compiled.load(&runner.engine);
        let component = component
            .map_err(|error| SandboxError::not_a_guest(one_line(&format!("{error:#}"), MAX_MESSAGE_BYTES)))?;
        if let Some(artifacts) = artifacts {
            artifacts.store(&self.tenant, sha256, &compiled);
        }
        Ok(component)
    }
}
