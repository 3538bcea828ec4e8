//! What an extraction asks of the lanes that run its stages.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// How the runs of an extraction stand to other work. Without any of it the host alone chooses how many rows a run has, joins the rows of
/// one tenant only, and serves a tenant's jobs alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// Orders a tenant's own work: more goes first. It changes nothing between tenants.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Each run has just so many rows, is padded where there are fewer, and never joined with others: rows come out bit for bit the
    /// same whatever they are asked with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_batch: Option<usize>,
    /// How exactly a GPU has to compute. A CPU computes in full whatever is allowed.
    #[serde(skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
}

/// How exactly a GPU computes with `f32`.
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
    strum::EnumString,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Precision {
    /// As a CPU does: 24 bits of fraction everywhere.
    #[default]
    Full,
    /// Products of matrices and convolutions may take 11 bits of what they multiply (NVIDIA's TF32): faster, and activations differ in the
    /// third digit, so losses depend on where the split lies.
    Tf32,
}

impl Precision {
    /// Whether nothing less is allowed.
    pub fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// On what terms the lanes run what an extraction submits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunTerms {
    /// Which extraction it is.
    pub extraction: Arc<str>,
    /// Which job it belongs to: a tenant's device time is divided among its jobs, and what a job asked for first runs first.
    pub job: Arc<str>,
    /// What it asked for.
    pub terms: Terms,
}

/// Terms that no host takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// A batch that is none, or larger than any lane should run.
    #[error(
        "fixed_batch is {rows}; it must be {} to {}, or left out, and then the host chooses how many rows a run has",
        Terms::FIXED_BATCH.start(), Terms::FIXED_BATCH.end()
    )]
    FixedBatch {
        /// What was asked for.
        rows: usize,
    },
    /// A priority out of its range.
    #[error("priority is {priority}; it must be {} to {}", Terms::PRIORITY.start(), Terms::PRIORITY.end())]
    Priority {
        /// What was asked for.
        priority: i32,
    },
}

impl Terms {
    /// Rows that a fixed batch may have: more than 1,024 take a lane for longer than anybody should wait.
    pub const FIXED_BATCH: RangeInclusive<usize> = 1..=1024;

    /// Priorities there are.
    pub const PRIORITY: RangeInclusive<i32> = -100..=100;

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// [`TermsError`], with the range.
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
