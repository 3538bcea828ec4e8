use super::batch::BatchRun;
use super::child::prepare;
use super::{LanesConfig, LanesPlace};
use crate::prepared::{Lent, Prepared};
use crate::{Device, SessionOptions};
use bytes::Bytes;
use frostline_batching::Kind;
use frostline_batching::device::MemoryEstimate;
use frostline_tensor::{DType, OpError, Shape, Stage};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a lane waits for memory to prepare a stage in; with none it runs from its bytes, and is prepared when it is opened again.
const WAIT: Duration = Duration::from_secs(1);

/// Where lanes get the networks they run.
pub trait StageSource: Send + Sync + 'static {
    /// The ONNX bytes of `stage`: one input named `stage.from`, one output named `stage.to`, weights inside. Asked by a
    /// lane's thread, which may block on it, whenever there is neither a session for the stage nor a prepared form of it.
    ///
    /// # Errors
    /// [`OpError`] for a model or cut that does not exist; the submission ends with it.
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError>;

    /// What a row of `stage`'s output is, where that is known. Asked as [`StageSource::guess`] is.
    fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        let _ = stage;
        None
    }

    /// What `stage` may take of memory, before a lane has measured it. Asked with every submission, by its caller: it must not wait.
    fn guess(&self, stage: &Stage) -> MemoryEstimate {
        let _ = stage;
        MemoryEstimate::default()
    }
}

/// A network, as a lane opens it.
pub(super) enum StageModel {
    Bytes(Bytes),
    /// The folder where it lies prepared.
    Prepared(PathBuf),
}

/// The networks of a host, as they come and as they were prepared.
pub(super) struct Networks {
    source: Arc<dyn StageSource>,
    config: LanesConfig,
    prepared: Option<Prepared>,
}

/// What a lane's process is given.
pub(super) enum Given {
    Bytes(Bytes),
    Prepared(Lent),
}

/// Why a stage was not prepared, where that says nothing of it.
enum NotNow {
    Refused(OpError),
    /// There is none to prepare it in.
    Memory,
}

impl From<OpError> for NotNow {
    fn from(error: OpError) -> Self {
        Self::Refused(error)
    }
}

impl Networks {
    pub(super) fn new(config: &LanesConfig, source: Arc<dyn StageSource>) -> Self {
        let stages = match &config.place {
            // What is laid out for the processor is of no use to a GPU.
            LanesPlace::Child(place) if config.device == Device::Cpu => place.prepared.as_ref(),
            _ => None,
        };
        let options = SessionOptions {
            threads: config.threads_per_lane,
            arena: false,
            device: config.device,
            ..SessionOptions::default()
        };
        let open =
            |stages: &super::PreparedStages| Prepared::open(&stages.folder, stages.most_bytes, &options);
        Self {
            source,
            config: config.clone(),
            prepared: stages.and_then(open),
        }
    }

    /// What `stage` may take before it was measured.
    pub(super) fn guess(&self, stage: &Stage) -> MemoryEstimate {
        self.source.guess(stage)
    }

    /// Removes what was prepared of models that `keep` does not.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        self.prepared
            .as_ref()
            .map_or(Ok(()), |prepared| prepared.retain(keep))
    }

    /// What a row of `stage`'s output is.
    pub(super) fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        self.source.row(stage)
    }

    /// The bytes of `stage`.
    pub(super) fn bytes(&self, stage: &Stage) -> Result<Bytes, OpError> {
        self.source.stage_model(&stage.network())
    }

    /// The stage of `run` for a lane in a process of its own: prepared, if that can be had before the run's interrupt ends it.
    pub(super) fn given(&self, run: &BatchRun<'_>) -> Result<Given, OpError> {
        let (stage, interrupt) = (run.stage, run.interrupt);
        let (Some(prepared), LanesPlace::Child(place)) = (&self.prepared, &self.config.place) else {
            return self.bytes(stage).map(Given::Bytes);
        };
        let (stage, mut bytes) = (&stage.network(), None);
        let lent = prepared.get(stage, |folder| {
            let network = bytes.insert(self.bytes(stage)?);
            // What the run may take it takes later.
            let takes = prepare::takes(network.len()).saturating_sub(run.reservation.unwrap_or(0));
            let memory = &self.config.memory;
            let Ok(_memory) = memory.reserve_blocking("", Kind::Lane, takes, WAIT) else {
                tracing::debug!(
                    takes,
                    "there is no memory to prepare a stage in; it runs from its bytes"
                );
                return Err(NotNow::Memory);
            };
            let made = prepare::prepare(&self.config, place, network, folder, interrupt);
            match interrupt.cause() {
                Some(cause) => Err(super::run::about(stage, &cause.into()).into()),
                None => Ok(made),
            }
        });
        match (lent, bytes) {
            (Ok(Some(lent)), _) => Ok(Given::Prepared(lent)),
            (Err(NotNow::Refused(error)), _) => Err(error),
            (_, Some(bytes)) => Ok(Given::Bytes(bytes)),
            (_, None) => self.bytes(stage).map(Given::Bytes),
        }
    }
}
