//! Conversion of errors to the Python classes in `frostline/_errors.py`.

use frostline_client::{ClientError, InquiryError};
use frostline_job::plain;
use frostline_rows::RowsError;
use frostline_wire::ErrorClass;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Converts a [`ClientError`] to the matching Python class.
pub(crate) fn from_client(py: Python<'_>, error: &ClientError) -> PyErr {
    let details = PyDict::new(py);
    let class = match class_with_details(error, &details) {
        Ok(class) => class,
        Err(error) => return error,
    };
    python_error(py, class, &error.to_string(), &details)
}

/// Converts an [`InquiryError`] to the matching Python class.
pub(crate) fn from_inquiry(py: Python<'_>, error: &InquiryError) -> PyErr {
    match error {
        InquiryError::Client(error) => from_client(py, error),
        InquiryError::Wrong(message) => invalid_settings(py, message),
    }
}

/// Converts a [`RowsError`] to the matching Python class.
pub(crate) fn from_rows(py: Python<'_>, error: &RowsError) -> PyErr {
    match error {
        RowsError::Client(error) => from_client(py, error),
        error => general(py, &error.to_string()),
    }
}

/// Creates a `SettingsError` for invalid arguments.
pub(crate) fn invalid_settings(py: Python<'_>, message: &str) -> PyErr {
    python_error(py, "SettingsError", message, &PyDict::new(py))
}

/// Creates an instance of the base class `Error`.
pub(crate) fn general(py: Python<'_>, message: &str) -> PyErr {
    python_error(py, "Error", message, &PyDict::new(py))
}

fn python_error(py: Python<'_>, class: &str, message: &str, details: &Bound<'_, PyDict>) -> PyErr {
    let made = py
        .import("frostline._errors")
        .and_then(|module| module.getattr(class))
        // A host's message can contain control characters. Remove them, because tracebacks are printed to a
        // terminal.
        .and_then(|class| class.call((plain(message),), Some(details)));
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// Returns the name of the Python class, and adds its keyword arguments to `details`.
fn class_with_details(error: &ClientError, details: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    Ok(match error {
        ClientError::Address { .. } | ClientError::Token { .. } | ClientError::Authorities { .. } => {
            "SettingsError"
        }
        ClientError::Unreachable { .. }
        | ClientError::Silent { .. }
        | ClientError::Interrupted { .. }
        | ClientError::Leaving { .. }
        | ClientError::Upload { .. }
        | ClientError::SlowUpload { .. } => "Unreachable",
        ClientError::NoHost { source, .. } => class_with_details(source, details)?,
        ClientError::Refused { class, status, .. } => {
            details.set_item("kind", <&str>::from(class))?;
            details.set_item("status", status.as_u16())?;
            match class {
                ErrorClass::Busy | ErrorClass::Stopping => "Busy",
                ErrorClass::NotFound => "NotFound",
                ErrorClass::Unauthorized => "Denied",
                ErrorClass::Request | ErrorClass::TooLarge | ErrorClass::Guest | ErrorClass::Host => {
                    "Refused"
                }
            }
        }
        ClientError::Lost { lost, first, .. } => {
            details.set_item("samples", lost)?;
            details.set_item("first", first)?;
            "Lost"
        }
        ClientError::RowsUnavailable { .. } | ClientError::CorruptRows { .. } => "Lost",
        ClientError::DataAccessDenied { .. } => {
            details.set_item("kind", <&str>::from(ErrorClass::Request))?;
            "Refused"
        }
        ClientError::Protocol { .. } => "ProtocolError",
        ClientError::Preprocess { .. } | ClientError::Ended { .. } => "Error",
    })
}
