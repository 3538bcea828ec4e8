//! Sanitizes texts of guests for messages, tables and logs.

use frostline_tensor::OpError;
pub(crate) use frostline_walls::one_line;

/// Maximum length of error messages in bytes, both from and to guests. Bounded because the trainer receives a
/// message for each failed sample.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

/// Maximum length of a name in bytes. Object stores accept keys of up to 1,024 bytes.
pub(crate) const MAX_NAME_BYTES: usize = 1024;

/// Checks the length of a name, since names appear in tables and messages.
pub(crate) fn check_name(name: &str) -> Result<(), OpError> {
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(OpError::invalid(format!(
        "a name has {} bytes, the limit is {MAX_NAME_BYTES}",
        name.len()
    )))
}
