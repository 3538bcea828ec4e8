use clap::{Args, Command, Parser};
use frostline_job::flags::GivenFlags;
use frostline_job::{JobSpec, Recipe};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A setting and the values to try, such as `lr=0.1,0.03,0.01`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Sweep {
    /// Recipe setting, or `freeze`, with underscores.
    pub(crate) setting: String,
    pub(crate) values: Vec<String>,
}

/// Parser for the flags of a job.
#[derive(Parser)]
struct SettingsParser {
    #[command(flatten)]
    given: GivenFlags<JobSpec>,
}

/// Returns the names of settings that can be swept.
fn settings() -> Vec<String> {
    let recipe = Recipe::augment_args(Command::new("recipe"));
    let names = recipe
        .get_arguments()
        .map(|argument| argument.get_id().as_str().to_owned());
    names.chain(["freeze".to_owned()]).collect()
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "write lr=0.1,0.03,0.01; all settings of the recipe can be swept, and freeze";
        let (what, values) = text.split_once('=').ok_or(wanted)?;
        let setting = what.trim().replace('-', "_");
        let known = settings();
        if !known.contains(&setting) {
            let near = frostline_graph::similar(&setting, known.iter().map(String::as_str));
            return Err(match near.first() {
                Some(near) => format!("unknown setting '{setting}', did you mean '{near}'? {wanted}"),
                None => format!("unknown setting '{setting}'; {wanted}"),
            });
        }
        let sweep = Self {
            setting,
            values: values.split(',').map(|value| value.trim().to_owned()).collect(),
        };
        for (place, value) in sweep.values.iter().enumerate() {
            sweep.set(&mut JobSpec::default(), value)?;
            if sweep.values.iter().take(place).any(|before| before == value) {
                return Err(format!("{} has the value {value} twice", sweep.setting));
            }
        }
        Ok(sweep)
    }
}

impl Sweep {
    /// Sets one of the values in `job` like the flag would. The validation seed is fixed first, so that all
    /// variants use the same validation images even if the sweep changes the seed.
    pub(crate) fn set(&self, job: &mut JobSpec, value: &str) -> Result<(), String> {
        job.validation_seed = Some(job.division_seed());
        let flag = format!("--{}={value}", self.setting.replace('_', "-"));
        let settings =
            SettingsParser::try_parse_from(["frostline", &flag]).map_err(|error| first_line(&error))?;
        settings.given.overlay(job).map_err(|error| first_line(&error))
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let why = text.lines().next().unwrap_or_default();
    why.strip_prefix("error: ").unwrap_or(why).to_owned()
}

impl fmt::Display for Sweep {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}={}", self.setting, self.values.join(","))
    }
}

impl TryFrom<String> for Sweep {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Sweep> for String {
    fn from(sweep: Sweep) -> Self {
        sweep.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_job::{LearningRates, OptimizerName};

    #[test]
    fn values_are_those_of_the_setting() {
        let sweep: Sweep = "lr=0.1, 0.03".parse().unwrap();
        assert_eq!(
            (sweep.setting.as_str(), sweep.values.as_slice()),
            ("lr", &["0.1".to_owned(), "0.03".to_owned()][..])
        );
        assert_eq!(sweep.to_string().parse::<Sweep>().unwrap(), sweep);
        let mut job = JobSpec::default();
        job.recipe.seed = 7;
        for (sweep, value) in [
            ("lr=0.03", "0.03"),
            ("weight-decay=1e-4", "1e-4"),
            ("seed=1,2", "2"),
            ("optimizer=sgd,adamw", "adamw"),
            ("dropout=0,0.5", "0.5"),
            ("batch=16,32", "32"),
            ("freeze=layer3,layer4", "layer4"),
        ] {
            sweep.parse::<Sweep>().unwrap().set(&mut job, value).unwrap();
        }
        let recipe = &job.recipe;
        assert_eq!(recipe.lr, Some(LearningRates::One(0.03)));
        assert_eq!((recipe.weight_decay, recipe.seed), (Some(1e-4), 2));
        assert_eq!(
            (recipe.optimizer, recipe.dropout, recipe.batch),
            (OptimizerName::Adamw, 0.5, 32)
        );
        assert_eq!(job.freeze.as_deref(), Some("layer4"));
        // The sweep does not change the validation images.
        assert_eq!(job.division_seed(), 7);
        for text in [
            "",
            "lr",
            "lr=",
            "lr=x",
            "batch=0",
            "seed=-1",
            "lr=0.1,0.1",
            "data=a,b",
            "split=none",
        ] {
            assert!(text.parse::<Sweep>().is_err(), "{text}");
        }
        let error = "bach=1,2".parse::<Sweep>().unwrap_err();
        assert!(error.contains("did you mean 'batch'"), "{error}");
    }
}
