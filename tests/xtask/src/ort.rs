//! The ONNX Runtime library: one that is there already, else the one inside PyPI's wheel, pinned by version and SHA-256.

use crate::python;
use crate::workspace::{run, target};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

const VERSION: &str = "1.31.1";

/// The oldest release whose C interface we use (`api-22`).
const OLDEST_MINOR: u32 = 22;

struct Wheel {
    platform: &'static str,
    sha256: &'static str,
    library: &'static str,
}

/// The wheel for this machine. Any wheel carries the same library whatever Python it is for, so one is pinned for all.
fn wheel() -> Result<Wheel> {
    let (platform, sha256, library) = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => (
            "manylinux_2_28_x86_64",
            "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536",
            "libonnxruntime.so.1.31.1",
        ),
        ("linux", "aarch64") => (
            "manylinux_2_28_aarch64",
            "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc",
            "libonnxruntime.so.1.31.1",
        ),
        ("macos", "aarch64") => (
            "macosx_14_0_arm64",
            "96dd2564b10ea7153ad9c207e7cd8e5917cb3ba521e0e0a62ac03486fdc8d56c",
            "libonnxruntime.1.31.1.dylib",
        ),
        (os, arch) => bail!(
            "no ONNX Runtime is pinned for {os} on {arch}: install it and set ORT_DYLIB_PATH to the library"
        ),
    };
    Ok(Wheel {
        platform,
        sha256,
        library,
    })
}

/// Finds the library, or fetches it into `target/onnxruntime/`, and returns its path.
pub(crate) fn ensure() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ORT_DYLIB_PATH") {
        let path = PathBuf::from(path);
        if path.is_file() {
            return Ok(path);
        }
        bail!(
            "ORT_DYLIB_PATH is {}, which is no file: correct it or unset it",
            path.display()
        );
    }
    let folder = target().join("onnxruntime");
    let library = folder.join(format!("libonnxruntime.{}", std::env::consts::DLL_EXTENSION));
    if library.is_file() && fs::read_to_string(folder.join("VERSION")).is_ok_and(|version| version == VERSION)
    {
        return Ok(library);
    }
    match system_library() {
        Some(found) => Ok(found),
        None => fetch(&folder, &library).map(|()| library),
    }
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

fn fetch(folder: &Path, library: &Path) -> Result<()> {
    let wheel = wheel()?;
    eprintln!("fetching ONNX Runtime {VERSION} ({}) with pip", wheel.platform);
    let scratch = folder.join("wheel");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    run(python::pip(&[
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--implementation",
        "cp",
    ])
    .args([
        "--python-version",
        "3.12",
        "--abi",
        "cp312",
        "--platform",
        wheel.platform,
        "--dest",
    ])
    .arg(&scratch)
    .arg(format!("onnxruntime=={VERSION}")))
    .context("pip could not fetch ONNX Runtime; set ORT_DYLIB_PATH to a library you have")?;
    let file = fs::read_dir(&scratch)?
        .flatten()
        .map(|entry| entry.path())
        .next()
        .context("pip left no file")?;
    let actual = hex::encode(Sha256::digest(fs::read(&file)?));
    if actual != wheel.sha256 {
        bail!(
            "{} has SHA-256 {actual}, pinned is {}: not used",
            file.display(),
            wheel.sha256
        );
    }
    python::unpack(&file, &scratch)?;
    fs::rename(scratch.join("onnxruntime/capi").join(wheel.library), library)?;
    fs::write(folder.join("VERSION"), VERSION)?;
    fs::remove_dir_all(&scratch)?;
    Ok(())
}
