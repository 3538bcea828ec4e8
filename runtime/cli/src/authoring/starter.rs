//! The files of a starter project. They are the repository's own, kept in the binary: the example guests, the SDK, the
//! interface.

use crate::arguments::Language;
use std::borrow::Cow;

/// Stands for the project's name in the templates.
const NAME: &str = "{name}";

/// What the example in C calls itself.
const EXAMPLE: &str = "\"c-prefix\"";

/// One file of a project.
pub(super) struct File {
    /// Where it goes, below the project's folder.
    pub(super) path: &'static str,
    pub(super) contents: Cow<'static, [u8]>,
}

/// Files of the repository as they are: where each goes, and what it holds.
macro_rules! copied {
    ($($path:literal from $source:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../../../guest/", $source)) as &[u8])),*]
    };
}

/// The lock file is that of our own guests: a first build takes the versions they were built with and drops the rest.
const RUST: &[(&str, &[u8])] = copied! {
    "Cargo.lock" from "Cargo.lock",
    "src/lib.rs" from "examples/starter/src/lib.rs",
    "frostline/sdk/Cargo.toml" from "sdk/Cargo.toml",
    "frostline/sdk/src/failure.rs" from "sdk/src/failure.rs",
    "frostline/sdk/src/guest.rs" from "sdk/src/guest.rs",
    "frostline/sdk/src/lib.rs" from "sdk/src/lib.rs",
    "frostline/sdk/src/stage.rs" from "sdk/src/stage.rs",
    "frostline/wit/pushdown.wit" from "wit/pushdown.wit",
    "frostline/wit/deps/wasi-nn/wasi-nn.wit" from "wit/deps/wasi-nn/wasi-nn.wit",
};

const C: &[(&str, &[u8])] = copied! {
    "frostline/flags.rsp" from "c/flags.rsp",
    "frostline/frostline.c" from "c/frostline.c",
    "frostline/frostline.h" from "c/frostline.h",
    "frostline/frozen_prefix.c" from "c/frozen_prefix.c",
    "frostline/frozen_prefix.h" from "c/frozen_prefix.h",
    "frostline/frozen_prefix_component_type.o" from "c/frozen_prefix_component_type.o",
    "frostline/stdlib.h" from "c/stdlib.h",
    "frostline/string.h" from "c/string.h",
};

/// All files of a project called `name`.
pub(super) fn files(language: Language, name: &str) -> Vec<File> {
    let (copied, written): (_, &[(&str, &str)]) = match language {
        Language::Rust => (
            RUST,
            &[
                ("Cargo.toml", include_str!("starter/Cargo.toml.in")),
                ("README.md", include_str!("starter/rust.md")),
                (".gitignore", "/target\n"),
            ],
        ),
        Language::C => (
            C,
            &[
                (
                    "guest.c",
                    include_str!("../../../../guest/examples/c-prefix/guest.c"),
                ),
                ("README.md", include_str!("starter/c.md")),
                (".gitignore", "/target\n"),
            ],
        ),
    };
    let copied = copied.iter().map(|&(path, contents)| File {
        path,
        contents: contents.into(),
    });
    let written = written.iter().map(|&(path, template)| File {
        path,
        contents: named(template, name).into_bytes().into(),
    });
    copied.chain(written).collect()
}

fn named(template: &str, name: &str) -> String {
    template
        .replace(NAME, name)
        .replace(EXAMPLE, &format!("\"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found);
            } else {
                found.push(path);
            }
        }
    }

    /// Paths below `guest/<folder>`, as a project has them below `frostline/<to>`.
    fn listed(folder: &str, to: &str) -> BTreeSet<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../guest")
            .join(folder);
        let mut found = Vec::new();
        below(&root, &mut found);
        let relative = found
            .iter()
            .map(|path| path.strip_prefix(&root).unwrap().display().to_string());
        relative.map(|path| format!("frostline/{to}{path}")).collect()
    }

    fn kept(language: Language) -> BTreeSet<String> {
        let files = files(language, "x").into_iter().map(|file| file.path.to_owned());
        files.filter(|path| path.starts_with("frostline/")).collect()
    }

    #[test]
    fn no_file_of_sdk_and_interface_is_left_out() {
        let mut rust = listed("sdk", "sdk/");
        rust.extend(listed("wit", "wit/"));
        assert_eq!(kept(Language::Rust), rust);
        assert_eq!(kept(Language::C), listed("c", ""));
    }

    #[test]
    fn a_guest_in_c_is_called_as_its_project_is() {
        let files = files(Language::C, "mine");
        let guest = files.iter().find(|file| file.path == "guest.c").unwrap();
        let text = std::str::from_utf8(&guest.contents).unwrap();
        assert!(text.contains("\"mine\"") && !text.contains(EXAMPLE));
    }

    #[test]
    fn the_manifest_follows_that_of_our_own_guests() {
        let ours: toml::Table = toml::from_str(include_str!("../../../../guest/Cargo.toml")).unwrap();
        let theirs: toml::Table =
            toml::from_str(&include_str!("starter/Cargo.toml.in").replace(NAME, "mine")).unwrap();
        assert_eq!(theirs["profile"], ours["profile"]);
        let (theirs, ours) = (&theirs["workspace"], &ours["workspace"]);
        assert_eq!(theirs["package"], ours["package"]);
        assert_eq!(
            theirs["dependencies"]["wit-bindgen"],
            ours["dependencies"]["wit-bindgen"]
        );
    }
}
