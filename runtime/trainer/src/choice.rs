use crate::plan::{Chosen, UsableSplit, few};
use crate::{Flow, Policy, TrainerError};
use frostline_graph::{Cut, Network};
use frostline_tensor::{DType, PixelSpec};
use frostline_wire::{Activation, Compression, Description, Encoding, Pixels, Split, Values};

/// Encodings that are chosen from for activations when the job names none.
const AUTOMATIC: [Encoding; 4] = [
    Encoding::F32,
    Encoding::F16,
    Encoding::F16.with(Compression::Lz4),
    Encoding::F16.with(Compression::Zstd),
];

/// What a split is chosen from: the network, what the guest serves, what the data weigh.
pub(crate) struct Offer<'a> {
    pub(crate) network: &'a Network,
    pub(crate) freeze: &'a str,
    pub(crate) description: &'a Description,
    /// Mean size of the objects, in bytes.
    pub(crate) object_bytes: u64,
    /// As the job wants it.
    pub(crate) encoding: Option<Encoding>,
    /// The most the job allows.
    pub(crate) flow: Flow,
}

impl Offer<'_> {
    /// The split asked for, if it is possible.
    pub(crate) fn fixed(&self, split: &Split) -> Result<Chosen, TrainerError> {
        Ok(Chosen {
            encoding: self.encoding_of(split),
            split: split.clone(),
            bytes_per_sample: self.bytes_per_sample(split)? as f64,
            reason: "as asked for".to_owned(),
            flow: self.flow,
        })
    }

    /// The split for a policy where the hosts were not measured, because of `why`: the one it names, else by the rule of bytes, HAPI's
    /// first: the earliest cut that is smaller than what is stored, since the earlier it is the less the host has to compute; where none
    /// is, the fewest bytes.
    pub(crate) fn by_bytes(
        &self,
        policy: &Policy,
        splits: &[UsableSplit],
        why: &str,
    ) -> Result<Chosen, TrainerError> {
        let smaller = |usable: &&UsableSplit| {
            matches!(usable.split, Split::Cut(_)) && usable.bytes_per_sample < self.object_bytes
        };
        let (split, rule) = match policy {
            Policy::Fixed(split) => (split.clone(), "as asked for"),
            Policy::Freeze => (Split::Cut(self.freeze.to_owned()), "everything that is frozen"),
            _ => match splits.iter().find(smaller) {
                Some(cut) => (
                    cut.split.clone(),
                    "by the rule of bytes: the earliest cut that is smaller than the stored images",
                ),
                None => {
                    let least = splits.iter().min_by_key(|usable| usable.bytes_per_sample);
                    let least = least.ok_or(TrainerError::Ended { part: "plan" })?;
                    (
                        least.split.clone(),
                        "by the rule of bytes: no cut is smaller than the stored images, and this one is the smallest of all",
                    )
                }
            },
        };
        let mut chosen = self.fixed(&split)?;
        chosen.reason = format!("{rule}; {why}");
        Ok(chosen)
    }

    /// Everything on the trainer, because the hosts refuse the frozen layers with the words `why`.
    pub(crate) fn here(&self, why: &str) -> Result<Chosen, TrainerError> {
        let mut chosen = self.fixed(&Split::None)?;
        chosen.reason = format!("the hosts do not run the frozen layers, so this machine does: {why}");
        Ok(chosen)
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

    /// Encodings to choose from. Those that lose more than rounding to f16 are used only when asked for.
    fn encodings(&self, split: &Split) -> Vec<Encoding> {
        match (self.encoding, split) {
            (Some(encoding), _) => vec![encoding],
            (None, Split::None) => vec![Encoding::F32],
            (None, Split::Input) => vec![Encoding::U8],
            (None, Split::Cut(_)) => AUTOMATIC.to_vec(),
        }
    }

    /// The cuts up to the freeze cut, in the order of execution.
    fn cuts(&self) -> Result<&[Cut], TrainerError> {
        self.network.freeze_cut(self.freeze)?;
        let end = self
            .network
            .cuts
            .iter()
            .position(|cut| cut.name == self.freeze)
            .map_or(0, |index| index + 1);
        Ok(self.network.cuts.get(..end).unwrap_or_default())
    }

    /// What one sample weighs at `split`, or why it cannot be.
    fn bytes_per_sample(&self, split: &Split) -> Result<u64, TrainerError> {
        self.check_encoding(split)?;
        Ok(match split {
            Split::None => {
                self.spec(split)?;
                self.object_bytes
            }
            Split::Input => self.raw_bytes(split, &self.spec(split)?.sample_shape()),
            Split::Cut(name) => self.raw_bytes(split, self.served(name)?.shape.dims()),
        })
    }

    /// Bytes of a sample of this shape in its encoding, before compression.
    fn raw_bytes(&self, split: &Split, shape: &[usize]) -> u64 {
        let rows = self.encoding_of(split).values.rows(shape.to_vec());
        rows.row_bytes().ok().flatten().unwrap_or(u64::MAX)
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
                "objects travel as they are; ask for f32, or for another split"
            }
            Split::Cut(_) if encoding.values == Values::U8 => {
                "u8 is for pixels; ask for f32, f16 or int8, or for the split 'input'"
            }
            _ => return Ok(()),
        };
        Err(TrainerError::Encoding {
            encoding,
            split: split.clone(),
            reason,
        })
    }

    fn spec(&self, split: &Split) -> Result<PixelSpec, TrainerError> {
        match self.description.pixels {
            Pixels::Spec(spec) => Ok(spec),
            Pixels::Own => Err(self.ruled_out(
                split,
                "it makes the network's input itself, so only it can; ask for a cut".to_owned(),
            )),
        }
    }

    /// The cut `name`, if it lies right and the guest serves it.
    fn served(&self, name: &str) -> Result<&Cut, TrainerError> {
        let split = Split::Cut(name.to_owned());
        let cuts = self.cuts()?;
        let Some(cut) = cuts.iter().find(|cut| cut.name == name) else {
            self.network.cut(name)?;
            return Err(self.after_freeze(name, cuts));
        };
        if cut.dtype != DType::F32 {
            let reason = format!("activations there are {}, and only f32 travels", cut.dtype);
            return Err(self.ruled_out(&split, reason));
        }
        let served = self.description.cuts.iter().find(|served| served.name == name);
        match served.map(|served| &served.activation) {
            Some(Activation::Faithful) => Ok(cut),
            Some(Activation::Own(_)) if name != self.freeze => Err(self.ruled_out(
                &split,
                format!(
                    "its activation there is its own, which can only stand at the freeze cut '{}'",
                    self.freeze
                ),
            )),
            Some(Activation::Own(shape)) if shape.as_slice() != cut.shape.dims() => Err(self.ruled_out(
                &split,
                format!(
                    "its own activation there is {shape:?}, but the layers after it take {}",
                    cut.shape
                ),
            )),
            Some(Activation::Own(_)) => Ok(cut),
            None => Err(self.ruled_out(&split, self.what_it_serves())),
        }
    }

    fn what_it_serves(&self) -> String {
        let names: Vec<&str> = self
            .description
            .cuts
            .iter()
            .map(|served| served.name.as_str())
            .collect();
        match names.as_slice() {
            [] => "it serves no cut of this model".to_owned(),
            names => format!("the cuts it serves are {}", few(names)),
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

    fn after_freeze(&self, split: &str, cuts: &[Cut]) -> TrainerError {
        let names = ["none", "input"]
            .into_iter()
            .chain(cuts.iter().map(|cut| cut.name.as_str()));
        let names: Vec<&str> = names.collect();
        TrainerError::SplitAfterFreeze {
            split: split.to_owned(),
            freeze: self.freeze.to_owned(),
            allowed: few(&names),
        }
    }
}
