//! `train --resume RUN`: what was not typed is what the run's folder says.

use crate::arguments::{Arguments, Train};
use crate::runs::found;
use anyhow::{Context, Result};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use frostline_trainer::{Recorded, RunState, runs};
use serde_json::{Map, Value};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf, absolute};

/// The settings that are flags of their own, by their names there and in `config.json`.
const SETTINGS: [&str; 19] = [
    "data",
    "layout",
    "validation",
    "freeze",
    "unfreeze",
    "encoding",
    "parameters",
    "device",
    "fixed_batch",
    "precision",
    "reproducible",
    "split",
    "threads",
    "keep",
    "patience",
    "on_bad_sample",
    "request_samples",
    "prefetch",
    "priority",
];
const SHARED_RUNS: &str = "shared_runs";

/// What was typed, with what the run that it goes on with was begun with, where that was not typed.
///
/// # Errors
/// Where there is no such run, or no unfinished one.
pub(crate) fn completed(typed: Vec<OsString>) -> Result<Vec<OsString>> {
    // What is wrong with it is said when all of it is there.
    let matches = Arguments::command()
        .ignore_errors(true)
        .try_get_matches_from(&typed);
    let Ok(matches) = matches else { return Ok(typed) };
    let Some(train) = matches.subcommand_matches("train") else {
        return Ok(typed);
    };
    let given = |name: &str| is_given(train, name);
    // Of a job that is told whole, the newest run is looked for that is this job.
    let told = given("model") && given("data");
    if !given("resume") || told && train.get_one::<PathBuf>("resume").is_none() {
        return Ok(typed);
    }
    let folder = train
        .get_one::<PathBuf>("runs")
        .cloned()
        .unwrap_or_else(|| "runs".into());
    let mut words = typed;
    let run = match train.get_one::<PathBuf>("resume") {
        Some(run) => found(&folder, run),
        None => {
            let run = newest(&folder)?;
            words.retain(|word| word != "--resume");
            words.push(flag("resume", run.as_os_str()));
            run
        }
    };
    let recorded = Recorded::read(&run)?;
    words.extend(missing(&recorded, &run, given));
    Ok(words)
}

fn is_given(train: &ArgMatches, name: &str) -> bool {
    let source = train
        .try_contains_id(name)
        .ok()
        .and_then(|_| train.value_source(name));
    matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// The newest run in `folder` that can be gone on with.
fn newest(folder: &Path) -> Result<PathBuf> {
    let all = runs(folder).with_context(|| format!("cannot list the runs in {}", folder.display()))?;
    let unfinished = |state| matches!(state, RunState::Interrupted | RunState::Failed);
    let run = all.into_iter().find(|run| unfinished(run.state));
    let run = run.with_context(|| format!("there is no unfinished run in {}", folder.display()))?;
    Ok(run.path)
}

/// Flags for all that is recorded and was not `given`.
fn missing(recorded: &Recorded, run: &Path, given: impl Fn(&str) -> bool) -> Vec<OsString> {
    let mut words = Vec::new();
    if !given("recipe") {
        words.push(flag("recipe", run.join("config.json")));
    }
    let settings = SETTINGS
        .into_iter()
        .filter_map(|name| recorded.settings.get_key_value(name));
    // They exclude each other.
    let shared = recorded.settings.get_key_value(SHARED_RUNS);
    let shared = shared.filter(|_| !given("fixed_batch") && !given("reproducible"));
    let all = settings.chain(shared).chain(&recorded.command);
    let excluded = |name: &str| given(SHARED_RUNS) && ["fixed_batch", "reproducible"].contains(&name);
    for (name, value) in all.filter(|(name, _)| !given(name) && !excluded(name)) {
        words.extend(flags(name, value));
    }
    words
}

/// The flags for one setting: none where nothing was given.
fn flags(name: &str, value: &Value) -> Vec<OsString> {
    match value {
        Value::Null | Value::Bool(false) => Vec::new(),
        Value::Bool(true) => vec![OsString::from(format!("--{}", name.replace('_', "-")))],
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![flag(name, text)],
        Value::Array(values) => values.iter().flat_map(|value| flags(name, value)).collect(),
        other => vec![flag(name, other.to_string())],
    }
}

fn flag(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(format!("--{}=", name.replace('_', "-")));
    word.push(value);
    word
}

/// What a run's folder has to say for [`completed`] beside settings: files by their whole paths, hosts, and how often checkpoints are written.
pub(crate) fn command(flags: &Train) -> Map<String, Value> {
    let file = |path: &Path| {
        let path = absolute(path).unwrap_or_else(|_| path.to_owned());
        Value::from(path.to_string_lossy())
    };
    let some = |path: &Option<PathBuf>| path.as_deref().map_or(Value::Null, file);
    let said = [
        ("model", file(&flags.inputs.model)),
        ("labels", some(&flags.training.labels)),
        ("guest", some(&flags.guest)),
        ("out", some(&flags.out)),
        ("host", Value::from(flags.host.host.as_slice())),
        ("token_file", some(&flags.host.token_file)),
        ("ca", some(&flags.host.ca)),
        ("feature_store", Value::from(flags.team.feature_store.as_deref())),
        ("checkpoint_steps", Value::from(flags.run.checkpoint_steps)),
    ];
    said.into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_was_typed_stays_and_the_rest_is_as_recorded() {
        let recorded = Recorded {
            settings: map(json!({
                "data": "/photos", "freeze": "layer4.0", "validation": 0.25, "unfreeze": "", "encoding": null, "reproducible": true, "fixed_batch": 16,
                "priority": -3, "shared_runs": false, "guest_sha256": "ab", "pixels": {"resize": 3}, "split": "auto",
            })),
            recipe: Map::new(),
            command: map(
                json!({"model": "/nets/my net.onnx", "host": ["http://a:1", "http://b:2"], "token_file": "/t"}),
            ),
        };
        let typed = ["host", "split"];
        let words = missing(&recorded, Path::new("/runs/1"), |name| typed.contains(&name));
        assert_eq!(
            words,
            [
                "--recipe=/runs/1/config.json",
                "--data=/photos",
                "--validation=0.25",
                "--freeze=layer4.0",
                "--fixed-batch=16",
                "--reproducible",
                "--priority=-3",
                "--model=/nets/my net.onnx",
                "--token-file=/t",
            ]
        );
    }

    #[test]
    fn other_commands_stay_as_they_are() {
        for typed in [
            vec!["frostline", "train", "--model", "a", "--data", "b", "--resume"],
            vec!["frostline", "train", "--model", "a"],
            vec!["frostline", "train", "--help"],
            vec!["frostline", "runs", "--resume"],
            vec!["frostline"],
        ] {
            let typed: Vec<OsString> = typed.into_iter().map(OsString::from).collect();
            assert_eq!(completed(typed.clone()).unwrap(), typed);
        }
    }

    #[test]
    fn a_run_that_is_none_is_named() {
        let typed = ["frostline", "train", "--resume", "no/such/run"].map(OsString::from);
        let said = completed(typed.to_vec()).unwrap_err().to_string();
        assert!(
            said.contains("no/such/run") && said.contains("there is no run"),
            "{said}"
        );
    }
}
