//! A default run covers every crate and end-to-end path in a few minutes. Long tests (hostile tenants,
//! exhaustive properties, large networks, jobs on several hosts) are in modules named `long` and in
//! [`LONG_TARGETS`].

use crate::needs::{self, skipped};
use crate::relay::Runner;
use crate::workspace::{self, SHARED_BUILD, cargo, has_cargo_command};
use crate::{gpu, ort, python, wheel};
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

/// Name of modules with tests that default runs skip.
pub(crate) const LONG: &str = "long";

/// Programs with unit tests in a default run.
const PROGRAMS: [&str; 4] = ["frostline", "enlarge-photos", "frostline-played", "xtask"];

/// Integration tests of a default run.
const TARGETS: [&str; 8] = [
    "e2e", "fuzz", "host", "images", "objects", "report", "sandbox", "wheel",
];

/// Targets that default runs do not compile: a package and a flag of cargo.
const LONG_TARGETS: [(&str, [&str; 2]); 3] = [
    ("frostline-isolation", ["--test", "isolation"]),
    ("frostline-fuzz", ["--test", "memory"]),
    ("frostline-bench", ["--bin", "frostline-bench"]),
];

/// Flags of `cargo xtask test`; other arguments go to the test runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flag {
    /// Include long tests.
    All,
    /// Fail if the GPU tests cannot run.
    Gpu,
    /// Run only the tests that the previous run skipped; fail if `.ci/may-skip` does not list a test that is
    /// skipped again.
    Skipped,
}

impl Flag {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "--all" => Some(Self::All),
            "--gpu" => Some(Self::Gpu),
            "--skipped" => Some(Self::Skipped),
            _ => None,
        }
    }
}

/// Runs `cargo xtask test`: sets up ONNX Runtime and the Python packages, runs all tests whose needs are met,
/// and reports which tests were skipped and how to run them.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags: Vec<Flag> = arguments.iter().filter_map(|word| Flag::parse(word)).collect();
    let words: Vec<&String> = arguments
        .iter()
        .filter(|word| Flag::parse(word).is_none())
        .collect();
    let extent = if flags.contains(&Flag::Skipped) {
        TestSelection::PreviouslySkipped(skipped::read()?)
    } else if flags.contains(&Flag::All) || !words.is_empty() {
        TestSelection::All
    } else {
        TestSelection::Default
    };
    let environment = set_up(&extent, &words)?;
    let on_gpu = on_gpu(&words, &environment)?;
    if flags.contains(&Flag::Gpu) && on_gpu.is_err() {
        bail!("{}", gpu::summary_line(&on_gpu));
    }
    let Needs { mut unmet, pythons } = needs(&words)?;
    unmet.extend(on_gpu.is_err().then_some(needs::GPU));
    if !words.is_empty() {
        let notice = gpu::summary_line(&on_gpu);
        let (runner, commands) = commands(&extent, &unmet, &words, &environment);
        return run_all(runner, commands, &pythons, &notice);
    }
    let skipped = skipped::list(&unmet, &extent, &environment)?;
    let notice = format!(
        "{}\n{}",
        skipped::report(&skipped, &extent),
        gpu::summary_line(&on_gpu)
    );
    let (runner, commands) = commands(&extent, &unmet, &words, &environment);
    let ran = run_all(runner, commands, &pythons, &notice);
    match extent {
        TestSelection::PreviouslySkipped(_) => skipped::check(&skipped)?,
        TestSelection::Default => skipped::write(&[&unmet[..], &[LONG]].concat())?,
        TestSelection::All => skipped::write(&unmet)?,
    }
    ran
}

/// Installs ONNX Runtime, then compiles the tests and installs the Python packages in parallel.
fn set_up(extent: &TestSelection, words: &[&String]) -> Result<Environment> {
    let library = ort::ensure()?;
    let path = thread::scope(|scope| {
        let packages = scope.spawn(|| python::ensure("tests/requirements.txt", "python"));
        // A failure is reported later as the reason for skipping the tests of the wheel.
        let wheel = scope.spawn(|| is_wheel_wanted(words).then(wheel::missing));
        let mut compile = cargo();
        compile
            .arg("test")
            .args(SHARED_BUILD)
            .arg("--no-run")
            .args(extent.targets());
        let compiled = workspace::run(&mut compile);
        let path = packages.join();
        let _ = wheel.join();
        compiled?;
        path.unwrap_or_else(|_| bail!("the installation of Python packages panicked"))
    })?;
    Ok(Environment { library, path })
}

/// True if the wheel is built: if no tests are named, or tests of the wheel are.
fn is_wheel_wanted(words: &[&String]) -> bool {
    words.is_empty() || words.iter().any(|word| word.contains("wheel"))
}

/// Runs all commands in sequence, even after a failure, and returns the first error. The notice precedes the
/// last summary.
fn run_all(
    runner: Runner,
    commands: Vec<Command>,
    pythons: &[(&'static str, PathBuf)],
    notice: &str,
) -> Result<()> {
    let last = commands.len().saturating_sub(1);
    let mut failures = Vec::new();
    for (place, mut command) in commands.into_iter().enumerate() {
        command.envs(pythons.iter().map(|(name, python)| (name, python)));
        let notice = (place == last).then_some(notice);
        failures.extend(runner.run(&mut command, notice).err());
    }
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Environment for tests.
pub(crate) struct Environment {
    /// Path of the ONNX Runtime library.
    pub(crate) library: PathBuf,
    /// `PATH` on which Python has the packages for tests.
    pub(crate) path: OsString,
}

/// Needs of tests on this machine.
struct Needs {
    /// Modules of unmet needs.
    unmet: Vec<&'static str>,
    /// Environment variables for met needs: names and paths of Python interpreters.
    pythons: Vec<(&'static str, PathBuf)>,
}

fn needs(words: &[&String]) -> Result<Needs> {
    let wheel = wheel(words)?;
    let trainers = match &wheel {
        Ok(_) => wheel::install_with_torch()?,
        Err(why) => Err(why.clone()),
    };
    let mut unmet = needs::unmet();
    let mut pythons = Vec::new();
    for (module, variable, python) in [
        (needs::WHEEL, "FROSTLINE_WHEEL_PYTHON", wheel),
        (needs::TRAINERS, "FROSTLINE_TRAINERS_PYTHON", trainers),
    ] {
        match python {
            Ok(python) => pythons.push((variable, python)),
            Err(why) => {
                eprintln!("skipping tests in modules `{module}`: {why}");
                unmet.push(module);
            }
        }
    }
    Ok(Needs { unmet, pythons })
}

/// Runs the GPU tests if the machine has a GPU.
fn on_gpu(words: &[&String], environment: &Environment) -> Result<gpu::GpuTests> {
    Ok(match gpu::probe() {
        Ok(library) => {
            let environment = Environment {
                library,
                path: environment.path.clone(),
            };
            let (runner, mut command) = gpu_tests(words, &environment);
            Ok(runner.run(&mut command, None)?)
        }
        Err(reason) => Err(reason),
    })
}

/// Returns the Python interpreter with the wheel, or the reason the wheel is missing.
fn wheel(words: &[&String]) -> Result<Result<PathBuf, String>> {
    if !is_wheel_wanted(words) {
        let when = "the wheel is built if no test is named, or if `wheel` is";
        return Ok(Err(when.to_owned()));
    }
    Ok(wheel::build_and_install(false)?.map(|installed| installed.python))
}

/// Selection of tests.
pub(crate) enum TestSelection {
    /// All tests except long ones.
    Default,
    All,
    /// Tests in these modules and in [`LONG_TARGETS`].
    PreviouslySkipped(Vec<String>),
}

impl TestSelection {
    /// Returns cargo flags that select the targets to compile and run. They name targets instead of packages,
    /// so that every command selects the same features and compiles each dependency once.
    pub(crate) fn targets(&self) -> Vec<&'static str> {
        let programs = PROGRAMS.iter().flat_map(|name| ["--bin", *name]);
        let tests = TARGETS.iter().flat_map(|name| ["--test", *name]);
        let default = ["--lib"].into_iter().chain(programs).chain(tests);
        match self {
            Self::Default => default.collect(),
            Self::All | Self::PreviouslySkipped(_) => default.chain(long_targets()).collect(),
        }
    }
}

/// Returns cargo flags that select [`LONG_TARGETS`].
pub(crate) fn long_targets() -> impl Iterator<Item = &'static str> {
    LONG_TARGETS.iter().flat_map(|(_, flags)| *flags)
}

/// Returns commands that run `extent` without the tests in the modules `unmet`. `words` are passed to the
/// test runner: nextest if installed, otherwise cargo. Doc tests run first, so that the output ends with the summary
/// of the test runner. Runs of selected tests and of skipped ones do not include them.
pub(crate) fn commands(
    extent: &TestSelection,
    unmet: &[&'static str],
    words: &[&String],
    environment: &Environment,
) -> (Runner, Vec<Command>) {
    let (runner, command) = runner();
    let mut commands = match runner {
        Runner::Nextest => vec![nextest(command, extent, unmet, words)],
        Runner::Cargo => cargo_test(command, extent, unmet, words),
    };
    if words.is_empty() && !matches!(extent, TestSelection::PreviouslySkipped(_)) {
        commands.insert(0, doc_tests());
    }
    for command in &mut commands {
        set_environment(command, environment);
    }
    (runner, commands)
}

/// Returns the command for the doc tests, such as the examples in READMEs. nextest does not run them, and cargo runs
/// them only if no other targets are selected.
fn doc_tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--no-fail-fast", "--workspace", "--doc"]);
    command
}

/// Returns nextest if installed, otherwise cargo's test runner, with the first arguments of the command.
fn runner() -> (Runner, Command) {
    let mut command = cargo();
    if has_cargo_command("nextest") {
        command
            .args(["nextest", "run"])
            .env("NEXTEST_TEST_THREADS", threads());
        command.args(SHARED_BUILD);
        return (Runner::Nextest, command);
    }
    command
        .args(["test", "--no-fail-fast"])
        .env("RUST_TEST_THREADS", threads());
    command.args(SHARED_BUILD);
    limit_programs(&mut command);
    (Runner::Cargo, command)
}

/// Ends test programs that hang, which cargo's test runner does not do by itself. The limit is longer than the one
/// that `.config/nextest.toml` has for a single test.
fn limit_programs(command: &mut Command) {
    if Command::new("timeout").arg("--version").output().is_ok() {
        let runner = r#"target."cfg(all())".runner = ["timeout", "--foreground", "--kill-after=60", "2400"]"#;
        command.args(["--config", runner]);
    }
}

/// Returns the command for GPU tests, which have the attribute `#[ignore]`.
fn gpu_tests(words: &[&String], environment: &Environment) -> (Runner, Command) {
    let (runner, mut command) = runner();
    command.args(TestSelection::Default.targets());
    match runner {
        Runner::Nextest => command
            .args(["--run-ignored", "only", "--no-tests", "pass", "-E"])
            .arg(in_modules(needs::GPU))
            .args(words),
        Runner::Cargo => command
            .args(words)
            .args(["--", "--ignored", &format!("{}::", needs::GPU)]),
    };
    set_environment(&mut command, environment);
    (runner, command)
}

/// Returns the command for the tests of real stores on `servers`.
pub(crate) fn store_tests(servers: &[&'static str], environment: &Environment) -> (Runner, Command) {
    let (runner, mut command) = runner();
    command.args(["--test", "e2e", "--test", "objects"]);
    let modules = servers
        .iter()
        .map(|server| format!("{}::{server}", needs::STORES));
    match runner {
        Runner::Nextest => command
            .arg("-E")
            .arg(in_modules(&modules.collect::<Vec<_>>().join("|"))),
        Runner::Cargo => command.arg("--").args(modules.map(|module| module + "::")),
    };
    set_environment(&mut command, environment);
    (runner, command)
}

fn set_environment(command: &mut Command, environment: &Environment) {
    command.env("ORT_DYLIB_PATH", &environment.library);
    command.env("PATH", &environment.path);
    // Features cached by earlier runs must not affect this run; tests of the feature cache set their own
    // folder.
    command.env("FROSTLINE_FEATURE_CACHE", "off");
    if needs::built_guests().is_dir() {
        command.env("FROSTLINE_GUESTS_DIR", needs::built_guests());
    }
}

/// Returns the number of test threads. It exceeds the number of cores because some tests mostly wait for a
/// timeout or another process.
fn threads() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores + 2).to_string()
}

/// Formats a nextest filter for tests in `modules`, which are separated by `|`.
fn in_modules(modules: &str) -> String {
    format!("test(/(^|::)({modules})::/)")
}

fn nextest(
    mut command: Command,
    extent: &TestSelection,
    unmet: &[&'static str],
    words: &[&String],
) -> Command {
    command.args(extent.targets());
    let mut filters = Vec::new();
    if !unmet.is_empty() {
        filters.push(format!("not {}", in_modules(&unmet.join("|"))));
    }
    match extent {
        TestSelection::Default => filters.push(format!("not {}", in_modules(LONG))),
        TestSelection::All => {}
        TestSelection::PreviouslySkipped(modules) => {
            let mut left_out = in_modules(&modules.join("|"));
            for (package, [_, name]) in LONG_TARGETS {
                left_out += &format!(" | (package({package}) & binary({name}))");
            }
            filters.push(format!("({left_out})"));
        }
    }
    if !filters.is_empty() {
        command.arg("-E").arg(filters.join(" & "));
    }
    command.args(words);
    command
}

fn cargo_test(
    mut command: Command,
    extent: &TestSelection,
    unmet: &[&'static str],
    words: &[&String],
) -> Vec<Command> {
    let skips = unmet
        .iter()
        .flat_map(|module| ["--skip".to_owned(), format!("{module}::")]);
    match extent {
        TestSelection::Default => {
            command.args(extent.targets()).arg("--").args(skips);
            command.args(["--skip", &format!("{LONG}::")]);
            vec![command]
        }
        TestSelection::All => {
            command.args(extent.targets()).arg("--").args(skips).args(words);
            vec![command]
        }
        TestSelection::PreviouslySkipped(modules) => {
            // [`SHARED_BUILD`] is omitted because it would run tests of the default run again.
            let mut whole = cargo();
            limit_programs(&mut whole);
            whole
                .args(["test", "--no-fail-fast", "--workspace"])
                .args(long_targets())
                .arg("--")
                .args(skips.clone())
                .env("RUST_TEST_THREADS", threads());
            command
                .args(TestSelection::Default.targets())
                .arg("--")
                .args(skips);
            command.args(modules.iter().map(|module| format!("{module}::")));
            vec![whole, command]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of commands that run doc tests, after checking that they come first.
    fn count_doc_tests(extent: &TestSelection, words: &[&String]) -> usize {
        let environment = Environment {
            library: PathBuf::new(),
            path: OsString::new(),
        };
        let (_, commands) = commands(extent, &[], words, &environment);
        let are_docs: Vec<bool> = commands
            .iter()
            .map(|command| command.get_args().any(|word| word == "--doc"))
            .collect();
        assert!(are_docs.is_sorted_by(|earlier, later| earlier >= later));
        assert_eq!(are_docs.last(), Some(&false));
        are_docs.into_iter().filter(|is_doc| *is_doc).count()
    }

    #[test]
    fn doc_tests_run_once_and_not_with_selected_tests() {
        let word = "retry".to_owned();
        let skipped = TestSelection::PreviouslySkipped(vec![LONG.to_owned()]);
        assert_eq!(count_doc_tests(&TestSelection::Default, &[]), 1);
        assert_eq!(count_doc_tests(&TestSelection::All, &[]), 1);
        assert_eq!(count_doc_tests(&TestSelection::All, &[&word]), 0);
        assert_eq!(count_doc_tests(&skipped, &[]), 0);
    }
}
