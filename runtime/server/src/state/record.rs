//! Record format, shared by all records of the state, so that hosts with different versions can use the same
//! state (see `docs/state.md`).

use serde_json::{Map, Value};

/// The newest record format that this version can read, also used for writing. Records with a newer format
/// are kept unchanged. Adding a field does not require a new format, because older versions keep it in
/// [`Unknown`].
pub(super) const FORMAT: u32 = 1;

/// Fields written by a newer version, which are preserved when this version changes the record.
pub(crate) type Unknown = Map<String, Value>;
