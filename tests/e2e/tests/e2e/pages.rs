//! Runs the commands of README and the tutorials, and compares the output with the pages.

use crate::harness::{Scratch, binary, demo};
use frostline_e2e::{Finished, HostProcess, Link, finish, repository};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Addresses of the host and the slow link in README.
const HOST: &str = "127.0.0.1:8443";
const LINK: &str = "http://127.0.0.1:8444";

/// Path of the clone in the tutorials' output.
const CLONE: &str = "/home/ana/frostline";

/// Shell commands with the output shown on the page.
struct Step {
    commands: String,
    output: String,
}

/// Returns the steps below a heading. Without a heading, returns all steps of the page.
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
    assert!(
        !steps.is_empty(),
        "cannot find commands below {heading:?} in {page}"
    );
    steps
}

/// Returns a shell command that runs in the scratch folder with `frostline` on the path and a separate cache
/// folder.
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

/// Runs steps in order and checks their output.
fn run(scratch: &Scratch, steps: &[Step], environment: &[(&str, PathBuf)]) {
    for step in steps {
        let envs = environment.iter().map(|(name, value)| (name, value));
        let run = finish(shell(scratch, &step.commands).envs(envs)).unwrap();
        assert_eq!(run.code, Some(0), "{}\n{run:?}", step.commands);
        let folder = scratch.folder().to_str().unwrap();
        assert_alike(&run, &step.output.replace(CLONE, folder));
    }
}

/// Asserts that each shown line was printed, compared up to the first digit or ellipsis. Lines with a planned
/// split are skipped because the split depends on the machine.
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

/// Creates a scratch folder with links to `names` in the folder `from`.
fn with_links(from: PathBuf, names: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    for name in names {
        symlink(from.join(name), scratch.path(name)).unwrap();
    }
    scratch
}

/// Creates a folder with the layout of a clone, reduced to the parts that tutorials use.
fn clone_root() -> Scratch {
    let scratch = with_links(repository(), &["models"]);
    fs::create_dir(scratch.path("target")).unwrap();
    scratch
}

/// Copies a folder recursively.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn the_quick_start_of_readme_runs() {
    let scratch = clone_root();
    // As left by the demo, but with small photos.
    copy_folder(&demo("photos"), &scratch.path("target/photos"));
    let [mut plan, serve, link, train] = <[Step; 4]>::try_from(steps("README.md", Some("## Quick start")))
        .unwrap_or_else(|steps| panic!("README has {} steps", steps.len()));
    let (path, commands) = plan.commands.split_once('\n').unwrap();
    assert!(path.starts_with("export PATH=\"$PWD/target/debug:"), "{path}");
    plan.commands = commands.to_owned();
    run(&scratch, &[plan], &[]);

    assert!(serve.commands.contains(HOST), "{}", serve.commands);
    let serve = format!(
        "exec {} --json",
        serve.commands.trim().replace(HOST, "127.0.0.1:0")
    );
    let host = HostProcess::spawn(shell(&scratch, &serve), scratch.path("target/token")).unwrap();
    let rate = link
        .commands
        .trim()
        .strip_prefix(&format!("cargo xtask link 8444 {HOST} "))
        .unwrap_or_else(|| panic!("{}", link.commands));
    let megabits: u64 = rate.parse().unwrap();
    let link = Link::open(host.address(), Some(megabits * 1_000_000)).unwrap();

    assert!(train.commands.contains(LINK), "{}", train.commands);
    let train = Step {
        commands: train.commands.replace(LINK, &link.url()),
        output: train.output,
    };
    run(&scratch, &[train], &[]);
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
        // The build folder of our own guests already contains the SDK's dependencies.
        environment.push(("CARGO_TARGET_DIR", repository().join("target/guests/build")));
        let tutorial = steps("runtime/docs/tutorials/your-own-guest.md", None);
        run(&scratch, &tutorial, &environment);
    }
}
