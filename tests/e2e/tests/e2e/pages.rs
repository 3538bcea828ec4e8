//! README and the tutorials, run as they are written: their commands, and the form of the output that they show.

use crate::harness::{Scratch, binary, demo};
use frostline_e2e::{Finished, HostProcess, finish, repository};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// Where README's host listens.
const ADDRESS: &str = "127.0.0.1:8443";

/// The clone in which the tutorials' output was printed.
const CLONE: &str = "/home/ana/frostline";

/// Commands for a shell, and the output that the page shows of them.
struct Step {
    commands: String,
    output: String,
}

/// The steps below a heading of a page, or all of it.
fn steps(page: &str, heading: Option<&str>) -> Vec<Step> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let mut steps = Vec::new();
    let mut inside = heading.is_none();
    let mut fence: Option<String> = None;
    for line in text.lines() {
        match (&fence, line.strip_prefix("```")) {
            (Some(_), Some(_)) => fence = None,
            (None, Some(language)) => {
                fence = Some(language.to_owned());
                if inside && language == "sh" {
                    steps.push(Step {
                        commands: String::new(),
                        output: String::new(),
                    });
                }
            }
            (None, None) if line.starts_with("## ") => inside = heading.is_none_or(|heading| line == heading),
            (None, None) => {}
            (Some(language), None) if inside => {
                let step = steps.last_mut();
                let lines = match language.as_str() {
                    "sh" => step.map(|step| &mut step.commands),
                    "text" => step.map(|step| &mut step.output),
                    _ => None,
                };
                if let Some(lines) = lines {
                    lines.push_str(line);
                    lines.push('\n');
                }
            }
            (Some(_), None) => {}
        }
    }
    assert!(!steps.is_empty(), "{page} has no commands below {heading:?}");
    steps
}

/// A shell in the scratch folder with `frostline` on its path; what is cached there stays there.
fn shell(scratch: &Scratch, commands: &str) -> Command {
    let mut command = Command::new("sh");
    let mut path = vec![binary().parent().unwrap().to_path_buf()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    command
        .args(["-e", "-c", commands])
        .current_dir(scratch.folder())
        .env("PATH", std::env::join_paths(path).unwrap())
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .env_remove("FROSTLINE_FEATURE_CACHE");
    command
}

/// Runs the steps one after the other.
fn run(scratch: &Scratch, steps: &[Step], environment: &[(&str, PathBuf)]) {
    for step in steps {
        let envs = environment.iter().map(|(name, value)| (name, value));
        let run = finish(shell(scratch, &step.commands).envs(envs)).unwrap();
        assert_eq!(run.code, Some(0), "{}\n{run:?}", step.commands);
        let folder = scratch.folder().to_str().unwrap();
        assert_alike(&run, &step.output.replace(CLONE, folder));
    }
}

/// Asserts that each line shown was printed, up to its first number or ellipsis. The split of a plan depends on the machine.
fn assert_alike(run: &Finished, shown: &str) {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let printed = format!("{}\n{}", run.stdout, run.stderr);
    let printed: Vec<String> = printed.lines().map(words).collect();
    for line in shown.lines().filter(|line| !line.starts_with('\'')) {
        let (start, _) = line.split_once("...").unwrap_or((line, ""));
        let start = words(
            start
                .split(|letter: char| letter.is_ascii_digit())
                .next()
                .unwrap(),
        );
        assert!(
            printed.iter().any(|line| line.starts_with(&start)),
            "no line starts with {start:?} in\n{printed:#?}"
        );
    }
}

/// A scratch folder with `names` of the repository's folder `from`.
fn with_links(from: PathBuf, names: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    for name in names {
        symlink(from.join(name), scratch.path(name)).unwrap();
    }
    scratch
}

/// A folder as a clone's root is, with the part of it that tutorials use.
fn clone_root() -> Scratch {
    let scratch = with_links(repository(), &["models"]);
    fs::create_dir(scratch.path("target")).unwrap();
    scratch
}

fn demo_folder() -> Scratch {
    with_links(demo(""), &["backbone.onnx", "photos"])
}

#[test]
fn the_quick_start_of_readme_runs() {
    let mut steps = steps("README.md", Some("## Quick start"));
    let (build, commands) = steps[0].commands.split_once('\n').unwrap();
    // The tests have built it; its outputs are not for the repository.
    assert!(
        build.starts_with("cargo build ") && build.ends_with("cd models/zoo/demo"),
        "{build}"
    );
    steps[0].commands = commands.to_owned();
    run(&demo_folder(), &steps, &[]);
}

#[test]
fn the_host_of_readme_serves_a_second_shell() {
    let scratch = demo_folder();
    let mut steps = steps("README.md", Some("## Run a host"));
    let second = steps.split_off(1);
    let (serve, _) = steps[0].commands.split_once('#').unwrap();
    assert!(serve.contains(ADDRESS), "{serve}");
    let serve = format!("exec {} --json", serve.trim().replace(ADDRESS, "127.0.0.1:0"));
    let host = HostProcess::spawn(shell(&scratch, &serve), scratch.path("token")).unwrap();
    let here = |step: &Step| Step {
        commands: step.commands.replace(ADDRESS, &host.address().to_string()),
        output: step.output.clone(),
    };
    let second: Vec<Step> = second.iter().map(here).collect();
    run(&scratch, &second, &[]);
    assert!(scratch.path("remote.onnx").is_file());
}

#[test]
fn the_tutorial_of_fine_tuning_runs() {
    let scratch = clone_root();
    let tutorial = steps("runtime/docs/tutorials/fine-tune-and-predict.md", None);
    run(&scratch, &tutorial, &[]);
}

mod needs_guests {
    use super::*;
    use crate::guests::wasm_compiler;

    #[test]
    fn the_tutorial_of_a_guest_of_your_own_runs() {
        let scratch = clone_root();
        let mut environment = wasm_compiler();
        // The folder where our own guests are compiled has the SDK's dependencies already.
        environment.push(("CARGO_TARGET_DIR", repository().join("target/guests/build")));
        let tutorial = steps("runtime/docs/tutorials/your-own-guest.md", None);
        run(&scratch, &tutorial, &environment);
    }
}
