//! `frostline runs`. Also selects run folders for other commands.

use crate::arguments::{RunsFlags, TrainFlags};
use crate::output::print_list;
use anyhow::{Context, Result, bail};
use frostline_trainer::{Job, RunFolder, RunState, RunSummary, runs, unfinished};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(crate) fn run(flags: &RunsFlags, json: bool) -> Result<()> {
    let folder = &flags.folder;
    if !folder.is_dir() && folder.as_os_str() != DEFAULT {
        bail!(
            "no folder {}; give the folder that holds the runs (by default 'runs')",
            folder.display()
        );
    }
    let runs = runs(folder).with_context(|| format!("cannot list the runs in {}", folder.display()))?;
    print_list(&runs, json, "run|state|epochs>|best|age>", row)
}

fn row(run: &RunSummary) -> [String; 5] {
    let best = match (&run.figure, run.best, run.best_epoch) {
        (Some(figure), Some(best), Some(epoch)) => {
            let figure = figure.trim_start_matches("validation_").replace('_', " ");
            format!("{figure} {best:.4} (epoch {epoch})")
        }
        _ => String::new(),
    };
    [
        run.name.clone(),
        run.state.to_string(),
        format!("{}/{}", run.epochs_done, run.epochs),
        best,
        age(run.age_seconds),
    ]
}

/// Default folder for runs.
pub(crate) const DEFAULT: &str = "runs";

/// Formats an age in the largest unit (s, min, h, d) of which it has at least two, rounded down.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Returns the run to resume if the flags select a specific run or the newest unfinished run. If the flags
/// define a whole job, returns `None`, and [`folder`] finds the newest run of the same job.
pub(crate) fn resumed(flags: &TrainFlags) -> Result<Option<PathBuf>> {
    let given = &flags.job.given;
    match &flags.resume {
        None => Ok(None),
        Some(Some(run)) => Ok(Some(resolve_run(&flags.runs, run))),
        Some(None) if given.has("model") && given.has("data") => Ok(None),
        Some(None) => newest(&flags.runs).map(Some),
    }
}

/// Returns the newest unfinished run in `folder`.
fn newest(folder: &Path) -> Result<PathBuf> {
    let all = runs(folder).with_context(|| format!("cannot list the runs in {}", folder.display()))?;
    let mut all = all.into_iter();
    let run = all.find(|run| matches!(run.state, RunState::Interrupted | RunState::Failed));
    let run = run.with_context(|| format!("no unfinished run in {}", folder.display()))?;
    Ok(run.path)
}

/// Returns the folder of a checked job, which is new or contains the newest run of the same job.
pub(crate) fn folder(flags: &TrainFlags, job: &Job) -> Result<RunFolder> {
    match flags.resume {
        None => Ok(RunFolder::new(new_folder(&flags.runs, &job.model_name())?)),
        Some(_) => Ok(unfinished(&flags.runs, job)?),
    }
}

/// Resolves a run given as path, or as name in `runs`.
pub(crate) fn resolve_run(runs: &Path, run: &Path) -> PathBuf {
    let among = runs.join(run);
    if !run.exists() && among.exists() {
        among
    } else {
        run.to_owned()
    }
}

/// Maximum number of runs with the same name, which contains the time in seconds.
const MOST: usize = 1000;

/// Creates the unique folder `<UTC time>-<model name>` in `runs`.
pub(crate) fn new_folder(runs: &Path, model: &str) -> Result<PathBuf> {
    fs::create_dir_all(runs).with_context(|| no_folder_in(runs))?;
    let time: chrono::DateTime<chrono::Utc> = std::time::SystemTime::now().into();
    let model = model.replace(
        |letter: char| !letter.is_ascii_alphanumeric() && !"-_.".contains(letter),
        "-",
    );
    let name = format!("{}-{model}", time.format("%Y%m%d-%H%M%S"));
    numbered(&runs.join(name)).with_context(|| no_folder_in(runs))
}

fn no_folder_in(runs: &Path) -> String {
    format!("cannot make a folder for the run in {}", runs.display())
}

/// Creates the folder `first`, or `first` followed by a hyphen and the first unused number from 2 to
/// [`MOST`].
fn numbered(first: &Path) -> Result<PathBuf> {
    let name = first.file_name().unwrap_or_default().to_string_lossy();
    for number in 1..=MOST {
        let path = match number {
            1 => first.to_owned(),
            _ => first.with_file_name(format!("{name}-{number}")),
        };
        match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return Ok(made.map(|()| path)?),
        }
    }
    let runs = first.parent().unwrap_or(first);
    bail!("{} has {MOST} runs called {name}", runs.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_name_has_as_many_runs_as_the_error_says() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("20261128-120000-net");
        let made: BTreeSet<PathBuf> = (0..MOST).map(|_| numbered(&name).unwrap()).collect();
        assert_eq!(made.len(), MOST);
        let error = numbered(&name).unwrap_err().to_string();
        assert!(
            error.ends_with("has 1000 runs called 20261128-120000-net"),
            "{error}"
        );
    }

    #[test]
    fn each_run_has_a_folder_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("deep/runs");
        let [first, second] = [0, 1].map(|_| new_folder(&runs, "a net/é").unwrap());
        assert_ne!(first, second);
        let name = first.file_name().unwrap().to_str().unwrap();
        assert!(name.ends_with("-a-net--") && name.len() == 23, "{name}");
    }

    #[test]
    fn ages_are_rough() {
        assert_eq!([5, 125, 7_300, 200_000].map(age), ["5 s", "2 min", "2 h", "2 d"]);
    }
}
