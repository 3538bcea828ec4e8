//! Identity of submissions, and texts about stages.

use crate::EngineError;
use frostline_tensor::{ExecutionTerms, OpError, Stage};
use std::sync::Arc;

/// Tenant of a submission with scheduling terms.
#[derive(Debug, Clone)]
pub(super) struct Submitter {
    pub(super) tenant: Arc<str>,
    pub(super) weight: u32,
    pub(super) terms: ExecutionTerms,
}

impl Submitter {
    pub(super) fn new(tenant: &str) -> Self {
        Self {
            tenant: tenant.into(),
            weight: 1,
            terms: ExecutionTerms::default(),
        }
    }
}

/// Returns the name of `stage` for messages.
pub(super) fn describe(stage: &Stage) -> String {
    let model: String = stage.model.chars().take(12).collect();
    format!("model {model}, `{}` to `{}`", stage.from, stage.to)
}

/// Converts `error` and adds the name of `stage`.
pub(super) fn about(stage: &Stage, error: &EngineError) -> OpError {
    error.with_message(format!("{}: {error}", describe(stage)))
}
