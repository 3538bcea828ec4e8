use crate::allowance::Allowance;
use crate::artifacts::Artifacts;
use crate::bindings::{FrozenPrefix, FrozenPrefixPre};
use crate::child::{Compilation, KillOnDrop};
use crate::compiler::ChildCompiler;
use crate::config::{Compiler, Limits, SandboxConfig};
use crate::error::SandboxError;
use crate::guest::Guest;
use crate::runner::Runner;
use crate::state::CallState;
use crate::text::{MESSAGE, one_line};
use crate::{compiler, upload, world};
use bytes::Bytes;
use frostline_batching::{Permit, Share, TurnGate};
use sha2::{Digest, Sha256};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use wasmtime::component::{Component, HasSelf, Linker};

/// Concurrent compilations. Each takes a core, and memory of some hundred times the guest's size.
const COMPILATIONS: usize = 1;

/// Compiled guests loaded concurrently, beside the compilation. Each takes a millisecond.
const LOADS: usize = 1;

/// Checks, compiles and runs guests. Cheap to clone; the last clone, with the last [`Guest`], ends its threads.
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
    /// Sets up the engine, its pool of instances and the guests' threads.
    ///
    /// # Errors
    /// [`SandboxError::Host`] when the machine lacks the address space or threads, or the artifact directory cannot be
    /// used.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let runner = Runner::start(config)?;
        let mut linker = Linker::new(&runner.engine);
        FrozenPrefix::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)
            .map_err(|error| SandboxError::host(format!("cannot link the host functions: {error:#}")))?;
        let max_bytes = runner.config.artifact_bytes;
        let directory = runner.config.artifacts.as_deref();
        let open = |directory| Artifacts::open(directory, &runner.engine, max_bytes);
        let inner = Inner {
            artifacts: directory.map(open).transpose()?,
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

    /// The same sandbox for one tenant: preparing guests and their descriptions take turns between tenants. (An extraction's tenant is in its [`Labels`](crate::Labels).)
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            tenant: Arc::from(tenant),
        }
    }

    /// Removes what is cached of guests that are not among `guests`, each a tenant and a SHA-256. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn retain<'a>(&self, guests: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
        let artifacts = self.inner.artifacts.as_ref();
        artifacts.map_or(Ok(()), |artifacts| artifacts.retain(guests))
    }

    /// Prepares a guest with default limits, as [`Self::prepare_within`].
    ///
    /// # Errors
    /// As [`Self::prepare_within`].
    pub async fn prepare(&self, bytes: impl Into<Bytes>) -> Result<Guest, SandboxError> {
        self.prepare_within(bytes, &Allowance::new(Limits::default()))
            .await
    }

    /// Prepares a guest from the bytes a tenant sent, a component or a core module built with the SDK: checks and compiles
    /// them, or loads them from the cache. The compiler's time is charged to `allowance`. Dropping the future kills a
    /// compiler child process.
    ///
    /// # Errors
    /// [`SandboxError::NotAGuest`], [`SandboxError::GuestTooLarge`], [`SandboxError::TooComplex`] and
    /// [`SandboxError::OtherWorld`] say what is wrong with the bytes; [`SandboxError::TooCostly`] that compiling them takes
    /// too much; [`SandboxError::PrepareDeadline`] that the host had no time for them.
    pub async fn prepare_within(
        &self,
        bytes: impl Into<Bytes>,
        allowance: &Arc<Allowance>,
    ) -> Result<Guest, SandboxError> {
        let after = self.inner.runner.config.prepare_deadline;
        match tokio::time::timeout(after, self.prepare_in_turn(bytes.into(), allowance)).await {
            Ok(prepared) => {
                let (sha256, pre) = prepared?;
                let runner = Arc::clone(&self.inner.runner);
                Ok(Guest::new(runner, Arc::clone(&self.tenant), sha256, pre))
            }
            Err(_) => Err(SandboxError::PrepareDeadline { after }),
        }
    }

    async fn prepare_in_turn(
        &self,
        bytes: Bytes,
        allowance: &Arc<Allowance>,
    ) -> Result<Prepared, SandboxError> {
        // A cached guest does not wait for compilations.
        if let Some(prepared) = self.load_in_turn(bytes.clone()).await? {
            return Ok(prepared);
        }
        let permit = self.permit(&self.inner.compilations).await?;
        let compilation = Compilation::default();
        let _kill = KillOnDrop(compilation.clone());
        let (sandbox, allowance) = (self.clone(), Arc::clone(allowance));
        let work = move || {
            let started = Instant::now();
            let prepared = sandbox.compile_once(&bytes, &compilation);
            allowance.count_compiling(started.elapsed());
            // Held to the end of the compilation, even if its caller is gone.
            drop(permit);
            prepared
        };
        self.inner.runner.threads.spawn_blocking(work).await?
    }

    async fn load_in_turn(&self, bytes: Bytes) -> Result<Option<Prepared>, SandboxError> {
        if self.inner.artifacts.is_none() {
            return Ok(None);
        }
        let permit = self.permit(&self.inner.loads).await?;
        let sandbox = self.clone();
        let work = move || {
            let loaded = sandbox.load(&hex::encode(Sha256::digest(&bytes)));
            drop(permit);
            loaded
        };
        self.inner.runner.threads.spawn_blocking(work).await?
    }

    async fn permit(&self, gate: &Arc<TurnGate>) -> Result<Permit, SandboxError> {
        Ok(gate.enter(&self.tenant, Share::AsManyAsItLeaves).await?)
    }

    fn compile_once(&self, bytes: &[u8], compilation: &Compilation) -> Result<Prepared, SandboxError> {
        let sha256 = hex::encode(Sha256::digest(bytes));
        // Another request may have compiled it meanwhile.
        if let Some(loaded) = self.load(&sha256)? {
            return Ok(loaded);
        }
        let component = self.compile(bytes, &sha256, compilation)?;
        Ok((
            sha256,
            world::link(&self.inner.runner.engine, &self.inner.linker, &component)?,
        ))
    }

    /// Loads a guest from the cache.
    fn load(&self, sha256: &str) -> Result<Option<Prepared>, SandboxError> {
        let Inner {
            runner,
            linker,
            artifacts,
            ..
        } = &*self.inner;
        let stored = artifacts
            .as_ref()
            .and_then(|artifacts| artifacts.load(&runner.engine, &self.tenant, sha256));
        let link = |component| world::link(&runner.engine, linker, &component);
        let linked = stored.map(link).transpose()?;
        Ok(linked.map(|pre| (sha256.to_owned(), pre)))
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
        let component =
            component.map_err(|error| SandboxError::not_a_guest(one_line(&format!("{error:#}"), MESSAGE)))?;
        if let Some(artifacts) = artifacts {
            artifacts.store(&self.tenant, sha256, &compiled);
        }
        Ok(component)
    }
}

/// SHA-256 of a guest's bytes, and the guest.
type Prepared = (String, FrozenPrefixPre<CallState>);
