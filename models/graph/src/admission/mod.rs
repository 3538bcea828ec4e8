//! The check of a stranger's model before anything else looks at it.

mod footprint;
mod growth;
mod limits;
mod refusal;
mod structure;
mod survey;
mod weights;

pub use footprint::{Footprint, Size};
pub use limits::ModelLimits;
pub use refusal::Inadmissible;

use crate::{GraphError, Model};
use bytes::Bytes;

impl Model {
    /// A network from bytes of a stranger, as [`Model::from_bytes`] reads it, when it is nothing but a plain network: operators on a
    /// list, weights that hold what they claim inside the file, everything in bounded numbers, and a [`Footprint`] within `limits`, known
    /// for every batch before anything runs. The file is counted before it is read, so the memory this takes is bounded by
    /// `bytes` and `limits`.
    ///
    /// # Errors
    /// [`GraphError::Inadmissible`], and those of [`Model::from_bytes`].
    pub fn admit(bytes: Bytes, limits: &ModelLimits) -> Result<Self, GraphError> {
        survey::survey(&bytes, limits)?;
        let proto = crate::read::decode(bytes)?;
        structure::check(&proto, limits)?;
        let model = crate::contract::network_from(proto)?;
        footprint::check(&model, limits)?;
        Ok(model)
    }
}
