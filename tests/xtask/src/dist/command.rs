//! The installed files of the command, shared by the tarball, the Debian package and the image.

use super::scratch;
use super::tree::{Tree, set_mode};
use crate::workspace::output;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs used by [`CommandFiles::write`].
pub(super) const TOOLS: [(&str, &str); 2] = [("strip", "binutils"), ("objdump", "binutils")];

/// Shells and paths of completion scripts in `share/`.
pub(super) const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/frostline"),
    ("zsh", "zsh/site-functions/_frostline"),
    ("fish", "fish/vendor_completions.d/frostline.fish"),
];

/// A folder with `frostline`, `onnxruntime/libonnxruntime.so` and `share/`.
pub(super) struct CommandFiles {
    pub(super) folder: PathBuf,
    /// Minimum versions of system libraries (Linux only).
    pub(super) needs: Option<String>,
}

impl CommandFiles {
    pub(super) fn write(program: &Path, library: &Path) -> Result<Self> {
        let tree = Tree(scratch("command")?);
        let placed = tree.path("frostline")?;
        strip(program, &placed, 0o755)?;
        let library_place = format!("onnxruntime/libonnxruntime.{}", std::env::consts::DLL_EXTENSION);
        let placed_library = tree.path(&library_place)?;
        strip(library, &placed_library, 0o644)?;
        let pages = tree.0.join("share/man/man1");
        fs::create_dir_all(&pages)?;
        output(Command::new(program).args(["man", "--directory"]).arg(pages))?;
        for (shell, place) in COMPLETIONS {
            let script = output(Command::new(program).args(["completions", shell]))?;
            tree.write(&format!("share/{place}"), &script)?;
        }
        let references = output(Command::new("objdump").arg("-p").args([placed, placed_library]))?;
        let needs = needs(&references);
        if let Some(needs) = &needs {
            eprintln!("dist: the command needs {needs}");
        }
        Ok(Self {
            folder: tree.0,
            needs,
        })
    }
}

/// Copies a program or library without symbols and notes. On macOS it is copied unchanged, because stripping invalidates the signature.
fn strip(file: &Path, place: &Path, mode: u32) -> Result<()> {
    if cfg!(target_os = "linux") {
        let unneeded = [
            "--strip-unneeded",
            "--remove-section=.comment",
            "--remove-section=.note",
            "-o",
        ];
        output(Command::new("strip").args(unneeded).arg(place).arg(file))?;
    } else {
        fs::copy(file, place)?;
    }
    set_mode(place, mode)
}

/// Formats the newest versions of glibc and libstdc++ in the version references printed by `objdump -p`. Returns `None` without such
/// references, as on macOS.
fn needs(references: &str) -> Option<String> {
    let newest = |prefix: &str| {
        let versions = references
            .split_whitespace()
            .filter_map(|word| word.strip_prefix(prefix));
        versions.max_by_key(|version| numbers(version))
    };
    let glibc = newest("GLIBC_")?;
    let cpp = newest("GLIBCXX_")?;
    Some(format!("glibc {glibc} or later and libstdc++ with GLIBCXX_{cpp}"))
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_needed() {
        let printed = "
  required from libstdc++.so.6:
    0x0297f872 0x00 28 GLIBCXX_3.4.22
    0x02297f89 0x00 27 GLIBCXX_3.4.9
  required from libc.so.6:
    0x0d696919 0x00 14 GLIBC_2.9
    0x069691b4 0x00 02 GLIBC_2.34
    0x09691a75 0x00 03 GLIBC_2.2.5
    0x09691a75 0x00 03 GLIBC_PRIVATE";
        let needed = needs(printed).unwrap();
        assert_eq!(needed, "glibc 2.34 or later and libstdc++ with GLIBCXX_3.4.22");
        assert_eq!(needs(""), None);
    }
}
