//! The Python wheel: the extension, the package around it, and the command.

use crate::python;
use crate::workspace::{self, cargo, root, run, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the wheel is built and tested with.
const REQUIREMENTS: &str = "runtime/python/tests/requirements.txt";

/// The environment below the build folder that has it.
const ENVIRONMENT: &str = "wheel";

/// `cargo xtask wheel [--release]`: builds the wheel and prints where it is.
pub(crate) fn run_command(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let release = match words.as_slice() {
        [] => false,
        ["--release"] => true,
        _ => bail!("wheel takes --release or nothing"),
    };
    println!("{}", build(release)?.display());
    Ok(())
}

/// A wheel that was installed.
pub(crate) struct Installed {
    /// The wheel.
    pub(crate) file: PathBuf,
    /// The interpreter of an environment that has it and what it needs.
    pub(crate) python: PathBuf,
}

/// Builds the wheel and installs it; or says why no environment for it can be made here.
pub(crate) fn installed(release: bool) -> Result<Result<Installed, String>> {
    if let Err(error) = python::ensure(REQUIREMENTS, ENVIRONMENT) {
        return Ok(Err(format!(
            "what the wheel needs cannot be installed here: {error:#}"
        )));
    }
    let file = build(release)?;
    let python = target().join(ENVIRONMENT).join("bin/python3");
    run(python::pip(&["--python"])
        .arg(&python)
        .args(["install", "--no-deps", "--no-index", "--force-reinstall"])
        .arg(&file))?;
    Ok(Ok(Installed { file, python }))
}

/// The interpreter of an environment with PyTorch in which the wheel that was built last is installed too; or why there is none.
pub(crate) fn with_trainers() -> Result<Result<PathBuf, String>> {
    let interpreter = target().join("torch/bin/python");
    let needs = ["-c", "import onnx, onnxscript, torch, torchvision"];
    let found = Command::new(&interpreter).args(needs).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let how = "python3 tests/bench/peers/setup_torch.py --trainers installs it";
        return Ok(Err(format!(
            "PyTorch with torchvision and onnx is not below the build folder; {how}"
        )));
    }
    let wheels = fs::read_dir(target().join("wheels"))?.flatten();
    let wheel = wheels
        .map(|entry| entry.path())
        .next()
        .context("no wheel was built")?;
    run(python::pip(&["--python"])
        .arg(&interpreter)
        .args(["install", "--no-deps", "--no-index", "--force-reinstall"])
        .arg(wheel))?;
    Ok(Ok(interpreter))
}

fn build(release: bool) -> Result<PathBuf> {
    let path = python::ensure(REQUIREMENTS, ENVIRONMENT)?;
    let package = root().join("runtime/python");
    let scripts = package.join("wheel.data/scripts");
    fs::create_dir_all(&scripts).with_context(|| format!("cannot create {}", scripts.display()))?;
    let program = program(release)?;
    place(&program, &scripts.join("frostline"))?;
    let wheels = target().join("wheels");
    let _ = fs::remove_dir_all(&wheels);
    let mut maturin = Command::new(target().join(ENVIRONMENT).join("bin/maturin"));
    maturin.args(["build", "--quiet", "--locked", "--strip", "--manifest-path"]);
    maturin.arg(package.join("Cargo.toml")).arg("--out").arg(&wheels);
    maturin.env("PATH", path).env("CARGO_TARGET_DIR", target());
    if release {
        maturin.arg("--release");
    } else {
        // For this machine alone: nothing is asked of the libraries it is linked with.
        maturin.args(["--compatibility", "linux"]);
    }
    run(&mut maturin)?;
    let mut built = fs::read_dir(&wheels)?.flatten().map(|entry| entry.path());
    built.next().context("maturin left no wheel")
}

/// The command. Unoptimised, it is the one the tests use.
fn program(release: bool) -> Result<PathBuf> {
    if !release {
        return workspace::program("frostline");
    }
    run(cargo().args(["build", "--release", "--package", "frostline"]))?;
    Ok(target().join("release/frostline"))
}

/// Copies a program without its symbols, which are two thirds of it, where they can be left out.
fn place(program: &Path, to: &Path) -> Result<()> {
    let stripped = Command::new("strip").arg("-o").args([to, program]).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(program, to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}
