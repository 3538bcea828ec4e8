//! Admission of models from untrusted sources.

mod empty;
pub(crate) mod footprint;
mod growth;
mod limits;
mod refusal;
mod structure;
mod survey;
mod weights;

pub use footprint::{Footprint, MemoryBound};
pub use limits::ModelLimits;
pub use refusal::Inadmissible;

use crate::{Cut, GraphError, Interface, Model, Network};
use bytes::Bytes;
use prost::Message;

impl Model {
    /// Reads a network from untrusted bytes as [`Model::from_bytes`] does, and accepts only plain networks.
    /// They contain listed operators, weights that match the claimed sizes and are inside the file, and
    /// bounded numbers of parts. The [`Footprint`], which is known for every batch before execution, must be
    /// within `limits`. The file is surveyed before it is decoded, so the memory used is bounded by `bytes`
    /// and `limits`.
    ///
    /// # Errors
    /// Returns [`GraphError::Inadmissible`] if the model is refused, and the errors of [`Model::from_bytes`].
    pub fn admit(bytes: Bytes, limits: &ModelLimits) -> Result<Self, GraphError> {
        survey::survey(&bytes, limits)?;
        let proto = crate::read::decode(bytes)?;
        structure::check(&proto, limits)?;
        let model = crate::contract::network_from(proto, &Interface::default())?;
        footprint::check(&model, limits)?;
        Ok(model)
    }
}

impl Network {
    /// Checks that the cuts and the memory that they use are within `limits`.
    ///
    /// # Errors
    /// Returns [`GraphError::Inadmissible`] if a limit is exceeded.
    pub fn check_cuts(&self, limits: &ModelLimits) -> Result<(), GraphError> {
        let count = self.cuts.len();
        Inadmissible::check_count("the model", "cuts", count, limits.cuts)?;
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

/// First cut at which a host refuses the layers.
#[derive(Debug)]
pub struct RefusedCut {
    /// Index of the cut in the given list. The layers up to this cut or a later cut are refused.
    pub first: usize,
    /// Reason for the refusal.
    pub why: GraphError,
}

impl Model {
    /// Returns the first of `cuts`, given in order of execution, for which [`Model::admit`] refuses the
    /// layers up to the cut, or `None` if it accepts all. The function performs a binary search, which
    /// assumes that adding layers to a refused network does not make it acceptable.
    pub fn first_refused_cut(&self, cuts: &[Cut], limits: &ModelLimits) -> Option<RefusedCut> {
        let mut taken = 0;
        let mut first = cuts.len().checked_sub(1)?;
        let mut why = self.refusal(cuts.get(first)?, limits)?;
        while taken < first {
            let middle = taken.midpoint(first);
            match cuts.get(middle).and_then(|cut| self.refusal(cut, limits)) {
                Some(refused) => (first, why) = (middle, refused),
                None => taken = middle + 1,
            }
        }
        Some(RefusedCut { first, why })
    }

    /// Returns the reason for which [`Model::admit`] refuses the layers up to `cut`, if any.
    fn refusal(&self, cut: &Cut, limits: &ModelLimits) -> Option<GraphError> {
        let layers = self.slice(None, Some(&cut.name));
        layers.and_then(|layers| layers.check(limits)).err()
    }

    /// Checks this model as [`Model::admit`] would check its bytes.
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
