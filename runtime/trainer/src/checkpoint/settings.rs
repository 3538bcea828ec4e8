//! What makes a job this one: its settings with all their defaults, as a run's `config.json` has them.

use crate::{Job, OnBadSample, Recipe, Scheduler, TrainerError};
use frostline_graph::{Model, ONE_FILE};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// A job's settings by their flags' names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Those that make it another job when they change.
    pub(crate) job: Map<String, Value>,
    /// The others.
    pub(crate) free: Map<String, Value>,
}

/// Settings of `job` that are no part of the recipe.
const BESIDE_RECIPE: [&str; 18] = [
    MODEL,
    MODEL_SHA256,
    "data",
    "layout",
    "validation",
    "freeze",
    "unfreeze",
    "encoding",
    "guest",
    "guest_sha256",
    "parameters",
    "pixels",
    "device",
    "fixed_batch",
    "precision",
    "reproducible",
    "split",
    "threads",
];
const EPOCHS: &str = "epochs";
const MODEL: &str = "model";
const MODEL_SHA256: &str = "model_sha256";
/// The most settings that a refusal names.
const NAMED: usize = 4;

impl Settings {
    /// Of a checked job. Hashes its network.
    ///
    /// # Errors
    /// [`TrainerError::Graph`].
    pub(crate) fn of(job: &Job) -> Result<Self, TrainerError> {
        let unfreeze = job.unfreeze.0.iter();
        let unfreeze: Vec<String> = unfreeze.map(|(epoch, cut)| format!("{epoch}={cut}")).collect();
        let encoding = job.encoding.map(|encoding| encoding.to_string());
        let mut own = object(json!({
            MODEL: job.model_name,
            MODEL_SHA256: sha256(&job.model)?,
            "data": without_secrets(&job.root),
            "layout": job.layout.as_ref(),
            "validation": job.validation_share,
            "freeze": job.freeze,
            "unfreeze": unfreeze.join(","),
            "encoding": encoding,
            "guest": job.guest.name,
            "guest_sha256": hex::encode(Sha256::digest(&job.guest.bytes)),
            "parameters": job.guest.parameters,
            "pixels": job.pixels,
            "device": job.device.to_string(),
            "fixed_batch": job.terms.fixed_batch,
            "precision": job.terms.precision,
            "reproducible": job.reproducible,
        }));
        own.extend(object(
            serde_json::to_value(job.recipe.resolved()).unwrap_or_default(),
        ));
        let mut free = object(json!({
            "keep": job.keep,
            "patience": job.patience,
            "on_bad_sample": match job.on_bad_sample {
                OnBadSample::Fail => "fail",
                OnBadSample::Skip => "skip",
            },
            "request_samples": job.flow.request_samples,
            "window": job.flow.window,
            "prefetch": job.flow.ahead,
            "memory_bytes": job.memory_bytes,
            "priority": job.terms.priority,
            "shared_runs": job.terms.shared_runs,
            "labels": job.labels,
            "out": job.out,
        }));
        // Bits depend on them, losses do not.
        let exact = if job.reproducible { &mut own } else { &mut free };
        exact.insert("split".to_owned(), job.split.to_string().into());
        exact.insert("threads".to_owned(), job.threads.into());
        let settings = Self { job: own, free };
        // Numbers as they are read again: reading may err in a last digit.
        let text = serde_json::to_string(&settings).unwrap_or_default();
        Ok(serde_json::from_str(&text).unwrap_or(settings))
    }

    /// The recipe, and all other settings.
    pub(crate) fn recipe_apart(self) -> (Map<String, Value>, Map<String, Value>) {
        let beside = |name: &String| BESIDE_RECIPE.contains(&name.as_str());
        let (mut others, recipe): (Map<_, _>, Map<_, _>) =
            self.job.into_iter().partition(|(name, _)| beside(name));
        others.extend(self.free);
        (recipe, others)
    }

    /// Hash of what makes it this job, but for how long it is to take.
    pub(crate) fn digest(&self) -> String {
        let mut job = self.job.clone();
        job.remove(EPOCHS);
        job.remove(MODEL);
        hex::encode(Sha256::digest(Value::Object(job).to_string()))
    }

    /// The network's name, and its hash.
    pub(crate) fn model(&self) -> [String; 2] {
        [MODEL, MODEL_SHA256].map(|name| said(self.job.get(name)))
    }

    /// Epochs it is to have.
    pub(crate) fn epochs(&self) -> u32 {
        let epochs = self.job.get(EPOCHS).and_then(Value::as_u64);
        epochs.and_then(|epochs| u32::try_from(epochs).ok()).unwrap_or(0)
    }

    /// Why a job of the settings `now`, trained by `recipe`, is another one than this, of which so many epochs have begun; `None` where it is the same.
    pub(crate) fn refusal(&self, now: &Self, recipe: &Recipe, begun: u32) -> Option<String> {
        let ([then, then_hash], [name, hash]) = (self.model(), now.model());
        if then_hash != hash {
            return Some(format!(
                "it trains the model '{then}' (SHA-256 {}), and this is '{name}' ({})",
                short(&then_hash),
                short(&hash)
            ));
        }
        let names: std::collections::BTreeSet<&String> = self.job.keys().chain(now.job.keys()).collect();
        let mut differ = Vec::new();
        for name in names {
            let (then, now_value) = (self.job.get(name), now.job.get(name));
            if then == now_value || name == MODEL {
                continue;
            }
            if name == EPOCHS {
                differ.extend(self.other_epochs(now.epochs(), recipe, begun));
                continue;
            }
            let flag = name.replace('_', "-");
            differ.push(format!(
                "--{flag} was {} and is {} now",
                said(then),
                said(now_value)
            ));
        }
        if differ.is_empty() {
            return None;
        }
        let more = match differ.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        differ.truncate(NAMED);
        Some(format!("this is another job: {}{more}", differ.join("; ")))
    }

    /// Why it cannot have so many epochs instead.
    fn other_epochs(&self, now: u32, recipe: &Recipe, begun: u32) -> Option<String> {
        let then = self.epochs();
        let free = matches!(recipe.lr_scheduler, Scheduler::Constant | Scheduler::Step)
            && recipe.warmup_ratio == 0.0;
        if !free {
            return Some(format!(
                "--epochs was {then} and is {now} now, and the learning rate of every step depends on it (only --lr-scheduler constant and step, with \
                 --warmup-ratio 0, let it change)"
            ));
        }
        (now < begun)
            .then(|| format!("--epochs was {then} and is {now} now, of which {begun} have begun already"))
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A value for people.
fn said(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "not given".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "not given".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// A data root without what opens it: a password, or a signature in a query.
pub(super) fn without_secrets(root: &str) -> String {
    let root = root.split_once('?').map_or(root, |(root, _)| root);
    match root.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => root.to_owned(),
    }
}

/// Of a network's file, and of the weights beside it where it is too large for one.
fn sha256(model: &Model) -> Result<String, TrainerError> {
    let parts = model.to_parts(ONE_FILE)?;
    let mut hash = Sha256::new();
    hash.update(&parts.model);
    if let Some(weights) = &parts.weights {
        hash.update(weights);
    }
    Ok(hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::network;
    use crate::{Keep, LearningRates};

    fn job() -> Job {
        let (features, root) = ("features".to_owned(), "s3://photos/all".to_owned());
        Job::new(
            network(),
            "Tiny net".to_owned(),
            features,
            root,
            "tuned.onnx".into(),
        )
    }

    fn refusal(then: &Job, now: &Job, begun: u32) -> Option<String> {
        let [old, new] = [then, now].map(|job| Settings::of(job).unwrap());
        assert_eq!(
            old.digest() == new.digest(),
            old.refusal(&new, &now.recipe, 0).is_none()
        );
        old.refusal(&new, &now.recipe, begun)
    }

    #[test]
    fn what_makes_another_job_is_named_with_both_values() {
        let then = job();
        let change = |change: fn(&mut Job)| {
            let mut now = job();
            change(&mut now);
            refusal(&then, &now, 1)
        };
        for (now, words) in [
            (
                change(|job| job.recipe.lr = Some(LearningRates::One(0.5))),
                ["--lr was 0.003 ", "is 0.5 now"],
            ),
            (
                change(|job| job.freeze = "r1".to_owned()),
                ["--freeze was features", "is r1"],
            ),
            (
                change(|job| job.root = "s3://photos/new".to_owned()),
                ["--data was s3://photos/all", "is s3://photos/new"],
            ),
            (
                change(|job| job.recipe.augmentation.hflip = 0.5),
                ["--hflip was not given", "is 0.5 now"],
            ),
            (
                change(|job| job.terms.fixed_batch = Some(4)),
                ["--fixed-batch was not given", "is 4 now"],
            ),
        ] {
            let said = now.unwrap();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let harmless = change(|job| {
            (job.flow.ahead, job.out, job.keep) = (7, None, Keep::Last);
            (job.patience, job.threads, job.terms.priority) = (Some(3), 5, 9);
            (job.on_bad_sample, job.model_name) = (OnBadSample::Skip, "other".to_owned());
        });
        assert_eq!(harmless, None);
    }

    #[test]
    fn another_model_is_refused_by_its_name() {
        let mut now = job();
        (now.model, now.model_name) = (crate::tests::heavy(), "Heavy net".to_owned());
        let said = refusal(&job(), &now, 1).unwrap();
        assert!(
            said.contains("'Tiny net'") && said.contains("'Heavy net'"),
            "{said}"
        );
    }

    #[test]
    fn epochs_may_change_where_no_rate_depends_on_them() {
        let with = |epochs, scheduler| {
            let mut job = job();
            job.recipe.epochs = epochs;
            (job.recipe.lr_scheduler, job.recipe.warmup_ratio) = (scheduler, 0.0);
            job
        };
        let said = |scheduler, now, begun| {
            let [old, new] = [with(20, scheduler), with(now, scheduler)];
            let settings = [&old, &new].map(|job| Settings::of(job).unwrap());
            settings[0].refusal(&settings[1], &new.recipe, begun)
        };
        for scheduler in [Scheduler::Cosine, Scheduler::OneCycle] {
            let said = said(scheduler, 30, 3).unwrap();
            assert!(said.contains("--epochs was 20 and is 30 now"), "{said}");
        }
        for scheduler in [Scheduler::Constant, Scheduler::Step] {
            assert_eq!(said(scheduler, 30, 3), None);
            assert_eq!(said(scheduler, 10, 3), None);
            assert!(said(scheduler, 2, 3).unwrap().contains("3 have begun"));
        }
    }

    #[test]
    fn where_bits_count_split_and_threads_do() {
        let exact = || Job {
            reproducible: true,
            ..job()
        };
        let now = Job {
            threads: 5,
            split: "none".parse().unwrap(),
            ..exact()
        };
        let said = refusal(&exact(), &now, 1).unwrap();
        assert!(
            said.contains("--split was auto and is none") && said.contains("--threads"),
            "{said}"
        );
    }

    #[test]
    fn a_recipe_is_read_again_as_it_was() {
        let mut exact = job();
        (exact.reproducible, exact.recipe.model_ema_decay) = (true, Some(0.99));
        exact.recipe.augmentation.hflip = 0.5;
        for job in [job(), exact] {
            let (recipe, others) = Settings::of(&job).unwrap().recipe_apart();
            let recipe: Recipe = serde_json::from_value(recipe.into()).unwrap();
            assert_eq!(recipe, job.recipe.resolved());
            assert_eq!(others["split"], "auto");
        }
    }

    #[test]
    fn secrets_are_not_kept() {
        for (root, kept) in [
            ("https://me:word@store/a?sig=abc", "https://store/a"),
            ("s3://photos/a@b", "s3://photos/a@b"),
            ("/data/photos", "/data/photos"),
        ] {
            assert_eq!(without_secrets(root), kept);
        }
    }
}
