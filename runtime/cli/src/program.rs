//! Path of this program, which is started again for lanes and guest compilers.

use anyhow::{Context, Result};
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Returns the path of this program from the system, or from `argv[0]` without `/proc`.
pub(crate) fn this_program() -> Result<PathBuf> {
    env::current_exe().or_else(|error| {
        called_program().ok_or(error).context(
            "cannot find the path of this program, which is needed for lanes and guest compilers; mount /proc or use the full path in the command",
        )
    })
}

fn called_program() -> Option<PathBuf> {
    let name = env::args_os().next()?;
    find_program(&name, env::var_os("PATH").as_deref())
}

/// Finds the file of a program. Names without a folder are searched in the folders of `path`.
fn find_program(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let name = Path::new(name);
    match name.components().count() {
        0 => None,
        1 => env::split_paths(path?)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file()),
        _ => std::path::absolute(name).ok().filter(|file| file.is_file()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("frostline");
        fs::write(&program, "").unwrap();
        let path = env::join_paths([Path::new("/nowhere"), folder.path()]).unwrap();
        let found = |name: &OsStr| find_program(name, Some(&path));
        assert_eq!(found(OsStr::new("frostline")), Some(program.clone()));
        assert_eq!(found(program.as_os_str()), Some(program));
        assert_eq!(found(OsStr::new("absent")), None);
        assert_eq!(found(OsStr::new("/nowhere/frostline")), None);
        assert_eq!(found(OsStr::new("")), None);
    }
}
