//! Packs the OCI image: the command with Debian's C and C++ libraries and certificates. No container daemon
//! is involved.

use super::{Build, EPOCH, VERSION, archive, command, epoch, scratch};
use crate::workspace::{self, is_root, output, root};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) fn missing() -> Option<String> {
    const TOOLS: [(&str, &str); 2] = [("mmdebstrap", "mmdebstrap"), ("umoci", "umoci")];
    workspace::missing(&[TOOLS, archive::TOOLS, command::TOOLS].concat())
        .or_else(|| (!is_root()).then(|| "the image can only be built as root".to_owned()))
}

/// Returns the codename of this machine's Debian release. The image uses the same release because the program
/// links its glibc.
pub(crate) fn suite() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release")?;
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name
        .context("no VERSION_CODENAME in /etc/os-release")?
        .trim_matches('"')
        .to_owned())
}

pub(super) fn pack(build: &Build, to: &Path) -> Result<PathBuf> {
    let layout = scratch("image")?.join("layout");
    output(
        Command::new("sh")
            .env(EPOCH, epoch()?)
            .arg(root().join("runtime/deploy/image/build.sh"))
            .args([&suite()?, VERSION])
            .arg(&build.command()?.folder)
            .arg(&layout),
    )?;
    let file = to.join(format!("frostline-{VERSION}-image.tar"));
    archive::write(build, &layout, &["blobs", "index.json", "oci-layout"], &file)?;
    Ok(file)
}
