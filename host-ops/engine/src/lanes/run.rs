//! What lanes do for a submission.

use crate::EngineError;
use frostline_tensor::{OpError, RunTerms, Stage};
use std::sync::Arc;

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

/// What the stage is called in messages.
pub(super) fn describe(stage: &Stage) -> String {
    let model: String = stage.model.chars().take(12).collect();
    format!("model {model}, `{}` to `{}`", stage.from, stage.to)
}

/// `error` as one of `stage`.
pub(super) fn about(stage: &Stage, error: &EngineError) -> OpError {
    error.with_message(format!("{}: {error}", describe(stage)))
}
