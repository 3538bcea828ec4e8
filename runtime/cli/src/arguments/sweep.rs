use frostline_job::{JobSpec, LearningRates};
use std::str::FromStr;

/// Values of a setting to try, as in `lr=0.1,0.03,0.01`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sweep {
    pub(crate) what: Setting,
    pub(crate) values: Vec<String>,
}

/// What can be swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Setting {
    Lr,
    WeightDecay,
    Seed,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "write lr=0.1,0.03,0.01; weight_decay and seed can be swept too";
        let (what, values) = text.split_once('=').ok_or(wanted)?;
        let what = what.trim().replace('-', "_").parse().map_err(|_| wanted)?;
        let sweep = Self {
            what,
            values: values.split(',').map(|value| value.trim().to_owned()).collect(),
        };
        for (place, value) in sweep.values.iter().enumerate() {
            sweep.set(&mut JobSpec::default(), value)?;
            if sweep.values.iter().take(place).any(|before| before == value) {
                return Err(format!("{what} has the value {value} twice"));
            }
        }
        Ok(sweep)
    }
}

impl Sweep {
    /// Gives `job` one of the values. Whatever the seed, all variants are validated on the same images.
    pub(crate) fn set(&self, job: &mut JobSpec, value: &str) -> Result<(), String> {
        let wrong = |error: String| format!("{value:?} is not a {}: {error}", self.what);
        job.validation_seed = Some(job.division_seed());
        let recipe = &mut job.recipe;
        let number = || value.parse::<f64>().map_err(|error| wrong(error.to_string()));
        match self.what {
            Setting::Lr => recipe.lr = Some(LearningRates::One(number()?)),
            Setting::WeightDecay => recipe.weight_decay = Some(number()?),
            Setting::Seed => {
                recipe.seed = value
                    .parse()
                    .map_err(|error: std::num::ParseIntError| wrong(error.to_string()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_setting() {
        let sweep: Sweep = "lr=0.1, 0.03".parse().unwrap();
        assert_eq!(
            (sweep.what, sweep.values.as_slice()),
            (Setting::Lr, &["0.1".to_owned(), "0.03".to_owned()][..])
        );
        let mut job = JobSpec::default();
        job.recipe.seed = 7;
        for (sweep, value) in [
            ("lr=0.03", "0.03"),
            ("weight-decay=1e-4", "1e-4"),
            ("seed=1,2", "2"),
        ] {
            sweep.parse::<Sweep>().unwrap().set(&mut job, value).unwrap();
        }
        assert_eq!(job.recipe.lr, Some(LearningRates::One(0.03)));
        assert_eq!((job.recipe.weight_decay, job.recipe.seed), (Some(1e-4), 2));
        // The images to validate with are those of the job that is swept.
        assert_eq!(job.division_seed(), 7);
        for text in ["", "lr", "lr=", "lr=x", "batch=1", "seed=-1", "lr=0.1,0.1"] {
            assert!(text.parse::<Sweep>().is_err(), "{text}");
        }
    }
}
