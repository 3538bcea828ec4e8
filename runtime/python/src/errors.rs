//! Errors as Python's classes, which are in `frostline/_errors.py`.

use frostline_client::{ClientError, InquiryError};
use frostline_job::plain;
use frostline_wire::ErrorClass;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A [`ClientError`] as the class of its kind.
pub(crate) fn of_client(py: Python<'_>, error: &ClientError) -> PyErr {
    let details = PyDict::new(py);
    let class = match details_of(error, &details) {
        Ok(class) => class,
        Err(error) => return error,
    };
    raised(py, class, &error.to_string(), &details)
}

/// The same of an inquiry.
pub(crate) fn of_inquiry(py: Python<'_>, error: &InquiryError) -> PyErr {
    match error {
        InquiryError::Client(error) => of_client(py, error),
        InquiryError::Wrong(message) => settings(py, message),
    }
}

/// What was asked for cannot be.
pub(crate) fn settings(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "SettingsError", message, &PyDict::new(py))
}

/// An error of no kind in particular.
pub(crate) fn other(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "Error", message, &PyDict::new(py))
}

fn raised(py: Python<'_>, class: &str, message: &str, details: &Bound<'_, PyDict>) -> PyErr {
    let made = py
        .import("frostline._errors")
        .and_then(|module| module.getattr(class))
        // What a host says must not steer the terminal that a traceback goes to.
        .and_then(|class| class.call((plain(message),), Some(details)));
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The class' name; what else it knows goes into `details`.
fn details_of(error: &ClientError, details: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    Ok(match error {
        ClientError::Address { .. } | ClientError::Token { .. } | ClientError::Authorities { .. } => {
            "SettingsError"
        }
        ClientError::Unreachable { .. }
        | ClientError::Silent { .. }
        | ClientError::Interrupted { .. }
        | ClientError::Leaving { .. }
        | ClientError::Upload { .. } => "Unreachable",
        ClientError::NoHost { source, .. } => details_of(source, details)?,
        ClientError::Refused { class, status, .. } => {
            details.set_item("kind", word(*class))?;
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
        ClientError::Lacking { .. } | ClientError::Altered { .. } => "Lost",
        ClientError::DataAccessDenied { .. } => {
            details.set_item("kind", word(ErrorClass::Request))?;
            "Refused"
        }
        ClientError::Protocol { .. } => "ProtocolError",
        ClientError::Preprocess { .. } | ClientError::Ended { .. } => "Error",
    })
}

/// The class' word on the wire.
fn word(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Request => "request",
        ErrorClass::Unauthorized => "unauthorized",
        ErrorClass::NotFound => "not-found",
        ErrorClass::TooLarge => "too-large",
        ErrorClass::Busy => "busy",
        ErrorClass::Stopping => "stopping",
        ErrorClass::Guest => "guest",
        ErrorClass::Host => "host",
    }
}
