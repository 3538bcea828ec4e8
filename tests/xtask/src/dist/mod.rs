//! Packs release artifacts reproducibly. The order, owner, mode and time of packed files depend only on the
//! commit.

mod archive;
mod chart;
mod command;
mod deb;
mod image;
mod sbom;
mod tarball;
mod tree;

pub(crate) use image::suite;

use crate::parallel::{Lazy, on_threads};
use crate::python::sha256;
use crate::workspace::{self, cargo, output, root, run as run_command, target};
use crate::{ort, wheel};
use anyhow::{Context, Result, bail};
use command::CommandFiles;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HELP: &str = "\
Usage: cargo xtask dist [PART..] [--profile release|dev] [--frostline FILE]

Writes the artifacts of a release and their SHA256SUMS to dist/. Without PART it empties dist/ and packs every part whose tools are installed.

  tarball  the command with ONNX Runtime, manual pages and completions, for any folder
  wheel    the Python package with the command
  deb      the Debian package with a systemd unit
  image    the OCI image, as an archive
  chart    the Helm chart
  sbom     the bill of materials of the command (CycloneDX)

  --profile PROFILE  how the command and the wheel are built [default: release]
  --frostline FILE   pack this program instead of building the command";

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Environment variable that overrides timestamps of packed files:
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
pub(crate) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// A release artifact.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// Returns the reason this machine cannot pack it.
    pub(crate) missing: fn() -> Option<String>,
    /// Writes the artifact to a folder and returns the path of the file.
    pub(crate) pack: fn(&Build, &Path) -> Result<PathBuf>,
}

/// All parts, slowest first; packing starts in this order.
pub(crate) const PARTS: [Part; 6] = [
    Part {
        name: "image",
        missing: image::missing,
        pack: image::pack,
    },
    Part {
        name: "wheel",
        missing: wheel::missing,
        pack: wheel::pack,
    },
    Part {
        name: "deb",
        missing: deb::missing,
        pack: deb::pack,
    },
    Part {
        name: "tarball",
        missing: tarball::missing,
        pack: tarball::pack,
    },
    Part {
        name: "chart",
        missing: chart::missing,
        pack: chart::pack,
    },
    Part {
        name: "sbom",
        missing: || None,
        pack: sbom::pack,
    },
];

/// Inputs of the parts.
pub(crate) struct Build {
    pub(crate) release: bool,
    frostline: Lazy<PathBuf>,
    command: Lazy<CommandFiles>,
}

impl Build {
    /// Removes the flags `--profile` and `--frostline` from `words`.
    pub(crate) fn from_flags(words: &mut Vec<&str>, default_profile: &str) -> Result<Self> {
        let release = match take_flag(words, "--profile")?.unwrap_or(default_profile) {
            "release" => true,
            "dev" => false,
            other => bail!("unknown profile {other:?}; use release or dev"),
        };
        let frostline = Lazy::new();
        if let Some(file) = take_flag(words, "--frostline")? {
            let file = fs::canonicalize(file).with_context(|| format!("cannot find {file}"))?;
            frostline.get(|| Ok(file))?;
        }
        Ok(Self {
            release,
            frostline,
            command: Lazy::new(),
        })
    }

    /// Builds the program on first use and returns its path.
    pub(crate) fn frostline(&self) -> Result<&Path> {
        let file = self.frostline.get(|| program(self.release))?;
        Ok(file.as_path())
    }

    /// Prepares the installed files of the command on first use.
    fn command(&self) -> Result<&CommandFiles> {
        self.command
            .get(|| CommandFiles::write(self.frostline()?, &ort::pinned_library()?))
    }
}

/// Removes a flag and its value from `words` and returns the value.
fn take_flag<'a>(words: &mut Vec<&'a str>, flag: &str) -> Result<Option<&'a str>> {
    let Some(at) = words.iter().position(|word| *word == flag) else {
        return Ok(None);
    };
    let value = words.get(at + 1).copied();
    words.drain(at..words.len().min(at + 2));
    Ok(Some(value.with_context(|| format!("{flag} needs a value"))?))
}

/// Builds the command and returns the path. The unoptimized build is shared with the tests.
pub(crate) fn program(release: bool) -> Result<PathBuf> {
    if !release {
        return workspace::program("frostline");
    }
    run_command(cargo().args(["build", "--locked", "--release", "--package", "frostline"]))?;
    Ok(target().join("release/frostline"))
}

/// Returns the time of packed files in seconds since 1970: [`EPOCH`] if set, otherwise the time of the last
/// commit.
pub(crate) fn epoch() -> Result<String> {
    if let Ok(seconds) = std::env::var(EPOCH) {
        return Ok(seconds);
    }
    let mut log = Command::new("git");
    log.current_dir(root()).args(["log", "-1", "--format=%ct"]);
    let committed = output(&mut log).with_context(|| format!("cannot date the files; set {EPOCH}"))?;
    Ok(committed.trim().to_owned())
}

/// `cargo xtask dist`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let build = Build::from_flags(&mut words, "release")?;
    let is_part = |word: &&str| PARTS.iter().any(|part| part.name == *word);
    if let Some(other) = words.iter().find(|word| !is_part(word)) {
        bail!("unknown part {other:?}\n\n{HELP}");
    }
    let folder = root().join("dist");
    if words.is_empty() {
        let _ = fs::remove_dir_all(&folder);
    }
    fs::create_dir_all(&folder)?;
    let is_named = |part: &Part| words.contains(&part.name);
    let wanted: Vec<&Part> = PARTS
        .iter()
        .filter(|part| words.is_empty() || is_named(part))
        .collect();
    let packed = on_threads(&wanted, |part| {
        let result = match (part.missing)() {
            Some(why) if is_named(part) => bail!("cannot pack {}: {why}", part.name),
            Some(why) => format!("SKIPPED: {why}"),
            None => {
                let file =
                    (part.pack)(&build, &folder).with_context(|| format!("cannot pack {}", part.name))?;
                let megabytes = fs::metadata(&file)?.len() as f64 / 1e6;
                let shown = file.strip_prefix(root()).unwrap_or(&file);
                format!("{} ({megabytes:.2} MB)", shown.display())
            }
        };
        println!("dist: {}: {result}", part.name);
        Ok(())
    });
    write_sums(&folder)?;
    packed.into_iter().collect()
}

/// Writes the SHA-256 of each file in `folder` to `SHA256SUMS`, which `sha256sum --check` reads.
pub(crate) fn write_sums(folder: &Path) -> Result<()> {
    const NAME: &str = "SHA256SUMS";
    let mut names: Vec<_> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<std::io::Result<_>>()?;
    names.retain(|name| name != NAME);
    names.sort();
    let mut sums = String::new();
    for name in names {
        let sum = sha256(&fs::read(folder.join(&name))?)?;
        writeln!(sums, "{sum}  {}", name.display())?;
    }
    Ok(fs::write(folder.join(NAME), sums)?)
}

/// Creates an empty folder for intermediate files of a part.
fn scratch(part: &str) -> Result<PathBuf> {
    let folder = target().join("dist").join(part);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_removed_from_the_arguments() {
        let mut words = vec!["deb", "--profile", "dev", "chart"];
        assert!(!Build::from_flags(&mut words, "release").unwrap().release);
        assert_eq!(words, ["deb", "chart"]);
        for wrong in [vec!["--profile"], vec!["--profile", "fast"]] {
            assert!(Build::from_flags(&mut wrong.clone(), "dev").is_err());
        }
    }
}
