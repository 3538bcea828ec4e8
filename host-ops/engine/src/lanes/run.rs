//! What lanes do for a submission.

use crate::{EngineError, Interrupt};
use frostline_tensor::{OpError, RunTerms, Stage, Tensor};
use std::sync::Arc;
use tokio::sync::oneshot;
use tracing::Span;

pub(super) type Outcome = Result<Tensor, OpError>;
pub(super) type Reply = oneshot::Sender<Outcome>;

/// Whose work it is, and on what terms.
#[derive(Debug, Clone)]
pub(super) struct Customer {
    pub(super) tenant: Arc<str>,
    pub(super) weight: u32,
    pub(super) terms: RunTerms,
}

impl Customer {
    pub(super) fn new(tenant: &str) -> Self {
        Self {
            tenant: tenant.into(),
            weight: 1,
            terms: RunTerms::default(),
        }
    }
}

/// One batch through one network.
pub(super) struct Run {
    pub(super) stage: Stage,
    pub(super) batch: Tensor,
    pub(super) interrupt: Interrupt,
}

/// A run on its way through a lane.
pub(super) struct Submission {
    pub(super) customer: Customer,
    pub(super) run: Run,
    /// Where its log lines belong.
    pub(super) span: Span,
}

/// What the stage is called in messages.
pub(super) fn describe(stage: &Stage) -> String {
    let model: String = stage.model.chars().take(12).collect();
    format!("model {model}, `{}` to `{}`", stage.from, stage.to)
}

/// `error` as one of `stage`.
pub(super) fn about(stage: &Stage, error: &EngineError) -> OpError {
    error.told(format!("{}: {error}", describe(stage)))
}
