//! Provides the ONNX Runtime library for tests, benchmarks and packages: an installed library or the download
//! of `frostline onnxruntime install`.

use crate::workspace::{self, output, root, target};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of a file that accompanies libraries with support for NVIDIA GPUs.
pub(crate) const CUDA_PROVIDER: &str = "libonnxruntime_providers_cuda.so";

/// Oldest supported minor release, which has the C interface `api-23`.
const OLDEST_MINOR: u32 = 23;

/// ONNX Runtime release pinned for this platform.
pub(crate) struct PinnedWheel {
    pub(crate) version: String,
    pub(crate) package: String,
    /// SHA-256 of the wheel.
    pub(crate) sha256: String,
}

/// Reads the pinned wheel from the list used by `frostline onnxruntime install`.
pub(crate) fn pinned_wheel() -> Result<PinnedWheel> {
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
    Ok(PinnedWheel {
        version: field(&release, "version").to_owned(),
        package: field(wheel, "package").to_owned(),
        sha256: field(wheel, "sha256").to_owned(),
    })
}

/// Returns a string field of an object, or an empty string if missing.
fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Runs `cargo xtask ort [--gpu]`: prints the path of the library for tests or GPU tests.
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

/// Returns the path of the library named by `ORT_DYLIB_PATH`, found in a system folder, or downloaded to
/// `target/onnxruntime/`, in this order.
pub(crate) fn ensure() -> Result<PathBuf> {
    if let Some(named) = library_from_environment()? {
        return Ok(named);
    }
    match system_library() {
        Some(library) => Ok(library),
        None => pinned_library(),
    }
}

/// Returns the path of the pinned library. Downloads it to `target/onnxruntime/` if missing.
pub(crate) fn pinned_library() -> Result<PathBuf> {
    install(&target().join("onnxruntime"), &[])
}

/// Returns the path of a library with GPU support: `ORT_DYLIB_PATH` if it supports GPUs, otherwise a download
/// in `target/onnxruntime-gpu/`.
pub(crate) fn ensure_gpu() -> Result<PathBuf> {
    if let Some(named) = library_from_environment()?
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

/// Returns the library named by `ORT_DYLIB_PATH`, if set.
///
/// # Errors
/// Returns an error if the variable does not name a file.
fn library_from_environment() -> Result<Option<PathBuf>> {
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

/// Returns the newest library in the system's folders, if it is new enough.
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
