//! Differences that prevent a run from being resumed.

use crate::{Class, JobSpec, Scheduler, Setting};
use serde_json::Value;
use std::path::Path;

/// Maximum number of settings named in a message.
const NAMED: usize = 4;

impl JobSpec {
    /// Returns the settings that identify the job. `self` must be in the form of [`JobSpec::recorded`].
    pub fn identity(&self) -> Vec<Setting> {
        let mut settings = self.settings();
        settings.retain(|setting| identifies(setting, self.reproducible));
        settings
    }
}

/// Returns true if a setting identifies a job. `exact` is true if the bits of the results matter.
fn identifies(setting: &Setting, exact: bool) -> bool {
    match setting.class {
        Class::Identity => true,
        // These settings change bits, but not losses.
        Class::Exact => exact,
        Class::Free | Class::Place => false,
    }
}

/// Explains why a run cannot be resumed with the settings `now`, or returns `None` if it can. `then` are the
/// settings of the run, and `begun` is the number of started epochs. Both settings must be in the form of
/// [`JobSpec::recorded`] and include hashes.
pub fn refusal(then: &JobSpec, now: &JobSpec, begun: u32) -> Option<String> {
    let mut differ = Vec::new();
    for difference in differences(then, now) {
        if difference.name == "epochs" {
            differ.extend(epochs_refusal(then, now, begun));
        } else {
            differ.push(difference.text("checkpoint"));
        }
    }
    joined(differ)
}

/// Explains why a sweep cannot be resumed with the settings `now`, or returns `None` if it can. `then` are
/// the settings of the sweep. Unlike [`refusal`], the number of epochs cannot change, because finished
/// variants are not trained again. Both settings must be in the form of [`JobSpec::recorded`].
pub fn sweep_refusal(then: &JobSpec, now: &JobSpec) -> Option<String> {
    let differ = differences(then, now);
    joined(differ.iter().map(|difference| difference.text("sweep")).collect())
}

/// Joins the first [`NAMED`] differences, or returns `None` if there are no differences.
fn joined(mut differ: Vec<String>) -> Option<String> {
    if differ.is_empty() {
        return None;
    }
    let more = match differ.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    differ.truncate(NAMED);
    Some(differ.join("; ") + &more)
}

/// Setting with different values in a run and in a job that resumes it.
struct SettingDifference {
    name: String,
    then: String,
    now: String,
}

impl SettingDifference {
    /// Describes the difference. `recorded` names the owner of the earlier value.
    fn text(&self, recorded: &str) -> String {
        let Self { name, then, now } = self;
        let what = match name.as_str() {
            "model_sha256" => "the model".to_owned(),
            "guest_sha256" => "the guest".to_owned(),
            name => name.to_owned(),
        };
        format!("{what} is {now}, the {recorded} has {then}")
    }
}

/// Returns the settings that identify a job and differ. If the model differs, the other settings are
/// omitted.
fn differences(then: &JobSpec, now: &JobSpec) -> Vec<SettingDifference> {
    if then.model_sha256 != now.model_sha256 {
        return vec![SettingDifference {
            name: "model_sha256".to_owned(),
            then: file_name(then.model.as_deref(), then.model_sha256.as_deref()),
            now: file_name(now.model.as_deref(), now.model_sha256.as_deref()),
        }];
    }
    let toggled = then.reproducible != now.reproducible;
    let exact = then.reproducible && now.reproducible;
    let pairs = then.settings().into_iter().zip(now.settings());
    let differ = pairs
        .filter(|(old, new)| identifies(new, exact) && old.value != new.value)
        // The default batch size depends on whether the job is reproducible.
        .filter(|(_, new)| !(toggled && new.name == "fixed_batch"))
        .map(|(old, new)| match new.name.as_str() {
            "guest_sha256" => SettingDifference {
                name: new.name,
                then: file_name(then.guest.as_deref(), then.guest_sha256.as_deref()),
                now: file_name(now.guest.as_deref(), now.guest_sha256.as_deref()),
            },
            _ => SettingDifference {
                name: new.name,
                then: shown(&old.value),
                now: shown(&new.value),
            },
        });
    differ.collect()
}

/// Formats the name, if any, and the shortened SHA-256 of a file.
fn file_name(file: Option<&Path>, sha256: Option<&str>) -> String {
    let sha256 = sha256.unwrap_or("unknown");
    let short = sha256.get(..12).unwrap_or(sha256);
    match file.and_then(Path::file_stem) {
        Some(name) => format!("'{}' (SHA-256 {short})", name.to_string_lossy()),
        None => format!("SHA-256 {short}"),
    }
}

/// Explains why the number of epochs cannot change, or returns `None` if it can.
fn epochs_refusal(then: &JobSpec, now: &JobSpec, begun: u32) -> Option<String> {
    let recipe = &now.recipe;
    let then = then.recipe.epochs;
    let now = recipe.epochs;
    let free = matches!(recipe.lr_scheduler, Scheduler::Constant | Scheduler::Step);
    if !free || recipe.warmup_ratio != 0.0 {
        return Some(format!(
            "epochs is {now}, the checkpoint has {then}; it can change only with the lr_scheduler constant or step and a warmup_ratio of 0"
        ));
    }
    (now < begun).then(|| format!("epochs is {now}, the checkpoint has started epoch {begun}"))
}

/// Formats a value for display.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keep, LearningRates, OnBadSample, Policy};

    fn spec() -> JobSpec {
        JobSpec {
            model: Some("/nets/Tiny net.onnx".into()),
            model_sha256: Some("ab".repeat(32)),
            data: "s3://photos/all".to_owned(),
            freeze: Some("features".to_owned()),
            ..JobSpec::default()
        }
    }

    fn refused(change: impl Fn(&mut JobSpec)) -> Option<String> {
        let mut now = spec();
        change(&mut now);
        refusal(&spec().recorded(), &now.recorded(), 1)
    }

    #[test]
    fn differing_settings_are_named_with_both_values() {
        type Change = fn(&mut JobSpec);
        let changes: [(Change, [&str; 2]); 7] = [
            (
                |job| job.recipe.lr = Some(LearningRates::One(0.5)),
                ["lr is 0.5,", "has 0.003"],
            ),
            (
                |job| job.freeze = Some("r1".to_owned()),
                ["freeze is r1", "has features"],
            ),
            (
                |job| job.data = "s3://photos/new".to_owned(),
                ["data is s3://photos/new", "has s3://photos/all"],
            ),
            (|job| job.recipe.hflip = 0.5, ["hflip is 0.5", "has 0.0"]),
            (
                |job| job.terms.fixed_batch = Some(4),
                ["fixed_batch is 4", "has none"],
            ),
            (
                |job| job.model_sha256 = Some("cd".repeat(32)),
                ["'Tiny net' (SHA-256 cdcdcdcdcdcd)", "(SHA-256 abababababab)"],
            ),
            (
                |job| job.guest_sha256 = Some("ef".repeat(32)),
                ["the guest is SHA-256 efefefefefef", "has SHA-256 unknown"],
            ),
        ];
        for (change, words) in changes {
            let said = refused(change).unwrap();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let harmless = refused(|job| {
            (job.prefetch, job.out, job.keep) = (7, None, Keep::Last);
            (job.patience, job.threads, job.terms.priority) = (Some(3), 5, 9);
            (job.on_bad_sample, job.model) = (OnBadSample::Skip, Some("other.onnx".into()));
            job.split = Policy::Freeze;
        });
        assert_eq!(harmless, None);
    }

    #[test]
    fn containers_of_one_account_are_two_data_sets() {
        let of = |root: &str| JobSpec {
            data: root.to_owned(),
            ..spec()
        };
        let [one, two] =
            ["one", "two"].map(|container| of(&format!("abfss://{container}@a.dfs.core.windows.net/x")));
        let said = refusal(&one.recorded(), &two.recorded(), 1).unwrap();
        assert!(said.contains("one@a.dfs") && said.contains("two@a.dfs"), "{said}");
    }

    #[test]
    fn recorded_settings_contain_no_secrets() {
        let mut job = spec();
        job.data = "https://me:word@store/a?sig=abc".to_owned();
        job.hosts.token_file = Some("/dev/fd/7".into());
        job.hosts.host = vec!["https://me:word@host:8443".to_owned()];
        let text = serde_json::to_string(&job.recorded()).unwrap();
        for secret in ["word", "sig=abc", "/dev/fd"] {
            assert!(!text.contains(secret), "{text}");
        }
    }

    #[test]
    fn epochs_may_change_where_no_rate_depends_on_them() {
        let of = |epochs, scheduler| {
            let mut job = spec();
            job.recipe.epochs = epochs;
            (job.recipe.lr_scheduler, job.recipe.warmup_ratio) = (scheduler, 0.0);
            job.recorded()
        };
        let said = |scheduler, now, begun| refusal(&of(20, scheduler), &of(now, scheduler), begun);
        for scheduler in [Scheduler::Cosine, Scheduler::OneCycle] {
            let said = said(scheduler, 30, 3).unwrap();
            assert!(said.contains("epochs is 30, the checkpoint has 20"), "{said}");
        }
        for scheduler in [Scheduler::Constant, Scheduler::Step] {
            assert_eq!(said(scheduler, 30, 3), None);
            assert_eq!(said(scheduler, 10, 3), None);
            assert!(said(scheduler, 2, 3).unwrap().contains("started epoch 3"));
        }
    }

    #[test]
    fn reproducible_jobs_compare_split_and_threads() {
        let exact = JobSpec {
            reproducible: true,
            ..spec()
        };
        let now = JobSpec {
            threads: 5,
            split: "none".parse().unwrap(),
            ..exact.clone()
        };
        let said = refusal(&exact.recorded(), &now.recorded(), 1).unwrap();
        assert!(
            said.contains("split is none, the checkpoint has auto") && said.contains("threads is 5"),
            "{said}"
        );
    }

    #[test]
    fn settings_are_named_only_if_they_differ() {
        let plain = spec();
        let mut exact = JobSpec {
            reproducible: true,
            ..spec()
        };
        // Set by the check of a reproducible job.
        exact.terms.fixed_batch = Some(16);
        for (then, now, expected) in [
            (&plain, &exact, "reproducible is true, the checkpoint has false"),
            (&exact, &plain, "reproducible is false, the checkpoint has true"),
        ] {
            assert_eq!(refusal(&then.recorded(), &now.recorded(), 1).unwrap(), expected);
        }
        let mut other = exact.clone();
        (other.recipe.batch, other.prefetch) = (8, 9);
        let said = refusal(&plain.recorded(), &other.recorded(), 1).unwrap();
        assert_eq!(
            said,
            "reproducible is true, the checkpoint has false; batch is 8, the checkpoint has 64"
        );
    }

    #[test]
    fn a_sweep_keeps_all_settings_that_define_its_jobs() {
        let constant = |epochs, seed| {
            let mut job = spec();
            (job.recipe.epochs, job.recipe.seed, job.prefetch) = (epochs, seed, 3 + epochs as usize);
            (job.recipe.lr_scheduler, job.recipe.warmup_ratio) = (Scheduler::Constant, 0.0);
            job.recorded()
        };
        assert_eq!(refusal(&constant(6, 0), &constant(9, 0), 1), None);
        let said = sweep_refusal(&constant(6, 0), &constant(9, 1)).unwrap();
        assert_eq!(said, "epochs is 9, the sweep has 6; seed is 1, the sweep has 0");
        assert_eq!(sweep_refusal(&constant(6, 0), &constant(6, 0)), None);
    }

    #[test]
    fn a_job_is_read_again_as_it_was_written_and_nothing_else_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut job = spec();
        job.feature_cache = Some(crate::CacheLimit::Off);
        job.recipe.model_ema_decay = Some(0.99);
        (job.encoding, job.unfreeze) = ("f16+lz4".parse().unwrap(), "3=r1".parse().unwrap());
        let recorded = job.recorded();
        let json = serde_json::to_string(&recorded).unwrap();
        for (name, text) in [
            ("config.json", json.clone()),
            ("job.toml", toml::to_string(&recorded).unwrap()),
        ] {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            assert_eq!(JobSpec::read(&file).unwrap(), recorded);
        }
        for (wrong, word) in [("epoch", "epochs"), ("flow", "window")] {
            let file = folder.path().join("config.json");
            std::fs::write(
                &file,
                json.replace(&format!("\"{word}\""), &format!("\"{wrong}\"")),
            )
            .unwrap();
            let said = JobSpec::read(&file).unwrap_err().to_string();
            assert!(said.contains("config.json") && said.contains(wrong), "{said}");
        }
    }
}
