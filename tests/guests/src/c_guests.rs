use super::build::{Component, componentise};
use anyhow::{Context, bail};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders of the guests in C, relative to `guest/`.
const GUESTS: [&str; 1] = ["examples/c-prefix"];

/// Builds the guests in C. Prints a hint if clang is not installed.
pub(super) fn components(root: &Path, out: &Path) -> anyhow::Result<Vec<Component>> {
    if let Err(error) = Command::new("clang").arg("--version").output()
        && error.kind() == ErrorKind::NotFound
    {
        println!("guests: clang is not installed, so guests in C are skipped (`apt-get install clang lld`)");
        return Ok(Vec::new());
    }
    GUESTS
        .iter()
        .map(|folder| build(&root.join("guest"), folder, out))
        .collect()
}

/// Builds a guest like `frostline guest build`, but uses the files in `guest/c` instead of a project's copy.
fn build(guest: &Path, folder: &str, out: &Path) -> anyhow::Result<Component> {
    let (folder, kit, build) = (guest.join(folder), guest.join("c"), out.join("build"));
    std::fs::create_dir_all(&build)?;
    let core = build
        .join(folder.file_name().unwrap_or_default())
        .with_extension("wasm");
    let mut sources = files(&folder, "c")?;
    sources.extend(files(&kit, "c")?);
    sources.extend(files(&kit, "o")?);
    let status = Command::new("clang")
        .arg(format!("@{}", kit.join("flags.rsp").display()))
        .arg("-isystem")
        .arg(&kit)
        .args(sources)
        .arg("-o")
        .arg(&core)
        .status()
        .context("cannot run clang")?;
    if !status.success() {
        bail!(
            "{} does not compile: see the messages above; wasm-ld comes with lld",
            folder.display()
        );
    }
    componentise(&core, out)
}

fn files(folder: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    Ok(files)
}
