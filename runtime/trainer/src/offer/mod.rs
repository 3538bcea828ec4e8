//! Where a network can be divided with what the hosts have and the guest serves, and what is asked for there.

mod choose;
mod served;

use crate::notes::{Input, TrainedWith};
use crate::plan::UsableSplit;
use crate::upload::OnHosts;
use crate::{Flow, TrainerError};
use frostline_client::{RowKind, Source};
use frostline_graph::Network;
use frostline_tensor::PixelSpec;
use frostline_wire::{Activation, Compression, Description, Encoding, Pixels, Split, Terms, Values};

/// Encodings that are chosen from for activations when the job names none.
const AUTOMATIC: [Encoding; 4] = [
    Encoding::F32,
    Encoding::F16,
    Encoding::F16.with(Compression::Lz4),
    Encoding::F16.with(Compression::Zstd),
];

/// What a split is chosen from, and what its rows are asked for with: the network, what the guest serves, what the data weigh.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) root: String,
    pub(crate) network: Network,
    pub(crate) freeze: String,
    /// Guest and frozen layers, as far as the hosts have them.
    pub(crate) on_hosts: Option<OnHosts>,
    /// What the guest is told.
    pub(crate) parameters: String,
    /// What it says it makes.
    pub(crate) description: Description,
    /// Mean size of the objects, in bytes.
    pub(crate) object_bytes: u64,
    /// As the job wants it.
    pub(crate) encoding: Option<Encoding>,
    /// How the job's runs stand to other work.
    pub(crate) terms: Terms,
    /// The most the job allows.
    pub(crate) flow: Flow,
}

impl Offer {
    /// The same with the network frozen up to an earlier cut.
    pub(crate) fn frozen_up_to(&self, freeze: &str) -> Self {
        Self {
            freeze: freeze.to_owned(),
            ..self.clone()
        }
    }

    /// Rows at `split` in `encoding`, at most `request_samples` a request.
    ///
    /// # Errors
    /// [`TrainerError::Graph`] for a cut the network does not have.
    pub(crate) fn at(
        &self,
        split: &Split,
        encoding: Encoding,
        request_samples: usize,
    ) -> Result<Source, TrainerError> {
        let input = || self.network.input.shape.dims().to_vec();
        let (rows, shape) = match (split, self.pixels()) {
            (Split::Cut(name), _) => (RowKind::Values, self.network.cut(name)?.shape.dims().to_vec()),
            (Split::None, Some(spec)) => (RowKind::Objects(spec), input()),
            (Split::Input, Some(spec)) if encoding.values == Values::U8 => (RowKind::Pixels(spec), input()),
            _ => (RowKind::Values, input()),
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
            shape,
            request_samples: request_samples.max(1),
        })
    }

    /// How objects become pixels; `None` when only the guest knows.
    pub(crate) fn pixels(&self) -> Option<PixelSpec> {
        match self.description.pixels {
            Pixels::Spec(spec) => Some(spec),
            Pixels::Own => None,
        }
    }

    /// How the rows of a job divided at `split` are made by the guest called `name`: by a recipe, unless only the guest can make them again.
    pub(crate) fn input(&self, name: &str, split: &Split) -> Input {
        let own_rows = self.description.cuts.iter().any(|served| {
            *split == Split::Cut(served.name.clone()) && matches!(served.activation, Activation::Own(_))
        });
        match self.pixels() {
            Some(spec) if !own_rows => Input::Pixels(spec),
            _ => Input::Guest(TrainedWith {
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

    /// All splits that can be used, in the order of execution.
    ///
    /// # Errors
    /// The last refusal when none can.
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

    /// What one sample weighs at `split`, or why it cannot be.
    fn bytes_per_sample(&self, split: &Split) -> Result<u64, TrainerError> {
        self.check_encoding(split)?;
        Ok(match split {
            Split::None => {
                self.recipe(split)?;
                self.object_bytes
            }
            Split::Input => self.raw_bytes(split, &self.recipe(split)?.sample_shape()),
            Split::Cut(name) => self.raw_bytes(split, self.served(name)?.shape.dims()),
        })
    }

    /// Bytes of a sample of this shape in its encoding, before compression.
    fn raw_bytes(&self, split: &Split, shape: &[usize]) -> u64 {
        let rows = self.encoding_of(split).values.rows(shape.to_vec());
        rows.row_bytes().ok().flatten().unwrap_or(u64::MAX)
    }

    /// Encodings to choose from. Those that lose more than rounding to f16 are used only when asked for.
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
