//! Settings as command line flags. Flags override files and defaults.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use frostline_wire::{Compression, Encoding, Values};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::str::FromStr;
use strum::VariantNames;

/// Parsed flags and environment variables for the settings `T`.
#[derive(Debug, Clone)]
pub struct GivenFlags<T> {
    matches: ArgMatches,
    of: PhantomData<T>,
}

impl<T: Args> GivenFlags<T> {
    /// Sets the given values and keeps all others.
    ///
    /// # Errors
    /// Returns a clap error if a value is invalid. Parsing already rejects such values.
    pub fn overlay(&self, settings: &mut T) -> Result<(), Error> {
        settings.update_from_arg_matches(&self.matches)
    }

    /// Returns true if a flag or environment variable sets `name`.
    pub fn has(&self, name: &str) -> bool {
        let source = self.matches.try_contains_id(name).ok();
        let source = source.and_then(|_| self.matches.value_source(name));
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    }

    /// Returns the first flag on the command line that is not in `allowed`.
    pub fn other_than(&self, allowed: &[&str]) -> Option<String> {
        let typed = |id: &str| self.matches.value_source(id) == Some(ValueSource::CommandLine);
        let known = T::augment_args_for_update(Command::new("settings"));
        let mut names = known.get_arguments().map(|argument| argument.get_id().as_str());
        let found = names.find(|name| typed(name) && !allowed.contains(name));
        found.map(|name| format!("--{}", name.replace('_', "-")))
    }
}

impl<T: Args + Default> GivenFlags<T> {
    /// Returns the defaults with the given values.
    ///
    /// # Errors
    /// Returns the same errors as [`GivenFlags::overlay`].
    pub fn settings(&self) -> Result<T, Error> {
        let mut settings = T::default();
        self.overlay(&mut settings)?;
        Ok(settings)
    }
}

/// Returns clap's error for a missing required flag.
pub fn missing(flag: &str) -> Error {
    Error::raw(
        ErrorKind::MissingRequiredArgument,
        format!(
            "the following required argument was not provided: {flag}\n\nFor more information, try '--help'.\n"
        ),
    )
}

impl<T> FromArgMatches for GivenFlags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self {
            matches: matches.clone(),
            of: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.matches = matches.clone();
        Ok(())
    }
}

impl<T: Args + Default + Serialize> Args for GivenFlags<T> {
    fn augment_args(command: Command) -> Command {
        let command = T::augment_args_for_update(command);
        let defaults = serde_json::to_value(T::default()).unwrap_or_default();
        let defaults: BTreeMap<_, _> = defaults_of(&defaults).into_iter().collect();
        command.mut_args(|argument| match defaults.get(argument.get_id().as_str()) {
            Some(default) => {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                argument.help(format!("{help} [default: {default}]"))
            }
            None => argument,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Returns the defaults for help texts by flag name.
fn defaults_of(group: &Value) -> Vec<(String, String)> {
    let fields = group.as_object().into_iter().flatten();
    fields
        .flat_map(|(name, value)| match value {
            Value::Object(_) => defaults_of(value),
            Value::String(word) if !word.is_empty() => vec![(name.clone(), word.clone())],
            Value::Number(number) => {
                let shown = number
                    .as_f64()
                    .map_or_else(|| number.to_string(), |number| number.to_string());
                vec![(name.clone(), shown)]
            }
            _ => Vec::new(),
        })
        .collect()
}

/// Returns a parser for the names of `T`.
pub fn named<T>() -> impl TypedValueParser<Value = T>
where
    T: FromStr + VariantNames + Clone + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(T::VARIANTS).try_map(|word| word.parse())
}

/// Parses a positive integer.
///
/// # Errors
/// Returns a message if `text` is not such a number.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Parses a finite number above 0.
///
/// # Errors
/// Returns a message if `text` is not such a number.
pub fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

/// Minimum similarity of a suggestion, 0 to 1.
const ALIKE: f64 = 0.5;

/// Suggests an encoding for an unknown name.
pub(crate) fn similar_encoding(word: &str) -> Option<String> {
    let known = Values::ALL
        .into_iter()
        .flat_map(|values| {
            Compression::ALL.map(|compression| Encoding::plain(values).with(compression).to_string())
        })
        .chain(["auto".to_owned()]);
    let known: Vec<String> = known.collect();
    most_similar(&word.to_lowercase(), known.iter().map(String::as_str)).map(str::to_owned)
}

/// Returns the most similar name in `known`, or `None` if all are too different.
pub(crate) fn most_similar<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.map(|known| (strsim::normalized_damerau_levenshtein(word, known), known));
    let (alike, meant) = rated.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (alike >= ALIKE).then_some(meant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchNorm, CacheLimit, JobSpec, LearningRates, Objective, OptimizerName, Recipe};
    use clap::Parser;

    #[derive(Parser)]
    struct Job {
        #[command(flatten)]
        given: GivenFlags<JobSpec>,
    }

    fn given(words: &[&str]) -> Result<GivenFlags<JobSpec>, Error> {
        let words = std::iter::once("frostline").chain(words.iter().copied());
        Job::try_parse_from(words).map(|job| job.given)
    }

    fn spec(words: &[&str]) -> JobSpec {
        given(words).unwrap().settings().unwrap()
    }

    #[test]
    fn flags_overlay_what_is_there_and_leave_the_rest() {
        let recipe = Recipe {
            epochs: 7,
            optimizer: OptimizerName::Adamw,
            nesterov: true,
            ..Recipe::default()
        };
        let mut job = JobSpec {
            feature_cache: Some(CacheLimit::Off),
            threads: 3,
            recipe,
            ..JobSpec::default()
        };
        let words = [
            "--epochs",
            "3",
            "--threads",
            "5",
            "--host",
            "http://a",
            "--nesterov=false",
        ];
        given(&words).unwrap().overlay(&mut job).unwrap();
        assert_eq!(
            (job.recipe.epochs, job.recipe.optimizer),
            (3, OptimizerName::Adamw)
        );
        assert_eq!((job.threads, job.recipe.nesterov), (5, false));
        assert_eq!(job.feature_cache, Some(CacheLimit::Off));
        assert_eq!(job.hosts.host, ["http://a"]);
    }

    #[test]
    fn settings_that_stand_alone_are_switched_on() {
        let job = spec(&[
            "--reproducible",
            "--standardize",
            "--hflip",
            "--batch-norm",
            "updated",
        ]);
        assert!(job.reproducible && job.recipe.standardize && !job.recipe.nesterov);
        assert_eq!(
            (job.recipe.hflip, job.recipe.batch_norm),
            (0.5, BatchNorm::Updated)
        );
        // Environment variables can set these three.
        let nothing = JobSpec {
            feature_cache: None,
            feature_folder: None,
            ..spec(&[])
        };
        assert_eq!(nothing, JobSpec::default());
        assert_eq!(
            spec(&["--lr", "head=0.1,rest=0.01"])
                .recipe
                .lr
                .unwrap()
                .to_string(),
            "head=0.1,rest=0.01"
        );
        assert_eq!(spec(&["--lr", "0.5"]).recipe.lr, Some(LearningRates::One(0.5)));
    }

    #[test]
    fn augmentation_is_said_as_torchvision_and_timm_say_it() {
        let words =
            "--random-resized-crop --rand-augment 3,7 --color-jitter 0.4 --random-erasing 0.25 --views 4";
        let recipe = spec(&words.split(' ').collect::<Vec<_>>()).recipe;
        recipe.check().unwrap();
        let augmentation = recipe.augmentation();
        assert_eq!(augmentation.random_resized_crop.unwrap().scale, [0.08, 1.0]);
        assert_eq!(augmentation.rand_augment.unwrap().num_ops, 3);
        let jitter = augmentation.color_jitter.unwrap();
        assert_eq!((jitter.saturation, jitter.hue), (0.4, 0.0));
        assert_eq!(
            (augmentation.random_erasing.unwrap().p, recipe.views),
            (0.25, Some(4))
        );
        for wrong in [
            "--color-jitter 0.1,0.2",
            "--rand-augment 2",
            "--views 0",
            "--optimizer adam",
        ] {
            assert!(given(&wrong.split(' ').collect::<Vec<_>>()).is_err(), "{wrong}");
        }
        for unfit in [
            "--hflip 7",
            "--rand-augment 2,31",
            "--random-resized-crop 0.9,0.1",
        ] {
            let recipe = spec(&unfit.split(' ').collect::<Vec<_>>()).recipe;
            assert!(recipe.check().is_err(), "{unfit}");
        }
    }

    #[test]
    fn minimizing_the_cost_needs_prices() {
        let priced = spec(&["--objective", "cost", "--prices", "host=0.05,gb=0.09"]);
        assert_eq!(priced.objective, Objective::Cost);
        assert_eq!(priced.prices.unwrap().to_string(), "host=0.05,trainer=0,gb=0.09");
        priced.check().unwrap();
        for flags in [
            &["--objective", "cost"][..],
            &["--objective", "cost", "--prices", "gb=0"],
        ] {
            let refused = spec(flags).check().unwrap_err().to_string();
            assert!(
                refused.starts_with("objective is cost; it needs prices"),
                "{refused}"
            );
        }
    }

    #[test]
    fn every_setting_has_a_text_and_its_default() {
        let command = GivenFlags::<JobSpec>::augment_args(Command::new("frostline"));
        let help = |name: &str| {
            let found = command.get_arguments().find(|argument| argument.get_id() == name);
            found.unwrap().get_help().unwrap().to_string()
        };
        assert!(help("epochs").ends_with("[default: 20]"), "{}", help("epochs"));
        assert!(help("split").ends_with("[default: auto]"));
        assert!(help("warmup_ratio").ends_with("[default: 0.05]"));
        assert!(!help("patience").contains("default:"));
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{}", argument.get_id());
        }
    }

    #[test]
    fn unknown_encodings_suggest_a_similar_one() {
        let said = given(&["--encoding", "fp16"]).unwrap_err().to_string();
        assert!(said.contains("did you mean f16"), "{said}");
    }
}
