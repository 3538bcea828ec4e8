//! Builds the Python wheel, which contains the package, the native extension and the command.

use crate::dist::{self, Build, EPOCH};
use crate::python;
use crate::workspace::{SHARED_BUILD, cargo, output, root, run, target};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Requirements file for building and testing the wheel.
const REQUIREMENTS: &str = "runtime/python/tests/requirements.txt";

/// Name of the virtual environment in the build folder.
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
    let file = to.join(wheel.file_name().context("invalid path of the wheel")?);
    fs::copy(&wheel, &file)?;
    Ok(file)
}

pub(crate) struct Installed {
    pub(crate) file: PathBuf,
    /// Python interpreter of the environment.
    pub(crate) python: PathBuf,
}

/// Builds and installs the wheel, or returns the reason the environment cannot be created.
pub(crate) fn build_and_install(release: bool) -> Result<Result<Installed, String>> {
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

/// Installs the latest wheel in the PyTorch environment. Returns the interpreter, or an error message if
/// PyTorch is not installed.
pub(crate) fn install_with_torch() -> Result<Result<PathBuf, String>> {
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

/// Writes the wheel to `target/wheels` and returns its path.
fn build(program: &Path, release: bool) -> Result<PathBuf> {
    let environment = Environment {
        path: python::ensure(REQUIREMENTS, ENVIRONMENT)?,
        bin: target().join(ENVIRONMENT).join("bin"),
    };
    let wheels = target().join("wheels");
    let _ = fs::remove_dir_all(&wheels);
    fs::create_dir_all(&wheels)?;
    if release {
        environment.build(program, &wheels)?;
    } else {
        environment.assemble(program, &wheels)?;
    }
    let mut built = fs::read_dir(&wheels)?.flatten().map(|entry| entry.path());
    built.next().context("the build wrote no wheel")
}

/// Virtual environment with maturin.
struct Environment {
    /// `PATH` that begins with [`Self::bin`].
    path: OsString,
    /// Folder with the environment's programs.
    bin: PathBuf,
}

impl Environment {
    /// Builds an optimized extension and a wheel with maturin.
    fn build(&self, program: &Path, wheels: &Path) -> Result<()> {
        let scripts = package().join("wheel.data/scripts");
        fs::create_dir_all(&scripts).with_context(|| format!("cannot create {}", scripts.display()))?;
        copy_stripped(program, &scripts.join("frostline"))?;
        let mut maturin = self.maturin()?;
        maturin.args([
            "build",
            "--quiet",
            "--locked",
            "--strip",
            "--release",
            "--manifest-path",
        ]);
        maturin.arg(package().join("Cargo.toml")).arg("--out").arg(wheels);
        run(&mut maturin)
    }

    /// Assembles a wheel from the extension that the tests build and maturin's metadata. maturin itself would
    /// recompile the extension's dependencies with the features that this package alone selects.
    fn assemble(&self, program: &Path, wheels: &Path) -> Result<()> {
        run(cargo().arg("build").args(SHARED_BUILD).arg("--lib"))?;
        let tree = target().join("wheel-tree");
        let _ = fs::remove_dir_all(&tree);
        fs::create_dir_all(&tree)?;
        run(Command::new("cp")
            .arg("-R")
            .arg(package().join("python/frostline"))
            .arg(&tree))?;
        let _ = fs::remove_dir_all(tree.join("frostline/__pycache__"));
        let library = format!(
            "{}frostline_python{}",
            std::env::consts::DLL_PREFIX,
            std::env::consts::DLL_SUFFIX
        );
        copy_stripped(
            &target().join("debug").join(library),
            &tree.join("frostline/_native.abi3.so"),
        )?;
        let data = tree.join(format!("frostline-{}.data", env!("CARGO_PKG_VERSION")));
        run(Command::new("cp")
            .arg("-R")
            .arg(package().join("wheel.data"))
            .arg(&data))?;
        fs::create_dir_all(data.join("scripts"))?;
        copy_stripped(program, &data.join("scripts/frostline"))?;
        let mut metadata = self.maturin()?;
        metadata
            .args(["pep517", "write-dist-info", "--metadata-directory"])
            .arg(&tree)
            .arg("--interpreter")
            .arg(self.bin.join("python3"));
        output(&mut metadata)?;
        let mut pack = Command::new(self.bin.join("python3"));
        pack.args(["-m", "wheel", "pack"])
            .arg(&tree)
            .arg("--dest-dir")
            .arg(wheels)
            .env(EPOCH, dist::epoch()?);
        output(&mut pack).map(drop)
    }

    fn maturin(&self) -> Result<Command> {
        let mut maturin = Command::new(self.bin.join("maturin"));
        maturin
            .current_dir(package())
            .env("PATH", &self.path)
            .env("CARGO_TARGET_DIR", target())
            .env(EPOCH, dist::epoch()?);
        Ok(maturin)
    }
}

/// Returns the folder of the Python package.
fn package() -> PathBuf {
    root().join("runtime/python")
}

/// Copies a program. If `strip` is available, removes its symbols, which are two thirds of the size.
fn copy_stripped(program: &Path, to: &Path) -> Result<()> {
    let stripped = Command::new("strip").arg("-o").args([to, program]).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(program, to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}
