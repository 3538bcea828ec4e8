//! Packs the tarball: a relocatable folder with the command.

use super::tree::Tree;
use super::{Build, VERSION, archive, command, scratch};
use crate::workspace::{self, host_target, root, run};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

const DOCUMENTS: [&str; 4] = [
    "README.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "runtime/deploy/deb/copyright",
];

const INSTALL: &str = "\
Frostline @version@ for @target@

@needs@Move this folder anywhere, such as to /opt/frostline. It must belong to you or to root.

  ln -s /opt/frostline/frostline /usr/local/bin/frostline
  frostline doctor

The command loads ONNX Runtime from the folder onnxruntime next to it; the variable ORT_DYLIB_PATH selects another library. share/ has
manual pages, and completions for bash, zsh and fish. The licenses are in LICENSE-APACHE, LICENSE-MIT and, for ONNX Runtime, copyright.
";

pub(super) fn missing() -> Option<String> {
    workspace::missing(&[archive::TOOLS, command::TOOLS].concat())
}

pub(super) fn pack(build: &Build, to: &Path) -> Result<PathBuf> {
    let command = build.command()?;
    let target = host_target()?;
    let name = format!("frostline-{VERSION}-{target}");
    let scratch = scratch("tarball")?;
    let tree = Tree(scratch.join(&name));
    run(Command::new("cp").arg("-r").arg(&command.folder).arg(&tree.0))?;
    for document in DOCUMENTS {
        let place = document.rsplit('/').next().unwrap_or(document);
        tree.copy(&root().join(document), place, 0o644)?;
    }
    let needs = command
        .needs
        .as_ref()
        .map(|needs| format!("It needs {needs}. `ldd --version` prints the version of glibc.\n\n"));
    let install = INSTALL
        .replace("@version@", VERSION)
        .replace("@target@", &target)
        .replace("@needs@", &needs.unwrap_or_default());
    tree.write("INSTALL", &install)?;
    let file = to.join(format!("{name}.tar.gz"));
    archive::write(build, &scratch, &[&name], &file)?;
    Ok(file)
}
