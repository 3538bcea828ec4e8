use std::io;
use std::path::{Path, PathBuf};

/// Why a run folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder does not exist or is not a run folder.
    #[error("{} is not a run folder: events.jsonl is missing", folder.display())]
    NoRun {
        /// The path.
        folder: PathBuf,
    },
    /// Reading failed.
    #[error("cannot read {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file has invalid content.
    #[error("invalid {}, line {line}: {reason}; correct or remove it", file.display())]
    Broken {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong there.
        reason: String,
    },
}

impl ReportError {
    pub(crate) fn unreadable(file: &Path, source: io::Error) -> Self {
        Self::Unreadable {
            file: file.to_owned(),
            source,
        }
    }

    pub(crate) fn broken(file: &Path, line: u64, reason: impl Into<String>) -> Self {
        Self::Broken {
            file: file.to_owned(),
            line,
            reason: reason.into(),
        }
    }

    /// What serde says of a whole file, which has the line at its end.
    pub(crate) fn json(file: &Path, error: &serde_json::Error) -> Self {
        Self::broken(file, error.line().max(1) as u64, reason(error))
    }
}

/// What serde says without the line it counts, which is always the first where each line is read for itself.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(message, _)| message);
    match error.column() {
        0 => message.to_owned(),
        column => format!("{message} (column {column})"),
    }
}
