//! Description of a guest while `describe` runs. The bindings refer to this type.

use crate::call::ModelView;
use crate::error::SandboxError;
use crate::text::one_line;
use frostline_tensor::OpError;
use frostline_wire::{Activation, Description, Pixels, ServedCut};
use std::sync::Arc;

/// Maximum length in bytes of an unknown cut in a message.
const MAX_CUT_BYTES: usize = 256;

/// Description of a guest for a model while the guest fills it.
#[allow(unreachable_pub, reason = "used by the generated bindings")]
pub struct DescriptionBuilder {
    model: Arc<ModelView>,
    pub(crate) description: Description,
}

impl DescriptionBuilder {
    /// Creates a description without cuts.
    pub(crate) fn new(model: Arc<ModelView>) -> Self {
        Self {
            model,
            description: Description {
                name: String::new(),
                version: String::new(),
                pixels: Pixels::Own,
                cuts: Vec::new(),
                media_types: Vec::new(),
                max_samples: None,
            },
        }
    }

    /// Returns the description that the guest has filled.
    ///
    /// # Errors
    /// Returns [`SandboxError::BadAnswer`] if the guest has not set a name.
    pub(crate) fn finish(self) -> Result<Description, SandboxError> {
        if self.description.name.is_empty() {
            return Err(SandboxError::bad_answer(
                "missing name; call set-name in `describe`",
            ));
        }
        Ok(self.description)
    }

    pub(crate) fn serve(&mut self, cut: String, activation: Activation) -> Result<(), OpError> {
        if self.model.cut(&cut).is_none() {
            return Err(OpError::invalid(format!(
                "{:?} is not a cut of the model",
                one_line(&cut, MAX_CUT_BYTES)
            )));
        }
        if self.description.cuts.iter().any(|served| served.name == cut) {
            return Err(OpError::invalid(format!("duplicate cut {cut:?}")));
        }
        self.description.cuts.push(ServedCut {
            name: cut,
            activation,
        });
        Ok(())
    }
}
