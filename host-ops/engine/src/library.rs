//! Finds ONNX Runtime's shared library and loads it once per process.

use crate::EngineError;
use frostline_tensor::Cause;
use ort::environment::Environment;
use ort::logging::LogLevel;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Environment variable with the path of the library. If it is set, no other library is tried.
pub(crate) const PATH_VARIABLE: &str = "ORT_DYLIB_PATH";

/// Environment variable that disables telemetry in official builds of ONNX Runtime 1.29 and later. Otherwise
/// a thread of the library writes a database to the user's cache and sends it to the vendor. That thread
/// starts before a program can call the library's function to disable it.
pub const NO_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

/// Folders in which package managers and ONNX Runtime's archives install shared libraries.
const SYSTEM_FOLDERS: [&str; 8] = [
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/opt/homebrew/lib",
    "/opt/onnxruntime/lib",
];

/// Number of searched folders above a program. Three are enough for `target/debug/deps/program`.
const ABOVE: usize = 3;

static LOADED: Mutex<Option<Library>> = Mutex::new(None);

#[derive(Clone)]
struct Library {
    environment: Environment,
    path: PathBuf,
}

/// Returns the file from which ONNX Runtime was loaded.
pub(crate) fn library_path() -> Result<PathBuf, EngineError> {
    Ok(library()?.path)
}

/// Returns the version of the ONNX Runtime library, such as `1.31.1`. If the file does not contain a version,
/// returns ONNX Runtime's build description.
///
/// # Errors
/// Returns [`EngineError::LibraryMissing`] or [`EngineError::LibraryUnusable`]. Both messages explain how to
/// fix it.
pub fn library_version() -> Result<String, EngineError> {
    let library = library()?;
    let version = std::fs::read(&library.path)
        .ok()
        .and_then(|bytes| version_in(&bytes));
    Ok(version.unwrap_or_else(|| ort::info().to_owned()))
}

/// Returns ONNX Runtime's environment. The first call loads the library.
pub(crate) fn environment() -> Result<Environment, EngineError> {
    Ok(library()?.environment)
}

fn library() -> Result<Library, EngineError> {
    let mut loaded = LOADED.lock();
    if let Some(library) = loaded.as_ref() {
        return Ok(library.clone());
    }
    let library = load_first(&Search::of_this_process())?;
    tracing::debug!(path = %library.path.display(), "ONNX Runtime loaded");
    *loaded = Some(library.clone());
    Ok(library)
}

/// Loads the first usable candidate. If all of them fail, returns the error of the first.
fn load_first(search: &Search) -> Result<Library, EngineError> {
    let mut first_failure = None;
    for path in search.candidates() {
        match load(&path) {
            Ok(library) => return Ok(library),
            Err(error) => {
                tracing::debug!(%error, "passed over an ONNX Runtime library");
                first_failure.get_or_insert(error);
            }
        }
    }
    Err(first_failure.unwrap_or_else(|| EngineError::LibraryMissing {
        searched: search.describe(),
    }))
}

fn load(path: &Path) -> Result<Library, EngineError> {
    if !path.is_file() {
        return Err(unusable(path, "the file does not exist"));
    }
    let builder = ort::init_from(path).map_err(|error| unusable(path, error))?;
    let environment = builder
        .with_name("frostline")
        .with_telemetry(false)
        .with_logger(Arc::new(log))
        .build()
        .map_err(|error| unusable(path, error.message()))?;
    environment.set_log_level(LogLevel::Warning);
    Ok(Library {
        environment,
        path: path.to_path_buf(),
    })
}

fn unusable(path: &Path, reason: impl Into<Cause>) -> EngineError {
    EngineError::LibraryUnusable {
        path: path.to_path_buf(),
        reason: reason.into(),
    }
}

/// Logs at debug level, because ONNX Runtime also returns every error. The log only adds the location.
fn log(level: LogLevel, category: &str, _id: &str, location: &str, message: &str) {
    tracing::debug!(target: "onnxruntime", ?level, category, location, "{message}");
}

/// Returns the folder of a user's own library: `$XDG_DATA_HOME/frostline/onnxruntime` or
/// `~/.local/share/frostline/onnxruntime`. Returns `None` if neither variable contains an absolute path.
pub fn user_library_folder() -> Option<PathBuf> {
    let data = folder_in("XDG_DATA_HOME").or_else(|| Some(folder_in("HOME")?.join(".local/share")));
    Some(data?.join("frostline/onnxruntime"))
}

/// Returns the absolute path in an environment variable.
fn folder_in(variable: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(variable)?);
    folder.is_absolute().then_some(folder)
}

/// Inputs of the search, read once from the process.
struct Search {
    named: Option<OsString>,
    executable: Option<PathBuf>,
    user: Option<PathBuf>,
    loader_path: Option<OsString>,
}

impl Search {
    fn of_this_process() -> Self {
        Self {
            named: std::env::var_os(PATH_VARIABLE).filter(|value| !value.is_empty()),
            executable: std::env::current_exe().ok(),
            user: user_library_folder(),
            loader_path: std::env::var_os("LD_LIBRARY_PATH"),
        }
    }

    /// Returns the libraries to try, best first. If [`PATH_VARIABLE`] is set, its library is the only one.
    fn candidates(&self) -> Vec<PathBuf> {
        if let Some(named) = &self.named {
            return vec![std::path::absolute(named).unwrap_or_else(|_| named.into())];
        }
        self.folders()
            .iter()
            .flat_map(|folder| libraries_in(folder))
            .collect()
    }

    /// Returns the folders to search, in order: `onnxruntime` above the executable (archives, packages, the
    /// build folder), the Python environment that contains the executable, `lib` next to it, the user's
    /// folder, `LD_LIBRARY_PATH` and the system's folders.
    fn folders(&self) -> Vec<PathBuf> {
        let installed = self.executable.iter().flat_map(|file| packages(file));
        let above = self.executable.iter();
        let above = above.flat_map(|file| file.ancestors().skip(1).take(ABOVE));
        let beside = self
            .executable
            .iter()
            .filter_map(|file| file.parent())
            .map(|folder| folder.join("lib"));
        let loader = self.loader_path.iter().flat_map(std::env::split_paths);
        above
            .map(|folder| folder.join("onnxruntime"))
            .filter(|folder| is_own(folder))
            .chain(installed)
            .chain(beside)
            .chain(self.user.iter().filter(|folder| is_own(folder)).cloned())
            .chain(loader.filter(|folder| folder.is_absolute()))
            .chain(SYSTEM_FOLDERS.map(PathBuf::from))
            .collect()
    }

    fn describe(&self) -> String {
        let above = "`onnxruntime/` of this user's or root's in the three folders above the program";
        format!(
            "{above}, the Python package onnxruntime next to it, `lib/` next to it, {}, LD_LIBRARY_PATH, {}",
            self.user.as_ref().map_or_else(
                || "the user's data folder".to_owned(),
                |folder| folder.display().to_string()
            ),
            SYSTEM_FOLDERS.join(", ")
        )
    }
}

/// Returns true if this user or root owns the folder. Other users could place a library in folders such as
/// `/tmp`.
fn is_own(folder: &Path) -> bool {
    let owner = std::fs::metadata(folder).map(|found| found.uid());
    owner.is_ok_and(|owner| owner == 0 || owner == rustix::process::geteuid().as_raw())
}

/// Returns the library folders of the Python package `onnxruntime` if `program` is in the `bin` folder of a
/// Python environment, sorted from the newest Python version to the oldest.
fn packages(program: &Path) -> Vec<PathBuf> {
    let bin = program.parent().filter(|folder| folder.ends_with("bin"));
    let Some(libraries) = bin.and_then(Path::parent).map(|prefix| prefix.join("lib")) else {
        return Vec::new();
    };
    let pythons = names_in(&libraries, |name| name.starts_with("python3"));
    pythons
        .iter()
        .flat_map(|python| {
            ["site-packages", "dist-packages"]
                .map(|packages| libraries.join(python).join(packages).join("onnxruntime/capi"))
        })
        .collect()
}

/// Returns the libraries in `folder`: first the one without a version, then the newest version.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let mut names = names_in(folder, is_library);
    let plain = format!(
        "{}onnxruntime{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    names.sort_by_key(|name| *name != plain);
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// Returns the names in `folder` for which `is_wanted` returns true, the newest version first.
fn names_in(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_wanted(name)).collect();
    names.sort_by_key(|name| std::cmp::Reverse(numbers_in(name.trim_start_matches("python"))));
    names
}

/// Matches `libonnxruntime.so`, `libonnxruntime.so.1.31.1` and `libonnxruntime.1.31.1.dylib`, but not
/// `libonnxruntime_providers_cuda.so`.
fn is_library(name: &str) -> bool {
    let stem = format!("{}onnxruntime.", std::env::consts::DLL_PREFIX);
    let suffix = std::env::consts::DLL_SUFFIX.trim_start_matches('.');
    name.strip_prefix(&stem)
        .is_some_and(|rest| rest.split('.').any(|part| part == suffix))
}

fn numbers_in(name: &str) -> Vec<u64> {
    name.split('.').filter_map(|part| part.parse().ok()).collect()
}

/// Reads the version from a symbol name (`VERS_1.31.1`), which official builds for Linux contain.
fn version_in(library: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"VERS_";
    let start = library.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let digits = library
        .get(start..)?
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
    let version: String = digits.take(32).map(|byte| char::from(*byte)).collect();
    version.contains('.').then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn search(named: &str, executable: &Path) -> Search {
        let named = Some(named.into()).filter(|name: &OsString| !name.is_empty());
        Search {
            named,
            executable: Some(executable.to_path_buf()),
            user: None,
            loader_path: None,
        }
    }

    fn library_name() -> String {
        format!(
            "{}onnxruntime{}",
            std::env::consts::DLL_PREFIX,
            std::env::consts::DLL_SUFFIX
        )
    }

    #[test]
    fn a_named_library_is_the_only_candidate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("elsewhere.so");
        let search = search(file.to_str().unwrap(), Path::new("/nowhere/program"));
        assert_eq!(search.candidates(), [file]);
    }

    #[test]
    fn a_library_above_the_program_comes_first_then_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("target/debug/deps/program");
        let folders =
            ["target/onnxruntime", "target/debug/deps/lib", "onnxruntime"].map(|f| root.path().join(f));
        for folder in &folders {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(library_name()), "").unwrap();
        }
        let [above, beside, further_above] = folders.map(|folder| folder.join(library_name()));
        let candidates = search("", &program).candidates();
        assert_eq!(candidates.get(..2), Some(&[above, beside][..]));
        assert!(
            !candidates.contains(&further_above),
            "the search ends at the build's folder"
        );
    }

    #[test]
    fn a_program_that_pip_installed_finds_the_package_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let place = |python: &str| {
            let capi = root.path().join(python).join("site-packages/onnxruntime/capi");
            std::fs::create_dir_all(&capi).unwrap();
            let library = capi.join(library_name());
            std::fs::write(&library, "").unwrap();
            library
        };
        let older = place("lib/python3.9");
        let newer = place("lib/python3.14");
        let candidates = |program: &str| search("", &root.path().join(program)).candidates();
        assert_eq!(
            candidates("bin/frostline").get(..2),
            Some(&[newer, older.clone()][..])
        );
        assert!(!candidates("tools/frostline").contains(&older));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn of_several_versions_the_newest_comes_first_and_other_files_never() {
        let folder = tempfile::tempdir().unwrap();
        let others = [
            "libonnxruntime_providers_cuda.so",
            "libonnxruntime.txt",
            "libother.so",
        ];
        for name in [
            "libonnxruntime.so.1.9.0",
            "libonnxruntime.so.1.31.1",
            "libonnxruntime.so.1",
        ]
        .iter()
        .chain(&others)
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names = |found: Vec<PathBuf>| {
            found
                .iter()
                .map(|p| p.file_name().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let expected = [
            "libonnxruntime.so.1.31.1",
            "libonnxruntime.so.1.9.0",
            "libonnxruntime.so.1",
        ];
        assert_eq!(names(libraries_in(folder.path())), expected);
        std::fs::write(folder.path().join("libonnxruntime.so"), "").unwrap();
        assert_eq!(
            names(libraries_in(folder.path())).first().unwrap(),
            "libonnxruntime.so"
        );
    }

    #[test]
    fn the_version_is_read_from_the_symbols() {
        assert_eq!(
            version_in(b"\0GLIBC_2.2\0VERS_1.31.1\0more"),
            Some("1.31.1".to_owned())
        );
        assert_eq!(version_in(b"no version here"), None);
        assert_eq!(version_in(b"VERS_"), None);
    }

    #[test]
    fn a_library_that_cannot_be_used_is_an_error_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let garbage = folder.path().join("libonnxruntime.so");
        std::fs::write(&garbage, "not a library").unwrap();
        for path in [
            garbage,
            folder.path().join("absent.so"),
            folder.path().to_path_buf(),
        ] {
            // Each attempt needs a new process, because the library is loaded once per process.
            let child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "library::tests::what_a_process_with_another_library_says",
                    "--ignored",
                    "--nocapture",
                ])
                .env(PATH_VARIABLE, &path)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout);
            assert!(child.status.success(), "{said}");
            assert!(
                said.contains(&format!("cannot use ONNX Runtime library {}", path.display())),
                "{said}"
            );
            assert!(said.contains("frostline onnxruntime install"), "{said}");
        }
    }

    #[test]
    #[ignore = "started by the test above in another process"]
    fn what_a_process_with_another_library_says() {
        println!("{}", library_version().unwrap_err());
    }
}
