//! Cuts that the guest serves, and the reasons against other cuts.

use super::Offer;
use crate::TrainerError;
use frostline_graph::{Cut, list_first};
use frostline_profile::cut_tensors;
use frostline_tensor::{DType, PixelSpec, Shape};
use frostline_wire::{Activation, Split, TensorInfo};

impl Offer {
    /// Returns the cuts up to the freeze cut in order of execution. The result is empty if no layer is
    /// frozen.
    pub(super) fn cuts(&self) -> Result<&[Cut], TrainerError> {
        self.network.frozen_row(&self.freeze)?;
        let end = self
            .network
            .cuts
            .iter()
            .position(|cut| cut.name == self.freeze)
            .map_or(0, |index| index + 1);
        Ok(self.network.cuts.get(..end).unwrap_or_default())
    }

    /// Returns the guest's preprocessing recipe, which is required for a `split` before the first layer.
    pub(super) fn recipe(&self, split: &Split) -> Result<PixelSpec, TrainerError> {
        let reason = "the guest computes the network input; choose a cut";
        self.pixels()
            .ok_or_else(|| self.ruled_out(split, reason.to_owned()))
    }

    /// Returns the cut `name` if it is not after the freeze cut and the guest serves it.
    pub(super) fn served(&self, name: &str) -> Result<&Cut, TrainerError> {
        let cuts = self.cuts()?;
        let Some(cut) = cuts.iter().find(|cut| cut.name == name) else {
            self.network.cut(name)?;
            return Err(TrainerError::after_freeze(
                &self.network,
                name,
                &self.freeze,
                cuts,
            ));
        };
        match self.obstacle(cut) {
            None => Ok(cut),
            Some(reason) => Err(self.ruled_out(&Split::Cut(name.to_owned()), reason)),
        }
    }

    /// Returns the tensors that a row at `cut` concatenates: those that the guest defines, or those of the network. The
    /// list is empty for a single tensor of the network.
    pub(super) fn tensors_at(&self, cut: &Cut) -> Vec<TensorInfo> {
        match self.activation(cut) {
            Some(Activation::Custom(tensors)) => tensors.clone(),
            Some(Activation::Faithful) | None => cut_tensors(cut),
        }
    }

    /// Returns what the guest sends at `cut`, or `None` if it does not serve the cut.
    fn activation(&self, cut: &Cut) -> Option<&Activation> {
        let mut cuts = self.description.cuts.iter();
        let served = cuts.find(|served| served.name == cut.name)?;
        Some(&served.activation)
    }

    /// Returns the reason why the network cannot be split at `cut`, if any.
    fn obstacle(&self, cut: &Cut) -> Option<String> {
        if cut.dtype != DType::F32 {
            return Some(format!("activations are {}, but only f32 can be sent", cut.dtype));
        }
        match self.activation(cut) {
            None => Some(self.served_cuts()),
            Some(Activation::Faithful) => None,
            Some(Activation::Custom(_)) if cut.name != self.freeze => Some(format!(
                "the guest's custom tensors are only allowed at the freeze cut '{}'",
                self.freeze
            )),
            Some(Activation::Custom(tensors)) => {
                let row = TensorInfo::row_shape(tensors).unwrap_or_else(|| Shape::new([]));
                (row != cut.shape).then(|| {
                    format!(
                        "the guest's row has the shape {row}, but the layers after it expect {}",
                        cut.shape
                    )
                })
            }
        }
    }

    fn served_cuts(&self) -> String {
        let served = self.description.cuts.iter();
        let names: Vec<&str> = served.map(|served| served.name.as_str()).collect();
        match names.as_slice() {
            [] => "the guest serves no cut of this model".to_owned(),
            names => format!("the guest serves the cuts {}", list_first(names)),
        }
    }

    fn ruled_out(&self, split: &Split, reason: String) -> TrainerError {
        let guest = format!("{} {}", self.description.name, self.description.version);
        TrainerError::SplitRuledOut {
            split: split.clone(),
            guest,
            reason,
        }
    }
}
