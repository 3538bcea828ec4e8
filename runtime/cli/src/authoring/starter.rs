//! Files of a starter project. The example guests, the SDK and the interface are copied from the repository
//! and embedded in the binary.

use crate::arguments::Language;
use std::borrow::Cow;

/// Placeholder for the project name in templates.
const NAME: &str = "{name}";

/// Guest name in the C example, which is replaced by the project name.
const EXAMPLE: &str = "\"c-prefix\"";

/// A project file.
pub(super) struct File {
    /// Path relative to the project folder.
    pub(super) path: &'static str,
    pub(super) contents: Cow<'static, [u8]>,
}

/// Embeds repository files unchanged, together with their target paths.
macro_rules! copied {
    ($($path:literal from $source:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../../../guest/", $source)) as &[u8])),*]
    };
}

/// Files of a Rust project. The lock file is copied from the repository's guests. The first build uses the
/// same versions and removes unused entries.
const RUST: &[(&str, &[u8])] = copied! {
    "Cargo.lock" from "Cargo.lock",
    "src/lib.rs" from "examples/starter/src/lib.rs",
    "frostline/sdk/Cargo.toml" from "sdk/Cargo.toml",
    "frostline/sdk/src/error.rs" from "sdk/src/error.rs",
    "frostline/sdk/src/guest.rs" from "sdk/src/guest.rs",
    "frostline/sdk/src/inputs.rs" from "sdk/src/inputs.rs",
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

/// Returns the files of a new project.
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

    /// Returns the paths of all files in `guest/<folder>`, renamed to `frostline/<to>` like in a project.
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
        let theirs = &theirs["workspace"];
        let ours = &ours["workspace"];
        assert_eq!(theirs["package"], ours["package"]);
        assert_eq!(
            theirs["dependencies"]["wit-bindgen"],
            ours["dependencies"]["wit-bindgen"]
        );
    }
}
