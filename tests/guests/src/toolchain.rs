//! Finds a compiler for wasm32. Uses rustup's if the target is installed. Otherwise downloads Debian's
//! compiler and unpacks it in `target/` without installing it.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compilation target of guests. Includes neither an operating system nor WASI.
pub(super) const TARGET: &str = "wasm32-unknown-unknown";

pub(super) enum Toolchain {
    /// The current toolchain, which has the wasm32 target installed.
    Rustup,
    /// Debian's compiler, started by a wrapper script. Uses the linker of the current toolchain.
    Debian {
        /// Path of the wrapper script.
        rustc: PathBuf,
        /// Path of the current toolchain's `rust-lld`.
        linker: PathBuf,
    },
}

/// Returns the current toolchain if it has the wasm32 target, and otherwise Debian's compiler, which is
/// downloaded on first use.
pub(super) fn find_or_fetch(root: &Path) -> anyhow::Result<Toolchain> {
    let sysroot = PathBuf::from(output(Command::new(rustc()).args(["--print", "sysroot"]))?);
    if sysroot.join("lib/rustlib").join(TARGET).join("lib").exists() {
        return Ok(Toolchain::Rustup);
    }
    if !cfg!(target_os = "linux") || output(Command::new("apt-get").arg("--version")).is_err() {
        bail!("no compiler for {TARGET}: run `rustup target add {TARGET}`");
    }
    let linker = sysroot
        .join("lib/rustlib")
        .join(host_triple()?)
        .join("bin/rust-lld");
    let rustc = debian::compiler(&root.join("target/wasm-toolchain"), &linker).with_context(|| {
        format!("cannot set up Debian's compiler for {TARGET}; or run `rustup target add {TARGET}`")
    })?;
    Ok(Toolchain::Debian { rustc, linker })
}

impl Toolchain {
    /// Returns a cargo command that builds for [`TARGET`] in `target_dir` with compiler flags `flags`.
    ///
    /// Panic messages contain source paths. This command makes the paths of `sources` and registry crates
    /// relative. Guests must not contain paths of the build machine.
    pub(super) fn cargo(&self, target_dir: &Path, sources: &Path, flags: &[&str]) -> anyhow::Result<Command> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for inherited in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
        ] {
            cargo.env_remove(inherited);
        }
        let mut all_flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        all_flags.extend(neutral_paths(sources)?);
        cargo
            .env("CARGO_TARGET_DIR", target_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", all_flags.join("\u{1f}"));
        if let Self::Debian { rustc, linker } = self {
            cargo
                .env("RUSTC", rustc)
                .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
        }
        Ok(cargo)
    }

    /// Returns the compiler's version line.
    pub(super) fn version(&self) -> anyhow::Result<String> {
        let rustc = match self {
            Self::Rustup => rustc(),
            Self::Debian { rustc, .. } => rustc.clone(),
        };
        output(Command::new(rustc).arg("--version"))
    }
}

/// Returns compiler flags that strip the paths of `sources` and cargo's registry from the output.
fn neutral_paths(sources: &Path) -> anyhow::Result<Vec<String>> {
    let mut flags = vec![format!("--remap-path-prefix={}=", sources.join("").display())];
    let crates = cargo_home()?.join("registry/src");
    for registry in std::fs::read_dir(&crates).with_context(|| format!("cannot read {}", crates.display()))? {
        flags.push(format!(
            "--remap-path-prefix={}=",
            registry?.path().join("").display()
        ));
    }
    Ok(flags)
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::home_dir().context("CARGO_HOME is not set and there is no home directory")?;
    Ok(home.join(".cargo"))
}

fn rustc() -> PathBuf {
    std::env::var_os("RUSTC").map_or_else(|| "rustc".into(), PathBuf::from)
}

fn host_triple() -> anyhow::Result<String> {
    let version = output(Command::new(rustc()).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV printed no host")
}

/// Runs a command and returns trimmed standard output. Fails if the command fails.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !done.status.success() {
        bail!(
            "{command:?} failed:\n{}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

mod debian {
    use super::{TARGET, Toolchain, output};
    use anyhow::{Context, bail};
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Prepares Debian's compiler and a standard library for wasm32 in `home`. Returns the wrapper script.
    ///
    /// Every step writes to a temporary path first and renames the complete result. Completed steps are
    /// skipped.
    pub(super) fn compiler(home: &Path, linker: &Path) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(home)?;
        let tree = home.join("debian");
        if !tree.exists() {
            unpack(home, &tree)?;
        }
        let rustc = home.join("rustc");
        write_wrapper(&tree, &rustc)?;
        let std = tree.join("usr/lib/rustlib").join(TARGET).join("lib");
        if !std.exists() {
            build_std(home, &rustc, linker, &std)?;
        }
        Ok(rustc)
    }

    /// Downloads the packages (137 MB) and unpacks them into `tree`. Uses separate package lists, which needs
    /// no privileges and does not change the system.
    fn unpack(home: &Path, tree: &Path) -> anyhow::Result<()> {
        println!("guests: downloading Debian's Rust compiler for wasm32 (137 MB, once) ...");
        let apt = Apt::updated(&home.join("apt"))?;
        let debs = home.join("debs");
        fs::create_dir_all(&debs)?;
        output(
            apt.command("apt-get")
                .arg("download")
                .args(apt.packages()?)
                .current_dir(&debs),
        )?;
        let partial = home.join("debian.partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        for deb in fs::read_dir(&debs)? {
            output(Command::new("dpkg-deb").arg("-x").arg(deb?.path()).arg(&partial))?;
        }
        fs::remove_dir_all(&debs)?;
        fs::rename(&partial, tree)?;
        Ok(())
    }

    /// apt with a private folder for lists and cache.
    struct Apt {
        options: Vec<String>,
    }

    impl Apt {
        fn updated(folder: &Path) -> anyhow::Result<Self> {
            fs::create_dir_all(folder.join("lists/partial"))?;
            fs::create_dir_all(folder.join("cache/archives/partial"))?;
            let option = |name: &str, path: &str| format!("{name}={}", folder.join(path).display());
            let options = vec![
                "-o".to_owned(),
                option("Dir::State::lists", "lists"),
                "-o".to_owned(),
                option("Dir::Cache", "cache"),
            ];
            let apt = Self { options };
            output(apt.command("apt-get").arg("update"))?;
            Ok(apt)
        }

        fn command(&self, tool: &str) -> Command {
            let mut command = Command::new(tool);
            command.args(&self.options);
            command
        }

        /// Returns the packages of the compiler and the library source, including required packages with
        /// versioned names.
        fn packages(&self) -> anyhow::Result<Vec<String>> {
            let needs = [
                "--recurse",
                "--no-recommends",
                "--no-suggests",
                "--no-conflicts",
                "--no-breaks",
                "--no-replaces",
            ];
            let tree = output(
                self.command("apt-cache")
                    .arg("depends")
                    .args(needs)
                    .arg("rustc-web"),
            )?;
            let ours = |name: &&str| name.starts_with("libstd-rust-web") || name.starts_with("libllvm");
            let mut packages: Vec<String> = tree.lines().filter(ours).map(str::to_owned).collect();
            if packages.is_empty() {
                bail!("apt has no package rustc-web");
            }
            packages.extend(["rustc-web".to_owned(), "rust-web-src".to_owned()]);
            Ok(packages)
        }
    }

    /// Writes a script that starts the unpacked compiler with the libraries from the packages.
    fn write_wrapper(tree: &Path, rustc: &Path) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let library_dirs = fs::read_dir(tree.join("usr/lib"))?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let libraries = library_dirs
            .filter(|path| path.to_string_lossy().ends_with("-linux-gnu"))
            .map(|path| path.display().to_string())
            .next()
            .context("the packages contain no libraries")?;
        let script = format!(
            "#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{}' \"$@\"\n",
            tree.join("usr/bin/rustc").display()
        );
        if fs::read_to_string(rustc).is_ok_and(|present| present == script) {
            return Ok(());
        }
        fs::write(rustc, script)?;
        fs::set_permissions(rustc, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Builds the standard library from Debian's source and copies it to the compiler's library folder.
    fn build_std(home: &Path, rustc: &Path, linker: &Path, std: &Path) -> anyhow::Result<()> {
        println!("guests: building the standard library for {TARGET} (about a minute, once) ...");
        let krate = home.join("std");
        fs::create_dir_all(krate.join("src"))?;
        fs::write(
            krate.join("Cargo.toml"),
            "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[profile.release]\npanic = \"abort\"\n",
        )?;
        fs::write(krate.join("src/lib.rs"), "")?;
        let toolchain = Toolchain::Debian {
            rustc: rustc.to_owned(),
            linker: linker.to_owned(),
        };
        let target_dir = home.join("std-target");
        output(
            toolchain
                .cargo(&target_dir, home, &["-Cembed-bitcode=yes"])?
                .args([
                    "build",
                    "--release",
                    "--target",
                    TARGET,
                    "-Zbuild-std=core,alloc,std,panic_abort",
                ])
                .env("RUSTC_BOOTSTRAP", "1")
                .current_dir(&krate),
        )?;
        copy_libraries(&target_dir.join(TARGET).join("release/deps"), std)?;
        fs::remove_dir_all(&target_dir)?;
        Ok(())
    }

    fn copy_libraries(from: &Path, to: &Path) -> anyhow::Result<()> {
        let partial = to.with_extension("partial");
        fs::create_dir_all(&partial)?;
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            let library = path.extension().is_some_and(|kind| kind == "rlib");
            if library && !name.to_string_lossy().starts_with("libempty") {
                fs::copy(&path, partial.join(name))?;
            }
        }
        fs::rename(&partial, to)?;
        Ok(())
    }
}
