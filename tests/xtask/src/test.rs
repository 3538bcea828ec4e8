//! The tests, with everything they need.

use crate::needs::{self, skipped};
use crate::relay::Runner;
use crate::workspace::{cargo, has_cargo_command};
use crate::{gpu, ort, python, wheel};
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// Flags of `cargo xtask test`; other arguments go to the test runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flag {
    /// Skip end-to-end tests and large networks.
    Quick,
    /// Fail if the GPU tests cannot run.
    Gpu,
    /// Run only the tests that the last full run skipped; fail if a test stays skipped that `.ci/may-skip` does not list.
    Skipped,
}

impl Flag {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "--quick" => Some(Self::Quick),
            "--gpu" => Some(Self::Gpu),
            "--skipped" => Some(Self::Skipped),
            _ => None,
        }
    }
}

/// Sets up ONNX Runtime and the Python packages, runs every test whose needs are met, and reports the skipped tests and how to enable them.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags: Vec<Flag> = arguments.iter().filter_map(|word| Flag::parse(word)).collect();
    let words: Vec<&String> = arguments
        .iter()
        .filter(|word| Flag::parse(word).is_none())
        .collect();
    let environment = Environment {
        library: ort::ensure()?,
        path: python::ensure("tests/requirements.txt", "python")?,
    };
    let on_gpu = on_gpu(&words, &environment)?;
    if flags.contains(&Flag::Gpu) && on_gpu.is_err() {
        bail!("{}", gpu::line(&on_gpu));
    }
    let quick = flags.contains(&Flag::Quick);
    let Needs { mut unmet, pythons } = needs(quick, &words)?;
    unmet.extend(on_gpu.is_err().then_some(needs::GPU));
    let within = flags.contains(&Flag::Skipped).then(skipped::read).transpose()?;
    let selection = Selection::Usual {
        without: unmet.clone(),
        within,
        quick,
    };
    let (runner, mut command) = runner(&selection, &words, &environment);
    command.envs(pythons);
    if !words.is_empty() {
        return runner.run(&mut command, Some(&gpu::line(&on_gpu))).map(drop);
    }
    let skipped = skipped::list(&unmet, &environment)?;
    let notice = format!("{}\n{}", skipped::report(&skipped), gpu::line(&on_gpu));
    let ran = runner.run(&mut command, Some(&notice));
    if flags.contains(&Flag::Skipped) {
        skipped::check(&skipped)?;
    } else {
        skipped::write(&unmet)?;
    }
    ran.map(drop)
}

/// The environment of the tests.
pub(crate) struct Environment {
    /// ONNX Runtime.
    pub(crate) library: PathBuf,
    /// A `PATH` whose Python has the packages of the tests.
    pub(crate) path: OsString,
}

/// The needs that this machine meets and does not meet.
struct Needs {
    /// The modules of unmet needs.
    unmet: Vec<&'static str>,
    /// The environment variables for Python interpreters of met needs.
    pythons: Vec<(&'static str, PathBuf)>,
}

fn needs(quick: bool, words: &[&String]) -> Result<Needs> {
    let wheel = wheel(quick, words)?;
    let trainers = match &wheel {
        Ok(_) => wheel::with_trainers()?,
        Err(why) => Err(why.clone()),
    };
    let mut unmet = needs::unmet();
    unmet.extend(
        quick
            .then_some("needs_shared")
            .filter(|module| !unmet.contains(module)),
    );
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
            let (runner, mut command) = runner(&Selection::Gpu, words, &environment);
            Ok(runner.run(&mut command, None)?)
        }
        Err(reason) => Err(reason),
    })
}

/// The Python interpreter with the wheel, or why there is none. The wheel is built for a full run, or if its tests are selected.
fn wheel(quick: bool, words: &[&String]) -> Result<Result<PathBuf, String>> {
    let is_selected = words.iter().any(|word| word.contains("wheel"));
    if quick || !(is_selected || words.is_empty()) {
        let when = "the wheel is built only for a full run, or if `wheel` is selected";
        return Ok(Err(when.to_owned()));
    }
    Ok(wheel::installed(false)?.map(|installed| installed.python))
}

/// The end-to-end packages that `--quick` excludes.
const END_TO_END: [&str; 2] = ["frostline-e2e", "frostline-isolation"];

/// Which tests run.
pub(crate) enum Selection {
    /// All tests that are not ignored, except those in modules `without`; `within` restricts the modules; `quick` excludes [`END_TO_END`].
    Usual {
        without: Vec<&'static str>,
        within: Option<Vec<String>>,
        quick: bool,
    },
    /// The GPU tests, which carry `#[ignore]`.
    Gpu,
    /// The tests of real stores, on these servers.
    Stores(Vec<&'static str>),
}

/// Nextest if it is installed, else cargo's own runner; `words` are passed to it.
pub(crate) fn runner(
    selection: &Selection,
    words: &[&String],
    environment: &Environment,
) -> (Runner, Command) {
    let (runner, mut command) = if has_cargo_command("nextest") {
        (Runner::Nextest, nextest(selection, words))
    } else {
        (Runner::Cargo, cargo_test(selection, words))
    };
    command.env("ORT_DYLIB_PATH", &environment.library);
    command.env("PATH", &environment.path);
    // Features cached by earlier runs must not affect this one; tests of the feature cache set their own folder.
    command.env("FROSTLINE_FEATURE_CACHE", "off");
    if needs::built_guests().is_dir() {
        command.env("FROSTLINE_GUESTS_DIR", needs::built_guests());
    }
    (runner, command)
}

fn nextest(selection: &Selection, words: &[&String]) -> Command {
    let mut command = cargo();
    // Some tests only wait (for a host to time out, for a certificate to reload), so more tests than cores run at once.
    let threads = std::thread::available_parallelism().map_or(1, usize::from) + 2;
    command
        .args(["nextest", "run", "--workspace"])
        .env("NEXTEST_TEST_THREADS", threads.to_string());
    let inside = |modules: &str| format!("test(/(^|::)({modules})::/)");
    let mut filters = Vec::new();
    match selection {
        Selection::Usual {
            without,
            within,
            quick,
        } => {
            filters.extend((!without.is_empty()).then(|| format!("not {}", inside(&without.join("|")))));
            filters.extend(within.as_ref().map(|modules| inside(&modules.join("|"))));
            let end_to_end = END_TO_END.iter().filter(|_| *quick);
            filters.extend(end_to_end.map(|package| format!("not package({package})")));
        }
        Selection::Gpu => {
            command.args(["--run-ignored", "only", "--no-tests", "pass"]);
            filters.push(inside(needs::GPU));
        }
        Selection::Stores(servers) => {
            filters.push(inside(&format!("{}::({})", needs::STORES, servers.join("|"))));
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
    command.args(["test", "--workspace", "--no-fail-fast"]);
    match selection {
        Selection::Usual {
            without,
            within,
            quick,
        } => {
            let end_to_end = END_TO_END.iter().filter(|_| *quick);
            command.args(end_to_end.flat_map(|package| ["--exclude", package]));
            let skips = without
                .iter()
                .flat_map(|module| ["--skip".to_owned(), format!("{module}::")]);
            let modules = within.iter().flatten().map(|module| format!("{module}::"));
            command.arg("--").args(skips).args(modules).args(words);
        }
        Selection::Gpu => {
            let module = format!("{}::", needs::GPU);
            command.args(words).args(["--", "--ignored"]).arg(module);
        }
        Selection::Stores(servers) => {
            let modules = servers
                .iter()
                .map(|server| format!("{}::{server}::", needs::STORES));
            command.arg("--").args(modules);
        }
    }
    command
}
