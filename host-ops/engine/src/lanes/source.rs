use super::child::{Guards, prepare};
use super::{LanesConfig, LanesPlace};
use crate::prepared::{Prepared, StageGuard};
use crate::{Device, Interrupt, InterruptCause, SessionOptions};
use bytes::Bytes;
use frostline_batching::Kind;
use frostline_batching::device::MemoryEstimate;
use frostline_tensor::{DType, OpError, Shape, Stage};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time to wait for the memory that preparing a stage needs. If this time expires, the stage runs from its
/// bytes and is prepared the next time it is opened.
const WAIT: Duration = Duration::from_secs(1);

/// Provides the networks that lanes run.
pub trait StageSource: Send + Sync + 'static {
    /// Returns the ONNX bytes of `stage`, with an input called `stage.from`, an output called `stage.to`, and
    /// internal weights. A lane thread calls this if the stage has neither a session nor a prepared form.
    /// Blocking is allowed.
    ///
    /// # Errors
    /// Returns an error if the model or the cut does not exist. The submission fails with this error.
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError>;

    /// Returns the type and shape of an output row of `stage`, if known. Called for each submission by the
    /// submitting thread, so it must not block.
    fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        let _ = stage;
        None
    }

    /// Estimates the memory that `stage` needs. The estimate is used until a lane has measured the stage.
    /// Called for each submission by the submitting thread, so it must not block.
    fn guess(&self, stage: &Stage) -> MemoryEstimate {
        let _ = stage;
        MemoryEstimate::default()
    }
}

/// A network as input for opening a session.
pub(super) enum StageModel {
    Bytes(Bytes),
    /// The folder with the prepared stage.
    Prepared(PathBuf),
}

/// Networks of a host and their prepared forms.
pub(super) struct Networks {
    source: Arc<dyn StageSource>,
    config: LanesConfig,
    prepared: Option<Prepared>,
    guards: Arc<Guards>,
}

/// A network for a lane's process.
pub(super) enum ProvidedNetwork {
    Bytes(Bytes),
    Prepared(StageGuard),
}

impl Networks {
    pub(super) fn new(config: &LanesConfig, source: Arc<dyn StageSource>) -> Self {
        let stages = match &config.place {
            // A CPU's kernel layout is useless on a GPU.
            LanesPlace::Child(place) if config.device == Device::Cpu => place.prepared.as_ref(),
            _ => None,
        };
        let options = SessionOptions {
            threads: config.threads_per_lane,
            arena: false,
            device: config.device,
            ..SessionOptions::default()
        };
        Self {
            source,
            config: config.clone(),
            prepared: stages.and_then(|stages| Prepared::open(&stages.folder, stages.most_bytes, &options)),
            guards: Arc::default(),
        }
    }

    /// Returns the processes of the lanes and of preparations.
    pub(super) fn guards(&self) -> &Arc<Guards> {
        &self.guards
    }

    /// Estimates the memory that `stage` needs until a lane has measured it.
    pub(super) fn guess(&self, stage: &Stage) -> MemoryEstimate {
        self.source.guess(stage)
    }

    /// Removes the prepared stages of models for which `keep` returns false.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        self.prepared
            .as_ref()
            .map_or(Ok(()), |prepared| prepared.retain(keep))
    }

    /// Returns the type and shape of an output row of `stage`, if known.
    pub(super) fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        self.source.row(stage)
    }

    /// Returns the ONNX bytes of `stage`.
    pub(super) fn bytes(&self, stage: &Stage) -> Result<Bytes, OpError> {
        self.source.stage_model(&stage.network())
    }

    /// Returns `stage` for a lane in a child process, in the prepared form if it exists.
    pub(super) fn given(&self, stage: &Stage) -> Result<ProvidedNetwork, OpError> {
        let prepared = self.prepared.as_ref();
        match prepared.and_then(|prepared| prepared.find(&stage.network())) {
            Some(lent) => Ok(ProvidedNetwork::Prepared(lent)),
            None => self.bytes(stage).map(ProvidedNetwork::Bytes),
        }
    }

    /// Returns true if stages are prepared before lanes open them.
    pub(super) fn prepares(&self) -> bool {
        self.prepared.is_some()
    }

    /// Prepares `stage` for `tenant` in a disposable process until `interrupt` is triggered. Blocks. A failure is
    /// logged, and lanes then open the stage from its bytes.
    ///
    /// The memory belongs to the tenant, as that of a guest call, although the caller may hold such memory: a
    /// preparation can need most of the host's memory for a minute, and the memory of lanes would leave nothing to
    /// read the objects of other tenants. The wait is short, so callers cannot block each other.
    pub(super) fn prepare(&self, stage: &Stage, tenant: &str, interrupt: &Interrupt) {
        let (Some(prepared), LanesPlace::Child(place)) = (&self.prepared, &self.config.place) else {
            return;
        };
        let stage = stage.network();
        let made = prepared.get(&stage, |folder| {
            // The lane reports an error of the source.
            let network = self.bytes(&stage).map_err(drop)?;
            let takes = prepare::reserved_bytes(network.len());
            let memory = &self.config.memory;
            let Ok(_memory) = memory.reserve_blocking(tenant, Kind::Grant, takes, WAIT) else {
                tracing::debug!(
                    takes,
                    "not enough memory to prepare a stage; running from its bytes"
                );
                return Err(());
            };
            let made = prepare::prepare(&self.config, place, &self.guards, &network, folder, interrupt);
            match interrupt.cause() {
                // Nothing is known about the stage.
                Some(InterruptCause::Cancelled | InterruptCause::Shutdown) => Err(()),
                _ => Ok(made),
            }
        });
        drop(made);
    }
}
