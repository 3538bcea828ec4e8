//! The check of a stranger's model before anything else looks at it.

mod empty;
pub(crate) mod footprint;
mod growth;
mod limits;
mod refusal;
mod structure;
mod survey;
mod weights;

pub use footprint::{Footprint, Size};
pub use limits::ModelLimits;
pub use refusal::Inadmissible;

use crate::{Cut, GraphError, Model, Network};
use bytes::Bytes;
use prost::Message;

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
        let model = crate::contract::network_from(proto, None)?;
        footprint::check(&model, limits)?;
        Ok(model)
    }
}

impl Network {
    /// Whether what is kept of the cuts stays within `limits`.
    ///
    /// # Errors
    /// [`GraphError::Inadmissible`].
    pub fn check_cuts(&self, limits: &ModelLimits) -> Result<(), GraphError> {
        let (count, limit) = (self.cuts.len(), limits.cuts);
        if count > limit {
            return Err(Inadmissible::Count {
                place: "the model".into(),
                what: "places to cut at",
                count,
                limit,
            }
            .into());
        }
        let bytes = self.cuts.iter().map(Cut::kept_bytes).sum();
        match limits.cut_bytes {
            limit if bytes > limit => Err(Inadmissible::CutBytes {
                cuts: count,
                bytes,
                limit,
            }
            .into()),
            _ => Ok(()),
        }
    }
}

/// From where on a host refuses a network's first layers.
#[derive(Debug)]
pub struct Refused {
    /// The place of the cut among those that were asked about: the layers up to it, and to any later one, are refused.
    pub first: usize,
    /// Why.
    pub why: GraphError,
}

impl Model {
    /// From which of `cuts`, given in order of execution, [`Model::admit`] refuses the layers up to there; `None` where it takes all. What
    /// refuses some layers refuses those with more behind them.
    pub fn refused(&self, cuts: &[Cut], limits: &ModelLimits) -> Option<Refused> {
        let refusal = |place: usize| {
            let cut = cuts.get(place)?;
            let layers = self.slice(None, Some(&cut.name));
            layers.and_then(|layers| layers.check(limits)).err()
        };
        let (mut taken, mut first) = (0, cuts.len().checked_sub(1)?);
        let mut why = refusal(first)?;
        while taken < first {
            let middle = taken.midpoint(first);
            match refusal(middle) {
                Some(refused) => (first, why) = (middle, refused),
                None => taken = middle + 1,
            }
        }
        Some(Refused { first, why })
    }

    /// What [`Model::admit`] would say of this model's bytes.
    fn check(&self, limits: &ModelLimits) -> Result<(), GraphError> {
        let proto = self.clone().into_proto();
        let mut described = proto.clone();
        for weight in described
            .graph
            .iter_mut()
            .flat_map(|graph| &mut graph.initializer)
        {
            weight.raw_data.clear();
        }
        survey::survey(&described.encode_to_vec(), limits)?;
        structure::check(&proto, limits)?;
        footprint::check(self, limits).map(|_| ())
    }
}
