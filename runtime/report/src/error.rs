use std::io;
use std::path::{Path, PathBuf};

/// Error returned if a run folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder does not exist or is not a run folder.
    #[error("{} is not a run folder: events.jsonl is missing", folder.display())]
    NoRun {
        /// Path of the folder.
        folder: PathBuf,
    },
    /// Reading a file failed.
    #[error("cannot read {}", file.display())]
    Unreadable {
        /// Path of the file.
        file: PathBuf,
        /// Error from the operating system.
        source: io::Error,
    },
    /// Parsing a file failed.
    #[error("invalid {}, line {line}: {reason}; correct or remove it", file.display())]
    Broken {
        /// Path of the file.
        file: PathBuf,
        /// Line number, starting at 1.
        line: u64,
        /// Parser message without the line number, or the violated limit.
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
}

/// Returns serde's message without the line. If each line is parsed separately, serde always reports line 1.
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
