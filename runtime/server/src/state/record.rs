//! What all records of the state have in common, so that hosts of unlike versions can share it (`docs/state.md`).

use serde_json::{Map, Value};

/// The newest format of records that this build reads, and the one it writes. A record of a newer one is kept as it is. New fields do not
/// raise it: an earlier build keeps them as [`Unknown`].
pub(super) const FORMAT: u32 = 1;

/// Fields that a newer build wrote, which go back into the record when this one changes it.
pub(crate) type Unknown = Map<String, Value>;
