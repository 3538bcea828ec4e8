use crate::RowFormat;
use frostline_tensor::Cause;

/// Why rows could not be written into, or read from, an extraction's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Rows given to the writer are not of the format it was made for.
    #[error("rows of {actual} do not fit an answer of {expected}")]
    Rows {
        /// What the answer holds.
        expected: RowFormat,
        /// What was given.
        actual: String,
    },
    /// A row format no Arrow column can hold.
    #[error("rows of shape {shape:?} cannot travel: {reason}")]
    Format {
        /// Shape of one row.
        shape: Vec<usize>,
        /// What is wrong with it.
        reason: String,
    },
    /// Arrow refused to encode a batch.
    #[error("an answer could not be encoded: {detail}")]
    Encode {
        /// Arrow's error.
        #[source]
        detail: Cause,
    },
    /// The bytes are no Arrow stream as this protocol has it.
    #[error("the answer is not a valid Arrow stream: {detail}")]
    Malformed {
        /// What is wrong.
        #[source]
        detail: Cause,
    },
    /// The stream's columns are not those asked for.
    #[error("the answer's column {column:?} should be {expected}, it is {actual}")]
    Schema {
        /// The column.
        column: String,
        /// What it should be.
        expected: String,
        /// What it is.
        actual: String,
    },
    /// One message of the stream is larger than the reader allows.
    #[error("the answer has a message of {bytes} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Bytes it claims.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A row for a position that was not asked for.
    #[error("the answer has a row for position {position}, which was not asked for")]
    UnknownPosition {
        /// The position.
        position: u32,
    },
    /// A second row for one position.
    #[error("the answer has more than one row for position {position}")]
    DuplicatePosition {
        /// The position.
        position: u32,
    },
    /// A row with both an activation and an error, or with neither.
    #[error("the row for position {position} must have either an activation or an error")]
    AmbiguousRow {
        /// The position.
        position: u32,
    },
    /// A row is not what its writer wrote; ask again for it.
    #[error("the row for position {position} was changed on the way: its checksum does not fit")]
    Checksum {
        /// The position it claims.
        position: u32,
    },
    /// The stream ended early; ask again for the missing positions.
    #[error("the answer ended early ({} positions are missing{})", missing.len(), if *end_marker { "" } else { ", and its end marker" })]
    Incomplete {
        /// The positions without a row, ascending.
        missing: Vec<u32>,
        /// Whether Arrow's end-of-stream marker was there.
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
