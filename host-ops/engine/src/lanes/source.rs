use bytes::Bytes;
use frostline_tensor::{OpError, Stage};

/// Where lanes get the networks they run.
pub trait StageSource: Send + Sync + 'static {
    /// The ONNX bytes of `stage`: one input named `stage.from`, one output named `stage.to`, weights inside. Asked by a
    /// lane's thread, which may block on it, whenever that lane has no session for the stage.
    ///
    /// # Errors
    /// [`OpError`] for a model or cut that does not exist; the submission ends with it.
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError>;
}
