use super::toolchain::{TARGET, Toolchain};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};

/// Compiled component.
pub(super) struct Component {
    pub(super) path: PathBuf,
    pub(super) bytes: usize,
}

/// Compiles all guests and converts the core modules to components in `out/<name>.wasm`.
pub(super) fn components(root: &Path, toolchain: &Toolchain, out: &Path) -> anyhow::Result<Vec<Component>> {
    let build = out.join("build");
    compile(root, toolchain, &build)?;
    let release = build.join(TARGET).join("release");
    let mut components = Vec::new();
    for core in core_modules(&release)?
        .into_iter()
        .chain(core_modules(&release.join("examples"))?)
    {
        components.push(componentise(&core, out)?);
    }
    if components.is_empty() {
        bail!("the build produced no guest in {}", release.display());
    }
    Ok(components)
}

fn compile(root: &Path, toolchain: &Toolchain, build: &Path) -> anyhow::Result<()> {
    println!("guests: compiling for {TARGET} ...");
    let status = toolchain
        .cargo(build, root, &[])?
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--workspace",
            "--lib",
            "--examples",
            "--target",
            TARGET,
        ])
        .current_dir(root.join("guest"))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("cannot compile the guests; see the messages above");
    }
    Ok(())
}

fn core_modules(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut modules = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // Cargo keeps a second copy of each example with a hash in the name.
        if path.extension().is_some_and(|kind| kind == "wasm") && !stem.contains('-') {
            modules.push(path);
        }
    }
    modules.sort();
    Ok(modules)
}

/// Converts a core module such as `frostline_prefix.wasm` to the component `prefix.wasm`.
pub(super) fn componentise(core: &Path, out: &Path) -> anyhow::Result<Component> {
    let module = std::fs::read(core)?;
    let component = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .with_context(|| format!("{} is not a guest", core.display()))?;
    let stem = core.file_stem().unwrap_or_default().to_string_lossy();
    let path = out.join(format!(
        "{}.wasm",
        stem.trim_start_matches("frostline_").replace('_', "-")
    ));
    std::fs::write(&path, &component).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Component {
        path,
        bytes: component.len(),
    })
}
