//! The tests, with everything they need.

use crate::needs::{self, skipped};
use crate::relay::Runner;
use crate::workspace::{cargo, has_cargo_command};
use crate::{gpu, ort, python, wheel};
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// What a developer may say beside words for the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flag {
    /// Skip what takes long: whole systems and networks of real size.
    Quick,
    /// Fail where the tests that need a GPU cannot run.
    Gpu,
    /// Only what the last run of all tests skipped; fail where something stays skipped that `.ci/may-skip` does not name.
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

/// Sets up ONNX Runtime and the Python packages, then runs every test whose needs are met; ends with what is skipped, and with what brings it.
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

/// What tests run with.
pub(crate) struct Environment {
    /// ONNX Runtime.
    pub(crate) library: PathBuf,
    /// The `PATH`, with the Python that has the tests' packages.
    pub(crate) path: OsString,
}

/// Which needs are met.
struct Needs {
    /// The modules of those that are not.
    unmet: Vec<&'static str>,
    /// The variables that name interpreters, of those that are.
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
                eprintln!("skipping the tests in modules `{module}`: {why}");
                unmet.push(module);
            }
        }
    }
    Ok(Needs { unmet, pythons })
}

/// Runs the tests that need a GPU, where there is one.
fn on_gpu(words: &[&String], environment: &Environment) -> Result<gpu::Outcome> {
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

/// The interpreter that has the wheel, which is built where all tests are run or one of it is named; else why there is none.
fn wheel(quick: bool, words: &[&String]) -> Result<Result<PathBuf, String>> {
    let asked = words.iter().any(|word| word.contains("wheel"));
    if quick || !(asked || words.is_empty()) {
        let when = "the wheel is built where all tests are run, or `wheel` is asked for";
        return Ok(Err(when.to_owned()));
    }
    Ok(wheel::installed(false)?.map(|installed| installed.python))
}

/// Packages that `--quick` leaves out beside networks of real size: whole systems.
const WHOLE: [&str; 2] = ["frostline-e2e", "frostline-isolation"];

/// Which tests run.
pub(crate) enum Selection {
    /// All that are not ignored and not in these modules; `within` only those in these; `quick` without whole systems.
    Usual {
        without: Vec<&'static str>,
        within: Option<Vec<String>>,
        quick: bool,
    },
    /// Those that need a GPU, which are ignored otherwise.
    Gpu,
    /// Those that need a real store, on these.
    Stores(Vec<&'static str>),
}

/// Nextest where it is installed, else cargo's own runner, with `words` of the caller's.
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
    // What earlier runs kept is not to decide what this one does; a test of kept rows says where.
    command.env("FROSTLINE_FEATURE_CACHE", "off");
    if needs::built_guests().is_dir() {
        command.env("FROSTLINE_GUESTS_DIR", needs::built_guests());
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
            let whole = WHOLE.iter().filter(|_| *quick);
            filters.extend(whole.map(|package| format!("not package({package})")));
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
            let whole = WHOLE.iter().filter(|_| *quick);
            command.args(whole.flat_map(|package| ["--exclude", package]));
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
