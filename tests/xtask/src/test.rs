//! The tests, with everything they need.

use crate::relay::Runner;
use crate::workspace::{cargo, has_cargo_command, target};
use crate::{gpu, ort, python, wheel};
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets up ONNX Runtime and the Python packages, then runs every test whose needs are met; the runner counts the others as skipped.
/// `--quick` leaves out what takes long: whole systems and networks of real size. `--gpu` fails where tests that need a GPU cannot run.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (library, path) = (
        ort::ensure()?,
        python::ensure("tests/requirements.txt", "python")?,
    );
    let (ours, words): (Vec<&String>, Vec<_>) = arguments
        .iter()
        .partition(|word| ["--quick", "--gpu"].contains(&word.as_str()));
    let given = |flag: &str| ours.iter().any(|word| *word == flag);
    let on_gpu = on_gpu(&words, &path)?;
    let notice = gpu::line(&on_gpu);
    if given("--gpu") && on_gpu.is_err() {
        bail!("{notice}");
    }
    let wheel = wheel(given("--quick"), &words)?;
    let trainers = match &wheel {
        Ok(_) => wheel::with_trainers()?,
        Err(why) => Err(why.clone()),
    };
    let selection = Selection::Usual {
        without: left_out(
            given("--quick"),
            [(NEEDS_WHEEL, &wheel), (NEEDS_TRAINERS, &trainers)],
        ),
        quick: given("--quick"),
    };
    let (runner, mut command) = runner(&selection, &words, &library, &path);
    if let Ok(python) = wheel {
        command.env("FROSTLINE_WHEEL_PYTHON", python);
    }
    if let Ok(python) = trainers {
        command.env("FROSTLINE_TRAINERS_PYTHON", python);
    }
    runner.run(&mut command, Some(&notice)).map(drop)
}

/// Runs the tests that need a GPU, where there is one.
fn on_gpu(words: &[&String], path: &OsStr) -> Result<gpu::Outcome> {
    Ok(match gpu::probe() {
        Ok(library) => {
            let (runner, mut command) = runner(&Selection::Gpu, words, &library, path);
            Ok(runner.run(&mut command, None)?)
        }
        Err(reason) => Err(reason),
    })
}

/// The interpreter that has the wheel, which is built where all tests are run or one of it is named; else why there is none.
fn wheel(quick: bool, words: &[&String]) -> Result<Result<PathBuf, String>> {
    let asked = words.iter().any(|word| word.contains("wheel"));
    if quick || !(asked || words.is_empty()) {
        let when = "the wheel is built where all tests are run, or `wheel` is asked for";
        return Ok(Err(when.to_owned()));
    }
    Ok(wheel::installed(false)?.map(|installed| installed.python))
}

/// The modules whose tests are not run.
fn left_out(quick: bool, pythons: [(&'static str, &Result<PathBuf, String>); 2]) -> Vec<&'static str> {
    let missing = missing();
    let absent = pythons
        .into_iter()
        .filter_map(|(module, python)| Some((module, python.as_ref().err()?)));
    for (module, why) in absent.clone() {
        eprintln!("skipping the tests in modules `{module}`: {why}");
    }
    for need in &missing {
        eprintln!(
            "skipping the tests in modules `{}`: {}",
            need.module, need.otherwise
        );
    }
    let mut modules: Vec<&str> = missing.iter().map(|need| need.module).collect();
    modules.extend(quick.then_some("needs_shared"));
    modules.extend(absent.map(|(module, _)| module));
    modules
}

/// The module of tests that need an object store of others, with a module for each.
const NEEDS_STORES: &str = "needs_stores";

/// Packages that `--quick` leaves out beside networks of real size: whole systems.
const WHOLE: [&str; 2] = ["frostline-e2e", "frostline-isolation"];

/// The module of tests that need the Python wheel.
const NEEDS_WHEEL: &str = "needs_wheel";

/// That of tests that need PyTorch, and Ray where they say so, beside it.
const NEEDS_TRAINERS: &str = "needs_wheel_with_trainers";

/// What not every machine has. The tests that cannot do without lie in modules of this name, in whatever crate.
struct Need {
    module: &'static str,
    otherwise: &'static str,
}

/// The needs that are not met here.
fn missing() -> Vec<Need> {
    let needs = [
        (
            std::env::var_os("FROSTLINE_SHARED").is_some(),
            "needs_shared",
            "FROSTLINE_SHARED names no folder of real photos and networks",
        ),
        (
            built_guests().is_dir(),
            "needs_guests",
            "the guests for tests are not built (cargo xtask guests)",
        ),
        (
            false,
            NEEDS_STORES,
            "they need object stores of others (cargo xtask stores)",
        ),
        (has_program("clang"), "needs_clang", "clang is not installed"),
        (
            has_program("chromium"),
            "needs_chromium",
            "chromium is not installed",
        ),
    ];
    let unmet = needs.into_iter().filter(|(met, ..)| !met);
    unmet
        .map(|(_, module, otherwise)| Need { module, otherwise })
        .collect()
}

/// Which tests run.
pub(crate) enum Selection {
    /// All that are not ignored, without those in these modules and, `quick`, without whole systems.
    Usual { without: Vec<&'static str>, quick: bool },
    /// Those that need a GPU, which are ignored otherwise.
    Gpu,
    /// Those that need a real store, on these.
    Stores(Vec<&'static str>),
}

/// Nextest where it is installed, else cargo's own runner, with `words` of the caller's.
pub(crate) fn runner(
    selection: &Selection,
    words: &[&String],
    library: &Path,
    path: &OsStr,
) -> (Runner, Command) {
    let (runner, mut command) = if has_cargo_command("nextest") {
        (Runner::Nextest, nextest(selection, words))
    } else {
        (Runner::Cargo, cargo_test(selection, words))
    };
    command.env("ORT_DYLIB_PATH", library).env("PATH", path);
    // What earlier runs kept is not to decide what this one does; a test of kept rows says where.
    command.env("FROSTLINE_FEATURE_CACHE", "off");
    if built_guests().is_dir() {
        command.env("FROSTLINE_GUESTS_DIR", built_guests());
    }
    (runner, command)
}

fn nextest(selection: &Selection, words: &[&String]) -> Command {
    let mut command = cargo();
    // Some tests wait, for a host to be given up or a certificate to be read again: others run meanwhile.
    let threads = std::thread::available_parallelism().map_or(1, usize::from) + 2;
    command
        .args(["nextest", "run", "--workspace"])
        .env("NEXTEST_TEST_THREADS", threads.to_string());
    let within = |modules: &str| format!("test(/(^|::)({modules})::/)");
    let mut filters = Vec::new();
    match selection {
        Selection::Usual { without, quick } => {
            filters.extend((!without.is_empty()).then(|| format!("not {}", within(&without.join("|")))));
            let whole = WHOLE.iter().filter(|_| *quick);
            filters.extend(whole.map(|package| format!("not package({package})")));
        }
        Selection::Gpu => {
            command.args(["--run-ignored", "only", "--no-tests", "pass"]);
            filters.push(within(gpu::MODULE));
        }
        Selection::Stores(servers) => {
            filters.push(within(&format!("{NEEDS_STORES}::({})", servers.join("|"))));
        }
    }
    if !filters.is_empty() {
        command.arg("-E").arg(filters.join(" & "));
    }
    command.args(words);
    command
}

fn cargo_test(selection: &Selection, words: &[&String]) -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace"]);
    match selection {
        Selection::Usual { without, quick } => {
            let whole = WHOLE.iter().filter(|_| *quick);
            command.args(whole.flat_map(|package| ["--exclude", package]));
            let skips = without
                .iter()
                .flat_map(|module| ["--skip".to_owned(), format!("{module}::")]);
            command
                .args((!without.is_empty()).then_some("--"))
                .args(skips)
                .args(words);
        }
        Selection::Gpu => {
            let module = format!("{}::", gpu::MODULE);
            command.args(words).args(["--", "--ignored"]).arg(module);
        }
        Selection::Stores(servers) => {
            let modules = servers.iter().map(|server| format!("{NEEDS_STORES}::{server}::"));
            command.arg("--").args(modules);
        }
    }
    command
}

fn built_guests() -> PathBuf {
    target().join("guests")
}

fn has_program(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok()
}
