//! Support for GPU tests, which are in modules named `needs_gpu` and have the attribute `#[ignore]`. They run
//! if the machine has a GPU; otherwise the reason is reported.

use crate::ort;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of executed GPU tests, or the reason for skipping them.
pub(crate) type GpuTests = Result<usize, String>;

/// Formats the result of the GPU tests.
pub(crate) fn summary_line(tests: &GpuTests) -> String {
    match tests {
        Ok(count) => format!("GPU tests: ran {count}"),
        Err(reason) => format!("GPU tests: NOT RUN ({reason})"),
    }
}

/// Returns the ONNX Runtime library for GPU tests. Downloads it if the machine has a GPU.
///
/// # Errors
/// Returns the reason this machine cannot run GPU tests, as a sentence.
pub(crate) fn probe() -> Result<PathBuf, String> {
    if !has_gpu() {
        return Err("this machine has no NVIDIA GPU".to_owned());
    }
    let library = ort::ensure_gpu().map_err(|error| format!("{error:#}"))?;
    match missing_libraries(&library).as_slice() {
        [] => Ok(library),
        missing => Err(format!(
            "cannot find {}: install CUDA 13 and cuDNN 9, or add the folders to LD_LIBRARY_PATH",
            missing.join(", ")
        )),
    }
}

/// True if the driver lists a GPU, or `nvidia-smi` does. Some containers hide the driver's folder.
fn has_gpu() -> bool {
    let listed = std::fs::read_dir("/proc/driver/nvidia/gpus").is_ok_and(|mut gpus| gpus.next().is_some());
    listed || {
        let output = Command::new("nvidia-smi").arg("--list-gpus").output();
        output.is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"GPU "))
    }
}

/// Names the shared libraries that the CUDA provider next to `library` links and the loader cannot find.
fn missing_libraries(library: &Path) -> Vec<String> {
    let output = Command::new("ldd")
        .arg(library.with_file_name(ort::CUDA_PROVIDER))
        .env("LD_LIBRARY_PATH", search_path(library))
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    not_found(&text.unwrap_or_default())
}

/// Returns the loader's search path: the folder of ONNX Runtime's libraries, then `LD_LIBRARY_PATH`.
fn search_path(library: &Path) -> OsString {
    let mut path = library
        .parent()
        .map(|folder| folder.as_os_str().to_owned())
        .unwrap_or_default();
    if let Some(more) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(more);
    }
    path
}

/// Returns the names in lines such as `libcudnn.so.9 => not found`.
fn not_found(ldd: &str) -> Vec<String> {
    let lines = ldd.lines().filter(|line| line.contains("=> not found"));
    lines
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_number_or_the_reason() {
        assert_eq!(summary_line(&Ok(3)), "GPU tests: ran 3");
        let none = Err("this machine has no NVIDIA GPU".to_owned());
        assert_eq!(
            summary_line(&none),
            "GPU tests: NOT RUN (this machine has no NVIDIA GPU)"
        );
    }

    #[test]
    fn missing_libraries_are_named() {
        let ldd = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibcudnn.so.9 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n";
        assert_eq!(not_found(ldd), ["libcudnn.so.9"]);
    }
}
