//! Usable splits for the given hosts and guest, and the corresponding requests.

mod choose;
mod served;

use crate::model_metadata::{ModelInput, TrainingGuest};
use crate::upload::OnHosts;
use crate::{FetchLimits, TrainerError};
use frostline_client::{RowKind, Source};
use frostline_graph::Network;
use frostline_plan::UsableSplit;
use frostline_tensor::PixelSpec;
use frostline_wire::{
    Activation, Compression, Description, Encoding, Pixels, Split, TensorInfo, Terms, Values,
};

/// Encodings that are considered for activations if the job does not specify an encoding.
const AUTOMATIC: [Encoding; 4] = [
    Encoding::F32,
    Encoding::F16,
    Encoding::F16.with(Compression::Lz4),
    Encoding::F16.with(Compression::Zstd),
];

/// Inputs for choosing a split and for requesting activations: the network, the cuts that the guest serves,
/// and the data.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) root: String,
    pub(crate) network: Network,
    pub(crate) freeze: String,
    /// Guest and frozen layers, if they are on the hosts.
    pub(crate) on_hosts: Option<OnHosts>,
    /// Parameters for the guest.
    pub(crate) parameters: String,
    /// Description provided by the guest.
    pub(crate) description: Description,
    /// Mean object size in bytes.
    pub(crate) object_bytes: u64,
    /// The encoding requested by the job, if any.
    pub(crate) encoding: Option<Encoding>,
    /// Priority, fixed batch size and precision for the job's work on the hosts.
    pub(crate) terms: Terms,
    /// Upper limits for requests, set by the job.
    pub(crate) flow: FetchLimits,
}

impl Offer {
    /// Returns the same offer with an earlier freeze cut.
    pub(crate) fn frozen_up_to(&self, freeze: &str) -> Self {
        Self {
            freeze: freeze.to_owned(),
            ..self.clone()
        }
    }

    /// Creates the source for the activations at `split` in `encoding`, with up to `request_samples` samples
    /// per request (at least 1).
    ///
    /// # Errors
    /// Returns [`TrainerError::Graph`] if the network does not have this cut.
    pub(crate) fn source_at(
        &self,
        split: &Split,
        encoding: Encoding,
        request_samples: usize,
    ) -> Result<Source, TrainerError> {
        let input = &self.network.input.shape;
        let tensors = match split {
            Split::Cut(name) => self.tensors_at(self.network.cut(name)?),
            Split::None | Split::Input => Vec::new(),
        };
        let (rows, shape) = match (split, self.pixels()) {
            (Split::Cut(name), _) => (RowKind::Values, &self.network.cut(name)?.shape),
            (Split::None, Some(spec)) => (RowKind::Objects(spec), input),
            (Split::Input, Some(spec)) if encoding.values == Values::U8 => (RowKind::Pixels(spec), input),
            _ => (RowKind::Values, input),
        };
        let on_hosts = self.on_hosts.as_ref();
        Ok(Source {
            root: self.root.clone(),
            split: split.clone(),
            encoding,
            guest: on_hosts.map(|on_hosts| on_hosts.guest.clone()),
            model: on_hosts.map(|on_hosts| on_hosts.model.clone()),
            parameters: self.parameters.clone(),
            terms: self.terms,
            view: None,
            rows,
            shape: shape.dims().to_vec(),
            tensors,
            request_samples: request_samples.max(1),
        })
    }

    /// Returns the preprocessing recipe, or `None` if the guest creates the input.
    pub(crate) fn pixels(&self) -> Option<PixelSpec> {
        match self.description.pixels {
            Pixels::Spec(spec) => Some(spec),
            Pixels::Own => None,
        }
    }

    /// Returns true if the rows at `split` are those of the network, and false if the guest defines them.
    pub(crate) fn is_of_network(&self, split: &Split) -> bool {
        let mut cuts = self.description.cuts.iter();
        !cuts.any(|served| {
            *split == Split::Cut(served.name.clone()) && matches!(served.activation, Activation::Custom(_))
        })
    }

    /// Describes how to reproduce the input of a model trained at `split`. This is a recipe unless only the
    /// guest called `name` can reproduce the input.
    pub(crate) fn input(&self, name: &str, split: &Split) -> ModelInput {
        match self.pixels() {
            Some(spec) if self.is_of_network(split) => ModelInput::Pixels(spec),
            _ => ModelInput::Guest(TrainingGuest {
                guest: name.to_owned(),
                sha256: self
                    .on_hosts
                    .as_ref()
                    .map(|on_hosts| on_hosts.guest.sha256.clone())
                    .unwrap_or_default(),
                parameters: self.parameters.clone(),
                freeze: self.freeze.clone(),
                split: split.clone(),
            }),
        }
    }

    /// Returns all usable splits in order of execution.
    ///
    /// # Errors
    /// Returns the last error if no split is usable.
    pub(crate) fn usable(&self) -> Result<Vec<UsableSplit>, TrainerError> {
        let splits = [Split::None, Split::Input].into_iter();
        let splits = splits.chain(self.cuts()?.iter().map(|cut| Split::Cut(cut.name.clone())));
        let mut refusal = None;
        let mut usable = Vec::new();
        for split in splits {
            match self.bytes_per_sample(&split) {
                Ok(bytes_per_sample) => usable.push(UsableSplit {
                    encodings: self.encodings(&split),
                    split,
                    bytes_per_sample,
                }),
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            Some(error) if usable.is_empty() => Err(error),
            _ => Ok(usable),
        }
    }

    /// Returns the bytes per sample at `split`, or an error if the split is not usable.
    fn bytes_per_sample(&self, split: &Split) -> Result<u64, TrainerError> {
        self.check_encoding(split)?;
        Ok(match split {
            Split::None => {
                self.recipe(split)?;
                self.object_bytes
            }
            Split::Input => self.raw_bytes(split, &self.recipe(split)?.sample_shape(), &[]),
            Split::Cut(name) => {
                let cut = self.served(name)?;
                self.raw_bytes(split, cut.shape.dims(), &self.tensors_at(cut))
            }
        })
    }

    /// Bytes per sample of this shape, which concatenates `tensors`, in the encoding and before compression.
    fn raw_bytes(&self, split: &Split, shape: &[usize], tensors: &[TensorInfo]) -> u64 {
        let values = self.encoding_of(split).values;
        let rows = values.rows_of(shape.to_vec(), tensors);
        rows.row_bytes().ok().flatten().unwrap_or(u64::MAX)
    }

    /// Returns the encodings to choose from. Encodings with a larger loss than f16 must be requested
    /// explicitly.
    fn encodings(&self, split: &Split) -> Vec<Encoding> {
        match (self.encoding, split) {
            (None, Split::Cut(_)) => AUTOMATIC.to_vec(),
            _ => vec![self.encoding_of(split)],
        }
    }

    fn encoding_of(&self, split: &Split) -> Encoding {
        let usual = if *split == Split::Input {
            Encoding::U8
        } else {
            Encoding::F32
        };
        self.encoding.unwrap_or(usual)
    }

    fn check_encoding(&self, split: &Split) -> Result<(), TrainerError> {
        let encoding = self.encoding_of(split);
        let reason = match split {
            Split::None if encoding != Encoding::F32 => {
                "objects are sent unchanged; use f32, or another split"
            }
            Split::Cut(_) if encoding.values == Values::U8 => {
                "u8 is for pixels; use f32, f16 or int8, or the split 'input'"
            }
            _ => return Ok(()),
        };
        Err(TrainerError::Encoding {
            encoding,
            split: split.clone(),
            reason,
        })
    }
}
