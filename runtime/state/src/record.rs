//! Format and ids of all records of the state. Hosts with different versions can use the same state (see
//! `docs/state.md`).

use serde_json::{Map, Value};

/// The newest record format that this version can read, also used for writing. Records with a newer format
/// are kept unchanged. Adding a field does not require a new format, because older versions keep it in
/// [`Unknown`].
pub(crate) const FORMAT: u32 = 1;

/// Fields written by a newer version, which are preserved when this version changes the record.
pub type Unknown = Map<String, Value>;

/// Returns a random id of 16 hexadecimal digits, unique among all hosts.
///
/// # Errors
/// Returns an error if the system provides no random bytes.
pub fn unique_id() -> Result<String, getrandom::Error> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random)?;
    Ok(hex::encode(random))
}
