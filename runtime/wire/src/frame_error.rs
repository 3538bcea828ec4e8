use crate::RowFormat;
use frostline_tensor::Cause;

/// Error while writing or reading an extraction's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The type or shape of rows does not match the writer's format.
    #[error("expected rows of {expected}, received {actual}")]
    Rows {
        /// Format of the writer.
        expected: RowFormat,
        /// Received rows.
        actual: String,
    },
    /// An Arrow column cannot have this format.
    #[error("rows of shape {shape:?} are not supported: {reason}")]
    Format {
        /// Shape of a row.
        shape: Vec<usize>,
        /// Reason why the shape is invalid.
        reason: String,
    },
    /// Arrow could not encode a batch.
    #[error("cannot encode the answer: {detail}")]
    Encode {
        /// Error of Arrow.
        #[source]
        detail: Cause,
    },
    /// The answer is not a valid Arrow stream.
    #[error("the answer is not a valid Arrow stream: {detail}")]
    Malformed {
        /// Details of the problem.
        #[source]
        detail: Cause,
    },
    /// A column differs from the requested format.
    #[error("column {column:?} of the answer is invalid: expected {expected}, received {actual}")]
    Schema {
        /// Column name.
        column: String,
        /// Name, type and tensor shape of the expected column.
        expected: String,
        /// Name, type and metadata of the received column, up to 300 characters.
        actual: String,
    },
    /// A message of the stream exceeds the reader's limit.
    #[error("the answer has a message of {bytes} bytes, which exceeds the limit of {limit} bytes")]
    TooLarge {
        /// Claimed size in bytes.
        bytes: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// Unexpected position.
    #[error("the answer has a row for position {position}, which was not requested")]
    UnknownPosition {
        /// Position of the row.
        position: u32,
    },
    /// Multiple rows contain the same position.
    #[error("the answer has more than one row for position {position}")]
    DuplicatePosition {
        /// Position of the rows.
        position: u32,
    },
    /// A row does not contain exactly one of activation and error.
    #[error("the row for position {position} must have either an activation or an error")]
    AmbiguousRow {
        /// Position of the row.
        position: u32,
    },
    /// A row was corrupted in transit. Request it again.
    #[error("the row for position {position} was corrupted in transit: checksum mismatch")]
    Checksum {
        /// Position in the row, which may be corrupted.
        position: u32,
    },
    /// The stream ended early. Request the missing positions again.
    #[error("the answer is incomplete ({} positions are missing{})", missing.len(), if *end_marker { "" } else { ", and the end marker" })]
    Incomplete {
        /// Positions without a row, ascending.
        missing: Vec<u32>,
        /// True if Arrow's end-of-stream marker was received.
        end_marker: bool,
    },
}

impl FrameError {
    pub(crate) fn malformed(detail: impl Into<Cause>) -> Self {
        Self::Malformed {
            detail: detail.into(),
        }
    }

    pub(crate) fn encode(detail: impl Into<Cause>) -> Self {
        Self::Encode {
            detail: detail.into(),
        }
    }
}
