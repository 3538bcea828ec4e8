//! Choice of a split without predictions.

use super::Offer;
use crate::{Policy, TrainerError};
use frostline_plan::{ChosenSplit, UsableSplit};
use frostline_wire::Split;

impl Offer {
    /// Returns the requested split if it is possible.
    pub(crate) fn fixed(&self, split: &Split) -> Result<ChosenSplit, TrainerError> {
        self.chosen(split, "as requested".to_owned())
    }

    /// Returns the split `none` for a job whose frozen layers run on the trainer. `why` is the reason, for
    /// example that the hosts refuse the layers.
    pub(crate) fn without_layers(&self, why: &str) -> Result<ChosenSplit, TrainerError> {
        self.without_hosts(&format!("the frozen layers run on this machine: {why}"))
    }

    /// Returns the split `none`, for which the trainer computes everything, with this `reason`.
    pub(crate) fn without_hosts(&self, reason: &str) -> Result<ChosenSplit, TrainerError> {
        self.chosen(&Split::None, reason.to_owned())
    }

    /// Returns the split for a policy if the hosts were not measured. `why` is the reason.
    ///
    /// If the policy does not name a split, the rule compares sizes like HAPI's first rule: it chooses the
    /// earliest cut that is smaller than the stored objects, because an early cut leaves the least work for
    /// the host. If there is no such cut, it chooses the split with the fewest bytes.
    pub(crate) fn by_bytes(
        &self,
        policy: &Policy,
        splits: &[UsableSplit],
        why: &str,
    ) -> Result<ChosenSplit, TrainerError> {
        // Joint cuts before the freeze cut save computation on hosts, but few bytes.
        let considered = splits.iter().filter(|usable| match &usable.split {
            Split::Cut(cut) => !cut.contains(',') || *cut == self.freeze,
            Split::None | Split::Input => true,
        });
        let smaller = considered.clone().find(|usable| {
            matches!(usable.split, Split::Cut(_)) && usable.bytes_per_sample < self.object_bytes
        });
        let (split, rule) = match policy {
            Policy::Fixed(split) => (split.clone(), "as requested"),
            Policy::Freeze if self.freeze == self.network.input.name => (Split::Input, "nothing is frozen"),
            Policy::Freeze => (Split::Cut(self.freeze.clone()), "all frozen layers"),
            _ => match smaller {
                Some(cut) => (
                    cut.split.clone(),
                    "fewest bytes: the earliest cut smaller than the stored images",
                ),
                None => {
                    let least = considered.min_by_key(|usable| usable.bytes_per_sample);
                    let least = least.ok_or(TrainerError::Ended { part: "plan" })?;
                    (
                        least.split.clone(),
                        "fewest bytes: the smallest cut, though larger than the stored images",
                    )
                }
            },
        };
        self.chosen(&split, format!("{rule}; {why}"))
    }

    fn chosen(&self, split: &Split, reason: String) -> Result<ChosenSplit, TrainerError> {
        Ok(ChosenSplit {
            encoding: self.encoding_of(split),
            split: split.clone(),
            bytes_per_sample: self.bytes_per_sample(split)? as f64,
            reason,
            flow: self.flow,
        })
    }
}
