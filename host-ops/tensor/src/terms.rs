//! Requirements of an extraction for the lanes that execute it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Scheduling and precision requirements of an extraction. By default the host selects the rows per engine
/// batch, joins only rows of the same tenant, and treats all jobs of a tenant equally.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Terms {
    /// Priority among the tenant's requests, -100 to 100. Higher values run first. Other tenants are not
    /// affected.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Exact number of rows in each engine batch. Smaller batches are padded and never joined with other
    /// requests. Activations are then bit for bit the same regardless of the other samples in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_batch: Option<usize>,
    /// Precision required on a GPU. A CPU always computes in full precision.
    #[serde(skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
}

/// Precision of `f32` networks on a GPU.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Precision {
    /// 24 significant bits everywhere, as on a CPU.
    #[default]
    Full,
    /// Matrix products and convolutions may round their inputs to 11 significant bits (NVIDIA's TF32). This
    /// is faster, but activations differ in the third digit, so losses depend on the split.
    Tf32,
    /// Weights and activations have 11 significant bits and a range of ±65,504 (IEEE half precision), except
    /// where a network would lose accuracy. Products are accumulated in `f32`. Inputs and outputs of a stage
    /// remain `f32`. This is the fastest precision, and losses depend on the split as with `Tf32`.
    F16,
}

impl Precision {
    /// Returns true if reduced precision is not allowed.
    pub fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// Requirements and origin of an extraction's stages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecutionTerms {
    /// Identifies the extraction.
    pub extraction: Arc<str>,
    /// Identifies the job. The scheduler divides a tenant's device time by job and executes the extractions
    /// of a job in order of arrival.
    pub job: Arc<str>,
    /// Requirements of the extraction.
    pub terms: Terms,
}

/// Error returned for terms outside of the allowed ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// The fixed batch is empty or larger than [`Terms::FIXED_BATCH`] allows.
    #[error(
        "fixed_batch is {rows}; it must be {} to {}, omit it to let the host choose the batch size",
        Terms::FIXED_BATCH.start(), Terms::FIXED_BATCH.end()
    )]
    FixedBatch {
        /// Requested rows.
        rows: usize,
    },
    /// The priority is outside of [`Terms::PRIORITY`].
    #[error("priority is {priority}; it must be {} to {}", Terms::PRIORITY.start(), Terms::PRIORITY.end())]
    Priority {
        /// Requested priority.
        priority: i32,
    },
}

impl Terms {
    /// Allowed rows of a fixed batch. A batch with more than 1,024 rows would occupy a lane for too long.
    pub const FIXED_BATCH: RangeInclusive<usize> = 1..=1024;

    /// Allowed priorities.
    pub const PRIORITY: RangeInclusive<i32> = -100..=100;

    /// Checks that all values are in range.
    ///
    /// # Errors
    /// Returns [`TermsError`] with the allowed range if a value is out of range.
    pub fn check(self) -> Result<(), TermsError> {
        let Self {
            priority,
            fixed_batch,
            precision: _,
        } = self;
        if !Self::PRIORITY.contains(&priority) {
            return Err(TermsError::Priority { priority });
        }
        match fixed_batch {
            Some(rows) if !Self::FIXED_BATCH.contains(&rows) => Err(TermsError::FixedBatch { rows }),
            _ => Ok(()),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_out_of_their_range_are_refused_with_the_range() {
        let fixed = |rows| Terms {
            fixed_batch: Some(rows),
            ..Terms::default()
        };
        assert!(fixed(1).check().is_ok() && fixed(1024).check().is_ok());
        for rows in [0, 1025, usize::MAX] {
            let error = fixed(rows).check().unwrap_err().to_string();
            assert!(error.contains("1 to 1024"), "{error}");
        }
        let first = |priority| Terms {
            priority,
            ..Terms::default()
        };
        assert!(first(-100).check().is_ok() && first(101).check().is_err());
    }
}
