//! Hints about the parameters to change after an error. `runtime/cli/src/hints`
//! maps the same causes to flags.

use frostline_client::{DatasetError, ExpectedLabels, LabelsError};

/// Returns the message of `error` with the parameter to change, if one helps.
pub(crate) fn with_hint(error: &DatasetError) -> String {
    match hint(error) {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

fn hint(error: &DatasetError) -> Option<&'static str> {
    match error {
        DatasetError::NotDivided { .. } => Some("set validation, for example to 0.2"),
        DatasetError::DividedTwice { .. } => Some("leave out validation"),
        DatasetError::Labels(LabelsError {
            expected: Some(expected),
            ..
        }) => match expected {
            ExpectedLabels::Labels => Some("set task to 'labels'"),
            ExpectedLabels::Numbers => Some("set task to 'numbers'"),
            // No parameter omits images.
            ExpectedLabels::UnlistedOmitted => None,
        },
        _ => None,
    }
}
