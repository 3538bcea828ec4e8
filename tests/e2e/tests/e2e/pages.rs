//! Runs the blocks of commands (`sh`) of all pages, and compares the output with the pages. A block that cannot run
//! here is preceded by the comment `<!-- not run: REASON -->`. `cargo xtask lint` refuses other blocks in pages that are
//! not named in this file.

use crate::harness::{Scratch, binary, demo, sorted};
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

/// Start of the comment before a block that does not run.
const NOT_RUN: &str = "<!-- not run: ";

/// Shell commands with the output shown on the page.
struct Step {
    commands: String,
    output: String,
}

impl Step {
    /// Replaces parts that differ between the page and the test, such as addresses.
    fn replaced(&self, parts: &[(&str, &str)]) -> Self {
        let replace = |text: &str| {
            parts
                .iter()
                .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
        };
        Self {
            commands: replace(&self.commands),
            output: replace(&self.output),
        }
    }
}

/// Returns the steps below a heading that run. Without a heading, returns those of the whole page.
fn steps(page: &str, heading: Option<&str>) -> Vec<Step> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let mut steps = Vec::new();
    let mut inside = heading.is_none();
    let mut fence: Option<String> = None;
    let mut not_run = false;
    // True if the last block of this section ran, so that the next output is its output.
    let mut has_run = false;
    for line in text.lines() {
        match (&fence, line.strip_prefix("```")) {
            (Some(_), Some(_)) => fence = None,
            (None, Some(language)) => {
                fence = Some(language.to_owned());
                if language == "sh" {
                    has_run = !not_run;
                }
                if inside && has_run && language == "sh" {
                    steps.push(Step {
                        commands: String::new(),
                        output: String::new(),
                    });
                }
            }
            (None, None) if line.starts_with("## ") => inside = heading.is_none_or(|heading| line == heading),
            (None, None) => {}
            (Some(language), None) if inside && has_run => {
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
        not_run = line.starts_with(NOT_RUN);
        has_run &= fence.is_some() || !line.starts_with('#');
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

/// Runs the steps of a page with replacements.
fn run_page(scratch: &Scratch, page: &str, parts: &[(&str, &str)], environment: &[(&str, PathBuf)]) {
    let steps: Vec<Step> = steps(page, None)
        .iter()
        .map(|step| step.replaced(parts))
        .collect();
    run(scratch, &steps, environment);
}

/// Creates a folder with the files that pages for trainers use.
fn with_training_files() -> Scratch {
    let scratch = Scratch::with_photos(4, 2);
    copy_folder(&scratch.path("photos/validation"), &scratch.path("new-photos"));
    for name in [
        "backbone.onnx",
        "squeezenet1_1.onnx",
        "model.onnx",
        "resnet18.onnx",
    ] {
        fs::copy(demo("backbone.onnx"), scratch.path(name)).unwrap();
    }
    scratch
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

#[test]
fn the_pages_for_trainers_run() {
    let scratch = with_training_files();
    let training = steps("runtime/docs/training.md", None);
    let (before, after) = training.split_at(2);
    run(&scratch, before, &[]);
    let run_folder = sorted(&scratch.path("runs")).pop().unwrap();
    let run_name = format!("runs/{}", run_folder.file_name().unwrap().to_str().unwrap());
    let parts = [("runs/20261123-223325-backbone", run_name.as_str())];
    let after: Vec<Step> = after.iter().map(|step| step.replaced(&parts)).collect();
    run(&scratch, &after, &[]);

    run_page(&scratch, "runtime/trainer/docs/results.md", &[], &[]);
    run_page(
        &scratch,
        "runtime/report/docs/report.md",
        &[("RUN", &run_name)],
        &[],
    );
    let job = "--model backbone.onnx --data photos --freeze features --epochs 1 --out augmented.onnx";
    run_page(&scratch, "runtime/trainer/docs/recipes.md", &[("...", job)], &[]);
    let [plan, simulate] = <[Step; 2]>::try_from(steps("runtime/plan/docs/planning.md", None))
        .ok()
        .unwrap();
    let measure = Step {
        commands: format!("{} --json > measured.json", plan.commands.trim()),
        output: String::new(),
    };
    run(&scratch, &[plan, measure, simulate], &[]);
}

/// Returns `text` without the line that starts with `line`, because the test has no certificate.
fn without_tls(text: &str, line: &str) -> String {
    let others = text.lines().filter(|other| !other.starts_with(line));
    others.collect::<Vec<_>>().join("\n")
}

/// Configuration file of the page for operators, with paths and addresses of the test.
fn host_toml(parts: &[(&str, &str)]) -> String {
    let text = fs::read_to_string(repository().join("runtime/docs/operating.md")).unwrap();
    let (_, block) = text.split_once("```toml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    parts
        .iter()
        .fold(without_tls(block, "tls = "), |text, (from, to)| {
            text.replace(from, to)
        })
}

#[test]
fn the_pages_for_operators_run() {
    let scratch = with_training_files();
    let path = |name: &str| scratch.path(name).to_str().unwrap().to_owned();
    let (state, token, backup) = (path("state"), path("token"), path("backup"));
    let photos = format!("file://{}", path("photos"));
    let parts = [
        ("0.0.0.0:8443", "127.0.0.1:0"),
        ("s3://hosts/state", &state),
        ("/var/lib/frostline", &state),
        ("s3://photos/clothing", &photos),
        ("s3://photos/acme", &photos),
        ("train/boot/", "train/brick/"),
        ("/etc/frostline/token", &token),
        ("/backup/frostline", &backup),
        // The id of the newest token.
        (
            "1f0c22aa",
            r#"$(frostline admin tenant show acme --json | sed 's/.*"id":"\([0-9a-f]*\)".*/\1/')"#,
        ),
    ];
    let replaced = |page: &str| -> Vec<Step> {
        steps(page, None)
            .iter()
            .map(|step| step.replaced(&parts))
            .collect()
    };
    fs::write(scratch.path("host.toml"), host_toml(&parts)).unwrap();
    let mut operating = replaced("runtime/docs/operating.md");
    let start = operating.remove(0);
    let (doctor, serve) = start.commands.trim().split_once('\n').unwrap();
    let doctor = Step {
        commands: doctor.to_owned(),
        output: without_tls(&start.output, "works    tls"),
    };
    run(&scratch, &[doctor], &[]);
    let serve = shell(&scratch, &format!("exec {serve} --json"));
    let host = HostProcess::spawn(serve, scratch.path("token")).unwrap();

    let environment = [("FROSTLINE_ADMIN_SOCKET", scratch.path("state/admin.sock"))];
    let [tenants, backup, restore] = <[Step; 3]>::try_from(operating).ok().unwrap();
    run(&scratch, &[tenants], &environment);
    run_page(
        &scratch,
        "runtime/server/docs/accounting.md",
        &parts,
        &environment,
    );
    run_page(&scratch, "runtime/server/docs/memory.md", &parts, &environment);
    let command = |commands: String| Step {
        commands,
        output: String::new(),
    };
    // The page restores a backup that differs from the state.
    let before = command(format!("frostline admin tenant add leaver --data {photos}"));
    let after = command(format!(
        "frostline admin tenant remove leaver --yes; frostline admin tenant add newcomer --data {photos}"
    ));
    run(&scratch, &[before, backup, after, restore], &environment);

    let [tokens, quota, uploads] = <[Step; 3]>::try_from(replaced("runtime/server/docs/tenants.md"))
        .ok()
        .unwrap();
    let remove = command("frostline admin tenant remove acme --erase --yes".to_owned());
    let add = command(format!(
        "frostline admin tenant remove acme --erase --yes
        frostline admin tenant add acme --data {photos} --json | sed 's/.*\"token\":\"\\(frost_[a-z0-9_]*\\)\".*/\\1/' > acme-token
        frostline guest push prefix {} --host {} --token-file acme-token",
        repository().join("guest/prefix/prefix.wasm").display(),
        host.url(),
    ));
    run(&scratch, &[remove, tokens, add, quota, uploads], &environment);
}

mod needs_curl {
    use super::*;

    #[test]
    fn the_pages_with_requests_run() {
        let scratch = with_training_files();
        fs::copy(
            repository().join("guest/prefix/prefix.wasm"),
            scratch.path("prefix.wasm"),
        )
        .unwrap();
        let host = scratch.host(&["--metrics-listen", "127.0.0.1:0"]);
        let token = fs::read_to_string(host.token_file()).unwrap();
        // A refused request fails the test.
        let requests = r#"curl() { command curl --silent --show-error --fail-with-body "$@"; }; curl"#;
        let (tenants, metrics) = (
            host.address().to_string(),
            host.metrics_address().unwrap().to_string(),
        );
        let parts = [
            ("5ae1...", "$(sha256sum model.onnx | cut -c -64)"),
            ("127.0.0.1:7433", &tenants),
            ("127.0.0.1:7435", &metrics),
        ];
        let environment = [
            ("H", PathBuf::from(host.url())),
            (
                "T",
                PathBuf::from(format!("Authorization: Bearer {}", token.trim())),
            ),
        ];
        for page in ["runtime/server/docs/http.md", "runtime/server/docs/metrics.md"] {
            for step in steps(page, None) {
                let mut step = step.replaced(&parts);
                step.commands = step.commands.replacen("curl", requests, 1);
                run(&scratch, &[step], &environment);
            }
        }
    }
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

    #[test]
    fn the_page_for_guest_authors_runs() {
        let scratch = with_training_files();
        let host = scratch.host(&[]);
        let mut environment = wasm_compiler();
        environment.push(("CARGO_TARGET_DIR", repository().join("target/guests/build")));
        run_page(
            &scratch,
            "guest/README.md",
            &[("http://store:8080", &host.url())],
            &environment,
        );
    }
}
