//! The tests, with everything they need.

use crate::workspace::{self, cargo, has_cargo_command, target};
use crate::{ort, python};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// Sets up ONNX Runtime and the Python packages, then runs every test whose needs are met; the runner counts the others as skipped.
/// `--quick` leaves out what takes long: whole systems and networks of real size.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (library, path) = (
        ort::ensure()?,
        python::ensure("tests/requirements.txt", "python")?,
    );
    let (quick, arguments): (Vec<&String>, Vec<_>) = arguments.iter().partition(|word| *word == "--quick");
    let missing = missing();
    for need in &missing {
        eprintln!(
            "skipping the tests in modules `{}`: {}",
            need.module, need.otherwise
        );
    }
    let mut modules: Vec<&str> = missing.iter().map(|need| need.module).collect();
    if !quick.is_empty() {
        modules.push("needs_shared");
    }
    let mut command = runner(&modules, !quick.is_empty());
    command
        .args(arguments)
        .env("ORT_DYLIB_PATH", library)
        .env("PATH", path);
    if built_guests().is_dir() {
        command.env("FROSTLINE_GUESTS_DIR", built_guests());
    }
    workspace::run(&mut command)
}

/// Packages that `--quick` leaves out beside networks of real size: whole systems.
const WHOLE: [&str; 2] = ["frostline-e2e", "frostline-isolation"];

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
        (has_program("clang"), "needs_clang", "clang is not installed"),
    ];
    let unmet = needs.into_iter().filter(|(met, ..)| !met);
    unmet
        .map(|(_, module, otherwise)| Need { module, otherwise })
        .collect()
}

/// Nextest where it is installed, else cargo's own runner, without the tests in these modules.
fn runner(modules: &[&str], quick: bool) -> Command {
    let mut command = cargo();
    if has_cargo_command("nextest") {
        // Some tests wait, for a host to be given up or a certificate to be read again: others run meanwhile.
        let threads = std::thread::available_parallelism().map_or(1, usize::from) + 2;
        command
            .args(["nextest", "run", "--workspace"])
            .env("NEXTEST_TEST_THREADS", threads.to_string());
        let mut filters = Vec::new();
        filters.extend((!modules.is_empty()).then(|| format!("not test(/(^|::)({})::/)", modules.join("|"))));
        filters.extend(
            WHOLE
                .iter()
                .filter(|_| quick)
                .map(|package| format!("not package({package})")),
        );
        if !filters.is_empty() {
            command.arg("-E").arg(filters.join(" & "));
        }
    } else {
        command.args(["test", "--workspace"]);
        command.args(
            WHOLE
                .iter()
                .filter(|_| quick)
                .flat_map(|package| ["--exclude", package]),
        );
        let skips = modules
            .iter()
            .flat_map(|module| ["--skip".to_owned(), format!("{module}::")]);
        command.args((!modules.is_empty()).then_some("--")).args(skips);
    }
    command
}

fn built_guests() -> PathBuf {
    target().join("guests")
}

fn has_program(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok()
}
