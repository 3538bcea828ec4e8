//! The Python wheel, which contains the package, its native extension and the command.

use crate::dist::{self, Build, EPOCH};
use crate::python;
use crate::workspace::{root, run, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that build and test the wheel.
const REQUIREMENTS: &str = "runtime/python/tests/requirements.txt";

/// The virtual environment in the build folder.
const ENVIRONMENT: &str = "wheel";

/// `cargo xtask wheel [--release]`: builds the wheel and prints its path.
pub(crate) fn run_command(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let release = match words.as_slice() {
        [] => false,
        ["--release"] => true,
        _ => bail!("unknown arguments; usage: cargo xtask wheel [--release]"),
    };
    println!("{}", build(&dist::program(release)?, release)?.display());
    Ok(())
}

/// Returns the reason the wheel cannot be built here.
pub(crate) fn missing() -> Option<String> {
    let error = python::ensure(REQUIREMENTS, ENVIRONMENT).err()?;
    Some(format!("cannot install the requirements of the wheel: {error:#}"))
}

/// Writes the wheel for `cargo xtask dist` and returns its path.
pub(crate) fn pack(from: &Build, to: &Path) -> Result<PathBuf> {
    let wheel = build(from.frostline()?, from.release)?;
    let file = to.join(wheel.file_name().context("a wheel without a name")?);
    fs::copy(&wheel, &file)?;
    Ok(file)
}

/// An installed wheel.
pub(crate) struct Installed {
    /// The wheel.
    pub(crate) file: PathBuf,
    /// Interpreter of the environment that it is installed in.
    pub(crate) python: PathBuf,
}

/// Builds and installs the wheel, or returns the reason the environment cannot be created.
pub(crate) fn installed(release: bool) -> Result<Result<Installed, String>> {
    if let Some(why) = missing() {
        return Ok(Err(why));
    }
    let file = build(&dist::program(release)?, release)?;
    let python = target().join(ENVIRONMENT).join("bin/python3");
    run(python::pip(&["--python"])
        .arg(&python)
        .args(["install", "--no-deps", "--no-index", "--force-reinstall"])
        .arg(&file))?;
    Ok(Ok(Installed { file, python }))
}

/// Installs the latest wheel in the environment with PyTorch. Returns the interpreter, or the reason the environment cannot be used.
pub(crate) fn with_trainers() -> Result<Result<PathBuf, String>> {
    let interpreter = target().join("torch/bin/python");
    let needs = ["-c", "import onnx, onnxscript, torch, torchvision"];
    let check = Command::new(&interpreter).args(needs).output();
    if !check.is_ok_and(|output| output.status.success()) {
        let how = "run python3 tests/bench/peers/setup_torch.py --trainers";
        return Ok(Err(format!(
            "PyTorch with torchvision and onnx is not installed in the build folder; {how}"
        )));
    }
    let wheels = fs::read_dir(target().join("wheels"))?.flatten();
    let wheel = wheels
        .map(|entry| entry.path())
        .next()
        .context("no wheel in target/wheels")?;
    run(python::pip(&["--python"])
        .arg(&interpreter)
        .args(["install", "--no-deps", "--no-index", "--force-reinstall"])
        .arg(wheel))?;
    Ok(Ok(interpreter))
}

fn build(program: &Path, release: bool) -> Result<PathBuf> {
    let path = python::ensure(REQUIREMENTS, ENVIRONMENT)?;
    let package = root().join("runtime/python");
    let scripts = package.join("wheel.data/scripts");
    fs::create_dir_all(&scripts).with_context(|| format!("cannot create {}", scripts.display()))?;
    copy_stripped(program, &scripts.join("frostline"))?;
    let wheels = target().join("wheels");
    let _ = fs::remove_dir_all(&wheels);
    let mut maturin = Command::new(target().join(ENVIRONMENT).join("bin/maturin"));
    maturin.args(["build", "--quiet", "--locked", "--strip", "--manifest-path"]);
    maturin.arg(package.join("Cargo.toml")).arg("--out").arg(&wheels);
    maturin.env("PATH", path).env("CARGO_TARGET_DIR", target());
    maturin.env(EPOCH, dist::epoch()?);
    if release {
        maturin.arg("--release");
    } else {
        // This wheel stays on this machine, so its libraries need no check.
        maturin.args(["--compatibility", "linux"]);
    }
    run(&mut maturin)?;
    let mut built = fs::read_dir(&wheels)?.flatten().map(|entry| entry.path());
    built.next().context("maturin built no wheel")
}

/// Copies a program, stripped of its symbols (two thirds of its size) if `strip` is available.
fn copy_stripped(program: &Path, to: &Path) -> Result<()> {
    let stripped = Command::new("strip").arg("-o").args([to, program]).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(program, to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}
