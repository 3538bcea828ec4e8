//! A case: a copy of its folder in which commands run.

use crate::harness::Scratch;
use frostline_e2e::{Finished, finish, frostline_binary, repository};
use frostline_needs::shared_file;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Copy of a case's folder. Commands of the case run in it.
pub(super) struct Case {
    scratch: Scratch,
    name: &'static str,
}

impl Case {
    /// Copies the case `name`, for example `02-mac-tar`, and runs its `make.py`.
    pub(super) fn generate(name: &'static str) -> Self {
        let case = Self::copy(name);
        let made = case.python("make.py", &[]);
        assert_eq!(made.code, Some(0), "{made:?}");
        case
    }

    /// Copies the case `name` without generating its input.
    pub(super) fn copy(name: &'static str) -> Self {
        let scratch = Scratch::new();
        let cases = shared_file("cases");
        copy_folder(&cases.join(name), &scratch.path(name));
        fs::copy(cases.join("common.py"), scratch.path("common.py")).unwrap();
        // Scripts start `frostline` with the lowest priority, and would wait for all other tests.
        let nice = scratch.path("bin/nice");
        fs::create_dir(scratch.path("bin")).unwrap();
        fs::write(&nice, "#!/bin/sh\nshift 2\nexec \"$@\"\n").unwrap();
        fs::set_permissions(&nice, Permissions::from_mode(0o755)).unwrap();
        Self { scratch, name }
    }

    /// Returns the path of a file in the folder of the case.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(self.name).join(name)
    }

    /// Runs a Python script of the case to completion.
    pub(super) fn python(&self, script: &str, arguments: &[&str]) -> Finished {
        let python = env::var_os("FROSTLINE_TRAINERS_PYTHON").expect("FROSTLINE_TRAINERS_PYTHON is not set");
        // Tests run concurrently, and OpenMP threads that wait for each other would occupy the cores.
        let mut command = Command::new(python);
        command.env("OMP_NUM_THREADS", "1").arg(script);
        self.finish(command.args(arguments))
    }

    /// Runs a shell script of the case to completion.
    pub(super) fn bash(&self, script: &str, arguments: &[&str]) -> Finished {
        self.finish(Command::new("bash").arg(script).args(arguments))
    }

    /// Runs `frostline` with `arguments` to completion.
    pub(super) fn frostline(&self, arguments: &[&str]) -> Finished {
        self.finish(crate::harness::frostline().args(arguments))
    }

    fn finish(&self, command: &mut Command) -> Finished {
        let binary = frostline_binary().expect("frostline is not built");
        let folders = [
            self.scratch.path("bin"),
            binary.parent().unwrap_or(Path::new(".")).into(),
        ];
        let inherited = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(folders.into_iter().chain(env::split_paths(&inherited))).unwrap();
        command
            .current_dir(self.path(""))
            .env("PATH", path)
            .env("FROSTLINE", binary)
            // Cases use the feature cache as users do, each in its own folder.
            .env_remove("FROSTLINE_FEATURE_CACHE")
            .env("FROSTLINE_FEATURE_FOLDER", self.scratch.path("features"))
            .env("FROSTLINE_REPO", repository());
        finish(command).unwrap()
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
