//! The ONNX Runtime library of tests, benchmarks and packages: an installed one, or the one that `frostline onnxruntime install` downloads.

use crate::workspace::{self, output, root, target};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file in the folder of each library that supports NVIDIA GPUs.
pub(crate) const CUDA_PROVIDER: &str = "libonnxruntime_providers_cuda.so";

/// The oldest release whose C interface we use (`api-23`).
const OLDEST_MINOR: u32 = 23;

/// The pinned release for this platform.
pub(crate) struct Pinned {
    pub(crate) version: String,
    pub(crate) package: String,
    /// SHA-256 of the wheel.
    pub(crate) sha256: String,
}

/// Reads the list of wheels of `frostline onnxruntime install`.
pub(crate) fn pinned_wheel() -> Result<Pinned> {
    let path = root().join("runtime/cli/src/onnxruntime.json");
    let json = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let release: Value = serde_json::from_str(&json)?;
    let wheels = release.get("wheels").and_then(Value::as_array);
    let wheel = wheels.into_iter().flatten().find(|wheel| {
        field(wheel, "package") == "onnxruntime"
            && field(wheel, "os") == std::env::consts::OS
            && field(wheel, "arch") == std::env::consts::ARCH
    });
    let wheel = wheel.context("no ONNX Runtime is pinned for this platform")?;
    Ok(Pinned {
        version: field(&release, "version").to_owned(),
        package: field(wheel, "package").to_owned(),
        sha256: field(wheel, "sha256").to_owned(),
    })
}

/// A string in an object, empty if it is missing.
fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// `cargo xtask ort [--gpu]`: prints the path of the library that the tests (or the GPU tests) run with.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let library = match words.as_slice() {
        [] => ensure()?,
        ["--gpu"] => ensure_gpu()?,
        _ => bail!("unknown arguments; usage: cargo xtask ort [--gpu]"),
    };
    println!("{}", library.display());
    Ok(())
}

/// Finds the library, or downloads it to `target/onnxruntime/`, and returns its path.
pub(crate) fn ensure() -> Result<PathBuf> {
    if let Some(named) = named()? {
        return Ok(named);
    }
    match system_library() {
        Some(library) => Ok(library),
        None => pinned(),
    }
}

/// Downloads the pinned library to `target/onnxruntime/` if it is missing and returns its path.
pub(crate) fn pinned() -> Result<PathBuf> {
    install(&target().join("onnxruntime"), &[])
}

/// Finds a library that supports GPUs, or downloads it to `target/onnxruntime-gpu/`, and returns its path.
pub(crate) fn ensure_gpu() -> Result<PathBuf> {
    if let Some(named) = named()?
        && named.with_file_name(CUDA_PROVIDER).is_file()
    {
        return Ok(named);
    }
    install(&target().join("onnxruntime-gpu"), &["--gpu"])
}

fn install(folder: &Path, flags: &[&str]) -> Result<PathBuf> {
    let frostline = workspace::program("frostline")?;
    let printed = output(
        Command::new(frostline)
            .args(["onnxruntime", "install"])
            .args(flags)
            .arg("--directory")
            .arg(folder),
    )?;
    Ok(PathBuf::from(printed.trim()))
}

/// The library that `ORT_DYLIB_PATH` names.
fn named() -> Result<Option<PathBuf>> {
    let Some(path) = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from) else {
        return Ok(None);
    };
    if !path.is_file() {
        bail!(
            "ORT_DYLIB_PATH is set to {}, which is not a file; correct or unset it",
            path.display()
        );
    }
    Ok(Some(path))
}

/// The newest library in the system's folders, if it is new enough.
fn system_library() -> Option<PathBuf> {
    let folders = [
        "/usr/local/lib",
        "/usr/lib",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    let entries = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    let minor = |path: &Path| -> Option<u32> {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix("libonnxruntime.so.1.")?
            .split('.')
            .next()?
            .parse()
            .ok()
    };
    entries
        .map(|entry| entry.path())
        .filter_map(|path| minor(&path).map(|minor| (minor, path)))
        .filter(|(minor, _)| *minor >= OLDEST_MINOR)
        .max()
        .map(|(_, path)| path)
}
