//! Packs a folder that runs the GPU tests and benchmarks on a machine without network, Rust or this
//! repository.

use crate::ort;
use crate::workspace::{self, SHARED_BUILD, cargo, output, root, target};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "usage: cargo xtask gpu-kit [--cpu] [--photos DIR] [--arch N]";

/// Runs `cargo xtask gpu-kit`: packs the kit into `target/gpu-kit`. With `--cpu`, packs the kit for the CPU
/// and runs it.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let is_for_cpu = arguments.iter().any(|word| word == "--cpu");
    let mut pack: Vec<&str> = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--cpu" => {}
            "--photos" | "--arch" => pack.extend([word, words.next().context(USAGE)?]),
            other => bail!("unknown argument {other:?}; {USAGE}"),
        }
    }
    let kit = target().join("gpu-kit");
    let files = files(is_for_cpu)?;
    let mut command = Command::new("python3");
    command
        .arg(root().join("tests/gpu-kit/pack.py"))
        .arg("--out")
        .arg(&kit)
        .arg("--source")
        .arg(root())
        .args(pack);
    if is_for_cpu {
        command.args(["--preset", "0"]);
    }
    for (name, path) in files {
        command.arg("--file").arg(format!("{name}={}", path.display()));
    }
    workspace::run(&mut command)?;
    match is_for_cpu {
        true => try_on_cpu(&kit),
        false => Ok(()),
    }
}

/// Runs the smallest measurements with only the kit's files.
fn try_on_cpu(kit: &Path) -> Result<()> {
    let python = output(
        Command::new("python3")
            .arg(root().join("tests/bench/peers/setup_torch.py"))
            .arg("--vision"),
    )?;
    // All parts end by themselves, within three minutes on an idle machine. The limit only ends parts that hang.
    let words = ["all", "--device", "cpu", "--quick", "--seconds", "1500", "--from"];
    workspace::run(
        Command::new(python.trim())
            .arg(kit.join("run.py"))
            .args(words)
            .arg(kit),
    )
}

/// Returns the kit's programs and libraries by path inside the kit. Programs are stripped of debug
/// information.
fn files(is_for_cpu: bool) -> Result<Vec<(String, PathBuf)>> {
    let stripped = target().join("gpu-kit-stripped");
    std::fs::create_dir_all(&stripped)?;
    let programs = [
        ("frostline", program("frostline", is_for_cpu)?),
        ("frostline-bench", program("frostline-bench", is_for_cpu)?),
        ("engine-tests", test_binary("frostline-engine")?),
    ];
    let mut files = Vec::new();
    for (name, built) in programs {
        let file = stripped.join(name);
        workspace::run(Command::new("strip").arg("-o").arg(&file).arg(built))?;
        files.push((format!("bin/{name}"), file));
    }
    let library = if is_for_cpu {
        ort::ensure()?
    } else {
        ort::ensure_gpu()?
    };
    files.push(("lib/libonnxruntime.so".to_owned(), library.clone()));
    let shared = ["libonnxruntime_providers_shared.so", ort::CUDA_PROVIDER];
    let beside = shared.iter().filter(|_| !is_for_cpu);
    files.extend(beside.map(|name| (format!("lib/{name}"), library.with_file_name(name))));
    Ok(files)
}

/// Builds a program: optimized, or with the profile of the tests if the kit is for the CPU.
fn program(name: &str, is_tried: bool) -> Result<PathBuf> {
    if is_tried {
        return workspace::program(name);
    }
    workspace::run(cargo().args(["build", "--release", "--package", name]))?;
    Ok(target().join("release").join(name))
}

/// Builds and returns the unit test executable of `package`.
fn test_binary(package: &str) -> Result<PathBuf> {
    let mut build = cargo();
    build
        .arg("test")
        .args(SHARED_BUILD)
        .args(["--no-run", "--lib", "--message-format", "json"]);
    let messages = output(&mut build)?;
    let mut executables = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let built = message.get("target")?.get("name")?.as_str()?.replace('_', "-");
        let executable = message.get("executable")?.as_str()?;
        (built == package).then(|| PathBuf::from(executable))
    });
    executables
        .next_back()
        .with_context(|| format!("cargo named no test program of {package}"))
}
