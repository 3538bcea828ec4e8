use crate::arguments::BuildGuest;
use crate::output::{bytes, print_result, write_file};
use anyhow::{Context, Result, bail};
use frostline_sandbox::SandboxConfig;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TARGET: &str = "wasm32-unknown-unknown";

/// Folder in a starter project for files copied from Frostline.
const KIT: &str = "frostline";

/// A compiled core module.
struct Core {
    name: String,
    file: PathBuf,
}

/// Compiles the project and writes the component to `target/<name>.wasm`.
pub(super) fn run(flags: &BuildGuest, json: bool) -> Result<()> {
    let folder = std::path::absolute(&flags.path)
        .with_context(|| format!("cannot use the folder {}", flags.path.display()))?;
    let target = folder.join("target");
    let core = if folder.join("Cargo.toml").is_file() {
        cargo(&folder)?
    } else if !with_extension(&folder, "c")?.is_empty() {
        std::fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
        clang(&folder, &target)?
    } else {
        bail!(
            "{} contains neither a Cargo.toml nor a .c file; select another folder, or create a guest with `frostline guest new`",
            flags.path.display()
        );
    };
    std::fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    let module = std::fs::read(&core.file).with_context(|| format!("cannot read {}", core.file.display()))?;
    let component = frostline_sandbox::component(&module, &SandboxConfig::default())?;
    let path = target.join(format!("{}.wasm", core.name));
    write_file("", &path, &component)?;
    let size = component.len() as u64;
    let value = serde_json::json!({ "name": core.name, "component": path, "bytes": size, "core_bytes": module.len() });
    let path = path.display();
    let text = format!("{path} ({})\nnext: frostline guest check {path}", bytes(size));
    print_result(json, &value, text)
}

/// Builds with cargo and the compiler selected by cargo. Both read their usual settings from the environment.
fn cargo(folder: &Path) -> Result<Core> {
    check_target(folder)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--target", TARGET])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo: install Rust from rustup.rs")?;
    if !built.status.success() {
        bail!("cannot compile the guest: see the messages above");
    }
    let mut modules: Vec<Core> = built
        .stdout
        .split(|&byte| byte == b'\n')
        .flat_map(modules)
        .collect();
    match (modules.pop(), modules.as_slice()) {
        (Some(only), []) => Ok(only),
        (None, _) => bail!(
            "cargo created no WebAssembly module; the crate needs `crate-type = [\"cdylib\"]` under [lib] in its Cargo.toml"
        ),
        (Some(_), _) => bail!("cargo created several WebAssembly modules; build a single package"),
    }
}

/// Checks that the compiler supports the target. Otherwise, cargo would report the missing target only after
/// compiling the build dependencies.
fn check_target(folder: &Path) -> Result<()> {
    let named = ["RUSTC", "CARGO_BUILD_RUSTC"].iter().find_map(std::env::var_os);
    let rustc = named.unwrap_or_else(|| "rustc".into());
    // Run in the project folder, because rustup may select another toolchain for the project.
    let asked = Command::new(&rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(folder)
        .output()
        .with_context(|| {
            format!(
                "cannot run the compiler {}: install Rust from rustup.rs",
                rustc.to_string_lossy()
            )
        })?;
    let library = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    if asked.status.success() && Path::new(&library).is_dir() {
        return Ok(());
    }
    bail!(
        "the compiler does not support the target {TARGET}; run `rustup target add {TARGET}`, or set RUSTC to a compiler with this target"
    );
}

/// Returns the WebAssembly modules in a line of cargo's JSON messages.
fn modules(line: &[u8]) -> Vec<Core> {
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        return Vec::new();
    };
    let target = message.get("target");
    let is_cdylib = target
        .and_then(|target| target.get("kind")?.as_array())
        .is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"));
    let name = target.and_then(|target| target.get("name")?.as_str());
    let files = message.get("filenames").and_then(Value::as_array);
    let (true, Some(name), Some(files)) = (is_cdylib, name, files) else {
        return Vec::new();
    };
    let modules = files
        .iter()
        .filter_map(Value::as_str)
        .filter(|file| file.ends_with(".wasm"));
    modules
        .map(|file| Core {
            name: name.replace('_', "-"),
            file: file.into(),
        })
        .collect()
}

/// Compiles and links the sources of the project and of the kit in a single command.
fn clang(folder: &Path, target: &Path) -> Result<Core> {
    let kit = folder.join(KIT);
    let flags = kit.join("flags.rsp");
    if !flags.is_file() {
        bail!(
            "{} is missing; a guest in C needs the folder {KIT}, which `frostline guest new --language c` creates",
            flags.display()
        );
    }
    let name = folder
        .file_name()
        .unwrap_or(OsStr::new("guest"))
        .to_string_lossy()
        .into_owned();
    let file = target.join(format!("{name}.core.wasm"));
    let status = Command::new("clang")
        .arg(format!("@{}", flags.display()))
        .arg("-isystem")
        .arg(&kit)
        .args(with_extension(folder, "c")?)
        .args(with_extension(&kit, "c")?)
        .args(with_extension(&kit, "o")?)
        .arg("-o")
        .arg(&file)
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(Core { name, file }),
        Ok(_) => bail!(
            "cannot compile the guest: see the messages above, and install lld if wasm-ld is missing (`apt-get install lld`)"
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("clang is not installed; install clang and lld (`apt-get install clang lld`)")
        }
        Err(error) => Err(error).context("cannot run clang"),
    }
}

/// Returns the files of a folder with this extension, sorted by name.
fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder);
    let paths = entries.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = paths.with_context(|| format!("cannot read {}", folder.display()))?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_found_among_cargos_messages() {
        let line = |kind: &str, file: &str| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "target": { "name": "my_guest", "kind": [kind] },
                "filenames": [file],
            })
            .to_string()
        };
        let found = modules(line("cdylib", "/t/my_guest.wasm").as_bytes());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "my-guest");
        assert!(modules(line("lib", "/t/libsdk.rlib").as_bytes()).is_empty());
        assert!(modules(br#"{"reason":"build-finished","success":true}"#).is_empty());
        assert!(modules(b"").is_empty());
    }

    #[test]
    fn a_folder_without_sources_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let flags = BuildGuest {
            path: folder.path().to_owned(),
        };
        let error = run(&flags, false).unwrap_err().to_string();
        assert!(error.contains("guest new"), "{error}");
        std::fs::write(folder.path().join("guest.c"), "").unwrap();
        let error = run(&flags, false).unwrap_err().to_string();
        assert!(error.contains("--language c"), "{error}");
    }
}
