use crate::plan::{Candidate, fewest_bytes};
use crate::{SplitChoice, TrainerError};
use frostline_graph::{Cut, Network};
use frostline_tensor::{DType, PixelSpec};
use frostline_wire::{Activation, Description, Encoding, Pixels, Split, Values};

/// What a split is chosen from: the network, what the guest serves, what the data weigh.
pub(crate) struct Offer<'a> {
    pub(crate) network: &'a Network,
    pub(crate) freeze: &'a str,
    pub(crate) description: &'a Description,
    /// Mean size of the objects, in bytes.
    pub(crate) object_bytes: u64,
    /// As the job wants it.
    pub(crate) encoding: Option<Encoding>,
}

/// The split a job uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) split: Split,
    pub(crate) encoding: Encoding,
    pub(crate) bytes_per_sample: u64,
    pub(crate) reason: String,
}

impl Offer<'_> {
    /// The split wanted, if it is possible; where the job leaves it open, the one with the fewest bytes.
    pub(crate) fn choose(&self, choice: &SplitChoice) -> Result<Chosen, TrainerError> {
        let plan = match choice {
            SplitChoice::Auto => self.plan()?,
            SplitChoice::Fixed(split) => {
                let chosen = self.candidate(split)?;
                return Ok(self.chosen(chosen, "as asked for".to_owned()));
            }
        };
        Ok(self.chosen(plan.chosen, plan.reason))
    }

    fn chosen(&self, candidate: Candidate, reason: String) -> Chosen {
        let Candidate {
            split,
            bytes_per_sample,
        } = candidate;
        Chosen {
            encoding: self.encoding_of(&split),
            split,
            bytes_per_sample,
            reason,
        }
    }

    fn plan(&self) -> Result<crate::Plan, TrainerError> {
        let splits = [Split::None, Split::Input].into_iter();
        let splits = splits.chain(self.cuts()?.iter().map(|cut| Split::Cut(cut.name.clone())));
        let mut refusal = None;
        let mut candidates = Vec::new();
        for split in splits {
            match self.candidate(&split) {
                Ok(candidate) => candidates.push(candidate),
                Err(error) => refusal = Some(error),
            }
        }
        fewest_bytes(&candidates).ok_or_else(|| refusal.unwrap_or(TrainerError::Ended { part: "plan" }))
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

    /// What `split` weighs, or why it cannot be.
    fn candidate(&self, split: &Split) -> Result<Candidate, TrainerError> {
        self.check_encoding(split)?;
        let bytes_per_sample = match split {
            Split::None => {
                self.spec(split)?;
                self.object_bytes
            }
            Split::Input => self.raw_bytes(split, &self.spec(split)?.sample_shape()),
            Split::Cut(name) => self.raw_bytes(split, self.served(name)?.shape.dims()),
        };
        Ok(Candidate {
            split: split.clone(),
            bytes_per_sample,
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

/// Names for a message, at most a dozen of them.
fn few(names: &[&str]) -> String {
    const MOST: usize = 12;
    match names.get(..MOST) {
        Some(first) if names.len() > MOST => format!("{} and {} more", first.join(", "), names.len() - MOST),
        _ => names.join(", "),
    }
}
