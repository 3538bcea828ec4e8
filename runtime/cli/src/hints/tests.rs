use super::command_line::quoted;
use super::*;
use crate::arguments::Arguments;
use anyhow::{Context, anyhow};
use clap::CommandFactory;
use frostline_tensor::{OpError, OpErrorCode};
use frostline_wire::{OutwardLinks, Split};
use std::path::PathBuf;

/// A cause with the name of its kind.
type Kind = (&'static str, fn() -> anyhow::Error);

/// One error for each kind of hint.
const KINDS: [Kind; 30] = [
    ("image size", || shape(InputSize::Open(224)).into()),
    ("other image size", || shape(InputSize::Fixed).into()),
    ("outputs", || {
        let names = vec!["a".to_owned(), "b".to_owned()];
        GraphError::Outputs { names }.into()
    }),
    ("unknown output", || {
        let names = vec!["a".to_owned(), "b".to_owned()];
        let name = "c".to_owned();
        GraphError::UnknownOutput { name, names }.into()
    }),
    ("unknown cut", || unknown_cut().into()),
    ("unknown split", || {
        let policy = "lst".to_owned();
        let why = "did you mean last?".to_owned();
        TrainerError::Plan(PlanError::Policy { policy, why }).into()
    }),
    ("links", || {
        let root = root();
        let links = OutwardLinks::default();
        DatasetError::OutwardLinks { root, links }.into()
    }),
    ("no validation", || {
        let root = root();
        let classes = 3;
        let part = None;
        TrainerError::from(DatasetError::NotDivided { root, classes, part }).into()
    }),
    ("two validations", || {
        DatasetError::DividedTwice { root: root() }.into()
    }),
    ("labels", || labels(ExpectedLabels::Labels).into()),
    ("numbers", || labels(ExpectedLabels::Numbers).into()),
    ("unlisted images", || {
        labels(ExpectedLabels::UnlistedOmitted).into()
    }),
    ("no labels", || TrainerError::Unlabeled { root: root() }.into()),
    ("standardize", || {
        let why = "it has two layers".to_owned();
        TrainerError::Compute(ComputeError::Standardize { why }).into()
    }),
    ("freeze", || {
        TrainerError::Untrainable {
            freeze: "a".to_owned(),
            why: "Loop has no gradient".to_owned(),
            earliest: Some("b".to_owned()),
        }
        .into()
    }),
    ("guest", || {
        let guest = "own".to_owned();
        let sha256 = "ab".to_owned();
        TrainerError::GuestNeeded { guest, sha256 }.into()
    }),
    ("imprecise", || {
        let cosine = 0.5;
        let least = 0.99;
        let worst = "a".to_owned();
        TrainerError::Imprecise { cosine, least, worst }.into()
    }),
    ("wrong when optimized", || {
        TrainerError::OptimizedWrongly {
            keys: "'a.jpg'".to_owned(),
            cut: "a".to_owned(),
            difference: 0.1,
            on_this_machine: true,
        }
        .into()
    }),
    ("memory of batches", || {
        TrainerError::Memory {
            batch: 8,
            needed: 10,
            batches: 3,
            limit: 20,
            split: Split::None,
        }
        .into()
    }),
    ("memory of steps", || {
        TrainerError::StepMemory {
            batch: 64,
            needed: 10,
            available: 5,
            fits: 20,
            smaller: Some(SmallerBatch {
                batch: 16,
                accumulation: 4,
            }),
        }
        .into()
    }),
    ("bad sample", || bad_sample().into()),
    ("prices", || setting(Conflict::NoPrices)),
    ("int8 prefix", || setting(Conflict::PrefixNotInt8)),
    ("fixed split", || setting(Conflict::NoFixedSplit)),
    ("two recipes", || setting(Conflict::TwoRecipes)),
    ("standardized classifier", || setting(Conflict::KeptStandardized)),
    ("kept classifier", || setting(Conflict::HeadNotKept)),
    ("no classifier", || setting(Conflict::NoHead)),
    ("other division", || {
        let share = "0.2".to_owned();
        let seed = 7;
        setting(Conflict::OtherDivision { share, seed })
    }),
    ("revoked tokens", || {
        StartError::from(StateError::UnknownTokens { root: root() }).into()
    }),
];

fn kind(name: &str) -> anyhow::Error {
    let found = KINDS.iter().find(|(kind, _)| *kind == name);
    found.unwrap().1()
}

fn root() -> String {
    "/photos".to_owned()
}

fn shape(size: InputSize) -> GraphError {
    GraphError::InputShape {
        input: "x".to_owned(),
        why: "axis 2 is `h`".to_owned(),
        size,
    }
}

fn unknown_cut() -> GraphError {
    GraphError::UnknownCut {
        name: "layer9".to_owned(),
        near: "the network has 60 cuts".to_owned(),
    }
}

fn labels(expected: ExpectedLabels) -> LabelsError {
    LabelsError {
        table: "labels.csv".to_owned(),
        line: Some(1),
        why: "unexpected columns".to_owned(),
        expected: Some(expected),
    }
}

fn bad_sample() -> TrainerError {
    TrainerError::BadSample {
        key: "a.jpg".to_owned(),
        source: OpError::new(OpErrorCode::InvalidEncoding, "it is truncated"),
    }
}

fn setting(conflict: Conflict) -> anyhow::Error {
    let error = SettingError::new("split", "auto", "it must fit");
    error.with_conflict(conflict).into()
}

/// Example lines in the help of all commands.
fn examples() -> Vec<CommandLine> {
    fn collect(command: &clap::Command, found: &mut Vec<CommandLine>) {
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let lines = help.replace("\\\n", " ");
        for line in lines
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("frostline "))
        {
            let end = line
                .find(" >")
                .into_iter()
                .chain(line.find(" &&"))
                .chain(line.find(" |"));
            let end = end.chain(line.find(" #")).min().unwrap_or(line.len());
            found.push(CommandLine::split(&line[..end]));
        }
        command
            .get_subcommands()
            .for_each(|command| collect(command, found));
    }
    let mut found = Vec::new();
    collect(&Arguments::command(), &mut found);
    found
}

fn texts(error: &anyhow::Error, line: &CommandLine) -> Vec<String> {
    hints(error, line).into_iter().map(|hint| hint.text).collect()
}

/// Returns the text of the hints in a job with these flags.
fn trained(flags: &str, error: &anyhow::Error) -> Vec<String> {
    let line = format!("frostline train --model a.onnx --data b {flags}");
    texts(error, &CommandLine::split(&line))
}

#[test]
fn every_kind_of_hint_fits_some_command_and_only_commands_with_its_flags() {
    let examples = examples();
    assert!(examples.len() > 40, "{}", examples.len());
    let removable = "--image-size 64 --validation 0.2 --standardize --parameters x";
    let mut lines = examples;
    lines.push(CommandLine::split(&format!(
        "frostline train --model a.onnx --data b {removable}"
    )));
    for (kind, error) in KINDS {
        let error = error();
        let mut shown = 0;
        for line in &lines {
            for hint in hints(&error, line) {
                shown += 1;
                for word in hint.text.split(' ').filter(|word| word.starts_with("--")) {
                    assert!(
                        line.has_flag(word),
                        "{kind}: {} for a command without it",
                        hint.text
                    );
                }
            }
        }
        assert!(shown > 0, "{kind}: no command shows a hint");
    }
}

#[test]
fn a_command_without_the_flag_shows_no_hint() {
    let error = anyhow::Error::from(bad_sample());
    assert_eq!(trained("", &error), ["try again with --on-bad-sample skip"]);
    let extract = CommandLine::split("frostline extract --model a.onnx --data b --out c.parquet");
    assert_eq!(texts(&error, &extract).len(), 1);
    let predict = CommandLine::split("frostline predict --model a.onnx a.jpg");
    assert_eq!(texts(&error, &predict), Vec::<String>::new());
    assert_eq!(
        texts(&error, &CommandLine::split("frostline")),
        Vec::<String>::new()
    );
}

#[test]
fn hints_hold_for_the_flags_on_the_command_line() {
    let links = || OutwardLinks::default();
    let links = anyhow::Error::from(DatasetError::OutwardLinks {
        root: root(),
        links: links(),
    });
    assert_eq!(trained("", &links), ["try again with --follow-links DIR"]);
    let remote = "--host http://store --token-file token";
    assert_eq!(
        trained(remote, &links),
        Vec::<String>::new(),
        "hosts exclude this flag"
    );
    let twice = anyhow::Error::from(DatasetError::DividedTwice { root: root() });
    for flags in ["--validation 0.2 --epochs 3", "--epochs 3 --validation=0.2"] {
        assert_eq!(trained(flags, &twice), ["try again without --validation"]);
    }
    assert_eq!(trained("--job file", &twice), Vec::<String>::new());
    let wrong = kind("wrong when optimized");
    let listed = "run frostline model show a.onnx";
    assert_eq!(trained("", &wrong), ["try again with --freeze CUT", listed]);
    let memory = trained("--batch 64", &kind("memory of steps"));
    assert_eq!(
        memory,
        ["try again with --batch 16 --gradient-accumulation-steps 4"]
    );
}

#[test]
fn sources_and_own_steps_of_the_command_are_found() {
    let error = Err::<(), _>(shape(InputSize::Open(96))).context("cannot use the model a.onnx");
    assert_eq!(
        trained("", &error.unwrap_err()),
        ["try again with --image-size 96"]
    );
    let cut = TrainerError::Model {
        file: PathBuf::from("a.onnx"),
        source: unknown_cut(),
    };
    assert_eq!(trained("", &cut.into()), ["run frostline model show a.onnx"]);
    let outputs = GraphError::Outputs {
        names: vec!["a".to_owned(), "b c".to_owned()],
    };
    assert_eq!(
        trained("", &outputs.into()),
        ["try again with --output a", "try again with --output 'b c'"]
    );
    let run = NextStep::run(&["train", "--resume", "my runs/7"]);
    let own = Hinted::wrap(bad_sample(), vec![run, NextStep::run(&["train", "--resum"])]);
    assert_eq!(trained("", &own), ["run frostline train --resume 'my runs/7'"]);
    assert_eq!(trained("", &anyhow!("disk full")), Vec::<String>::new());
    assert_eq!(quoted("it's"), r"'it'\''s'");
}

#[test]
fn steps_are_readable_by_programs() {
    let line = CommandLine::split("frostline train --model a.onnx --data b --standardize");
    let hints = hints(&setting(Conflict::KeptStandardized), &line);
    assert_eq!(
        serde_json::to_value(&hints).unwrap(),
        serde_json::json!([{"unset": ["standardize"]}, {"set": {"head": "replace"}}])
    );
    let run = NextStep::run(&["train", "--resume", "runs/7"]);
    assert_eq!(
        serde_json::to_value(run).unwrap(),
        serde_json::json!({"run": ["train", "--resume", "runs/7"]})
    );
}
