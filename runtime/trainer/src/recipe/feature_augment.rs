use super::held;
use crate::TrainerError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What may be said, as in `brightness=0.1,hflip=0.5`.
const NAMES: &str = "brightness, contrast, posterize, hflip, shift and noise";

/// How training rows are varied at the freeze cut, where no frozen layer has to run for it. `brightness=0.1,contrast=0.2` in words; what is not said
/// is off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FeatureAugment {
    /// The most that is added to a channel or taken from it, as a part of its range: 0 to 1.
    pub brightness: f64,
    /// How far the factor may stray from 1 by which a channel's values move away from their mean: 0 to 1.
    pub contrast: f64,
    /// The fewest bits that a channel's values keep of eight: 1 to 8; `None` keeps all that they are.
    pub posterize: Option<u32>,
    /// How likely a map is mirrored: 0 to 1.
    pub hflip: f64,
    /// The most places that a map is moved by, in each direction; zeros come in.
    pub shift: u32,
    /// The deviation of the noise that is added, as a part of a channel's range: 0 to 1.
    pub noise: f64,
}

impl FeatureAugment {
    /// Whether rows stay as they are.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether places of a map are changed, beside values.
    pub(super) fn moves(&self) -> bool {
        self.hflip > 0.0 || self.shift > 0
    }

    pub(super) fn check(&self) -> Result<(), TrainerError> {
        let share = "it must be 0 to 1";
        for (what, value) in [
            ("brightness of feature_augment", self.brightness),
            ("contrast of feature_augment", self.contrast),
            ("hflip of feature_augment", self.hflip),
            ("noise of feature_augment", self.noise),
        ] {
            held(what, value, (0.0..=1.0).contains(&value), share)?;
        }
        let bits = self.posterize.unwrap_or(8);
        held(
            "posterize of feature_augment",
            bits.into(),
            (1..=8).contains(&bits),
            "it must be 1 to 8 bits",
        )
    }

    /// Refuses to move what has no places: rows at a freeze cut that are no maps.
    ///
    /// # Errors
    /// [`TrainerError::FeatureAugment`].
    pub(crate) fn check_rows(&self, freeze: &str, row: &[usize]) -> Result<(), TrainerError> {
        let refused = |why: String| {
            Err(TrainerError::FeatureAugment {
                freeze: freeze.to_owned(),
                why,
            })
        };
        match *row {
            _ if !self.moves() => Ok(()),
            [_, height, width] if (self.shift as usize) < height.min(width) => Ok(()),
            [_, height, width] => refused(format!(
                "maps there are {height}x{width}, of which a shift by {} would leave nothing; take a smaller one",
                self.shift
            )),
            _ => refused(format!(
                "hflip and shift are for maps [channels, height, width], and rows there are {row:?}; leave both out, or freeze up to an earlier cut"
            )),
        }
    }
}

impl FromStr for FeatureAugment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut found, mut said) = (Self::default(), Vec::new());
        for part in text.split(',').map(str::trim) {
            let (name, word) = part
                .split_once('=')
                .map(|(name, word)| (name.trim(), word.trim()))
                .ok_or_else(|| format!("'{part}' is no <name>=<number>; names are {NAMES}"))?;
            if said.contains(&name) {
                return Err(format!("{name} is said twice"));
            }
            said.push(name);
            match name {
                "brightness" => found.brightness = number(name, word)?,
                "contrast" => found.contrast = number(name, word)?,
                "posterize" => found.posterize = Some(number(name, word)?),
                "hflip" => found.hflip = number(name, word)?,
                "shift" => found.shift = number(name, word)?,
                "noise" => found.noise = number(name, word)?,
                _ => return Err(format!("'{name}' does nothing to features; names are {NAMES}")),
            }
        }
        Ok(found)
    }
}

fn number<T: FromStr>(name: &str, word: &str) -> Result<T, String> {
    word.parse()
        .map_err(|_| format!("'{word}' is no such number as {name} takes"))
}

impl TryFrom<String> for FeatureAugment {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<FeatureAugment> for String {
    fn from(augment: FeatureAugment) -> Self {
        augment.to_string()
    }
}

impl fmt::Display for FeatureAugment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![format!("brightness={}", self.brightness)];
        parts.push(format!("contrast={}", self.contrast));
        parts.extend(self.posterize.map(|bits| format!("posterize={bits}")));
        parts.push(format!("hflip={}", self.hflip));
        parts.push(format!("shift={}", self.shift));
        parts.push(format!("noise={}", self.noise));
        parts.retain(|part| !part.ends_with("=0"));
        if parts.is_empty() {
            return formatter.write_str("noise=0");
        }
        formatter.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_is_done_and_are_said_again() {
        let text = "brightness=0.3,contrast=0.2,posterize=4,hflip=0.5,shift=1,noise=0.05";
        let all: FeatureAugment = text.parse().unwrap();
        assert_eq!((all.brightness, all.contrast, all.posterize), (0.3, 0.2, Some(4)));
        assert_eq!((all.hflip, all.shift, all.noise), (0.5, 1, 0.05));
        all.check().unwrap();
        assert_eq!(all.to_string(), text);
        let some: FeatureAugment = "noise=0.1, brightness=1".parse().unwrap();
        assert_eq!(some.to_string(), "brightness=1,noise=0.1");
        let off = FeatureAugment::default();
        assert!(off.is_none() && !some.is_none());
        assert_eq!(off.to_string().parse::<FeatureAugment>().unwrap(), off);
    }

    #[test]
    fn words_that_say_nothing_are_refused() {
        for (text, word) in [
            ("", "<name>=<number>"),
            ("brightness", "<name>=<number>"),
            ("sharpness=0.1", "names are brightness"),
            ("brightness=much", "'much'"),
            ("shift=0.5", "shift"),
            ("posterize=-1", "posterize"),
            ("noise=0.1,noise=0.2", "twice"),
        ] {
            let error = text.parse::<FeatureAugment>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        for text in [
            "brightness=1.5",
            "contrast=-0.1",
            "posterize=0",
            "posterize=9",
            "hflip=2",
            "noise=nan",
        ] {
            let error = text.parse::<FeatureAugment>().unwrap().check().unwrap_err();
            assert!(error.to_string().contains("feature_augment"), "{error}");
        }
    }

    #[test]
    fn only_maps_are_moved() {
        let moved: FeatureAugment = "hflip=0.5,shift=2".parse().unwrap();
        moved.check_rows("conv", &[8, 3, 5]).unwrap();
        for (row, word) in [
            (&[512][..], "[512]"),
            (&[197, 768], "leave both out"),
            (&[8, 2, 5], "smaller"),
        ] {
            let error = moved.check_rows("conv", row).unwrap_err().to_string();
            assert!(error.contains("'conv'") && error.contains(word), "{error}");
        }
        let values: FeatureAugment = "brightness=0.1,noise=0.1".parse().unwrap();
        values.check_rows("features", &[512]).unwrap();
    }
}
