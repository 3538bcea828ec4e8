use super::starter;
use crate::arguments::{Language, NewGuest};
use crate::hints::{Hinted, NextStep};
use crate::output::print_result;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Maximum length of a guest name on a host.
const LONGEST_NAME: usize = 63;

/// Creates a starter project.
pub(super) fn run(flags: &NewGuest, json: bool) -> Result<()> {
    check_name(&flags.name)?;
    let folder = flags.path.clone().unwrap_or_else(|| PathBuf::from(&flags.name));
    check_folder(&folder)?;
    for file in starter::files(flags.language, &flags.name) {
        write(&folder.join(file.path), &file.contents)?;
    }
    let language = match flags.language {
        Language::Rust => "Rust",
        Language::C => "C",
    };
    let value = serde_json::json!({ "name": flags.name, "path": folder });
    let name = &flags.name;
    let folder = folder.display();
    let text =
        format!("created the {language} guest {name} in {folder}\nnext: frostline guest build {folder}");
    print_result(json, &value, text)
}

/// Checks that the name is valid for a cargo package and for a guest on a host.
fn check_name(name: &str) -> Result<()> {
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !good || name.len() > LONGEST_NAME {
        bail!(
            "invalid guest name {name:?}; use up to {LONGEST_NAME} lower-case letters, digits and hyphens, starting with a letter"
        );
    }
    Ok(())
}

/// Refuses a folder with files, so that no file is overwritten.
fn check_folder(folder: &Path) -> Result<()> {
    match std::fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let error = anyhow!("the folder {} is not empty", folder.display());
            Err(Hinted::wrap(error, vec![NextStep::set("path", Value::Null)]))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot use the folder {}", folder.display())),
    }
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, contents));
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_suit_cargo_and_hosts() {
        for good in ["a", "my-guest", "guest2"] {
            check_name(good).unwrap();
        }
        for bad in ["", "2nd", "-x", "Mine", "a_b", "a/b", "..", "é", &"a".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_in_use_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        check_folder(folder.path()).unwrap();
        check_folder(&folder.path().join("missing")).unwrap();
        std::fs::write(folder.path().join("thesis.tex"), "").unwrap();
        let error = check_folder(folder.path()).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
    }
}
