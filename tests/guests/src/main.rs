//! `cargo xtask guests`: compiles the guests to WebAssembly components.
//!
//! Components are written to `target/guests/<name>.wasm`. The stock guest is also committed as
//! `guest/prefix/prefix.wasm`, along with a hash of the sources, so that users do not need a Wasm toolchain.
//! If the sources have changed, this command updates the committed files, or fails if `--check` is set.

mod build;
mod c_bindings;
mod c_guests;
mod sources;
mod toolchain;

use anyhow::{Context, bail};
use sources::Stamp;
use std::path::{Path, PathBuf};

const USAGE: &str = "Usage: cargo xtask guests [--check]\n\n  --check  fail if committed files are out of date, instead of updating them";

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("{USAGE}"),
    };
    let root = workspace_root()?;
    c_bindings::check_or_update(&root, check)?;
    let built = build_all(&root)?;
    check_or_update_stock_guest(&root, &built, check)
}

/// Builds all guests. Skips guests in Rust if the sources have not changed. Returns the folder of the
/// components.
fn build_all(root: &Path) -> anyhow::Result<PathBuf> {
    let out = root.join("target/guests");
    for component in c_guests::components(root, &out)? {
        println!("guests: {} ({} bytes)", component.path.display(), component.bytes);
    }
    let sources = sources::hash(
        &root.join("guest"),
        &["wit", "sdk", "prefix", "conformance", "hostile", "examples"],
    )?;
    let stamp = out.join("sources.json");
    if Stamp::read(&stamp).is_ok_and(|built| built.sources == sources) {
        println!("guests: up to date in {}", out.display());
        return Ok(out);
    }
    let toolchain = toolchain::find_or_fetch(root)?;
    for component in build::components(root, &toolchain, &out)? {
        println!("guests: {} ({} bytes)", component.path.display(), component.bytes);
    }
    Stamp {
        sources,
        compiler: toolchain.version()?,
    }
    .write(&stamp)?;
    Ok(out)
}

/// Compares the committed stock guest with the sources. If they differ, updates it, or fails if `check` is
/// set.
fn check_or_update_stock_guest(root: &Path, built: &Path, check: bool) -> anyhow::Result<()> {
    let sources = sources::hash(&root.join("guest"), &["wit", "sdk", "prefix"])?;
    let committed = root.join("guest/prefix/prefix.wasm");
    let record = root.join("guest/prefix/prefix.wasm.json");
    let current = Stamp::read(&record).is_ok_and(|stamp| stamp.sources == sources) && committed.exists();
    if current {
        println!("guests: the committed stock guest is up to date");
        return Ok(());
    }
    if check {
        bail!(
            "guest/prefix/prefix.wasm does not match its sources; run `cargo xtask guests` and commit it together \
             with guest/prefix/prefix.wasm.json"
        );
    }
    std::fs::copy(built.join("prefix.wasm"), &committed)
        .with_context(|| format!("cannot write {}", committed.display()))?;
    let compiler = Stamp::read(&built.join("sources.json"))?.compiler;
    Stamp { sources, compiler }.write(&record)?;
    println!("guests: updated guest/prefix/prefix.wasm; commit it together with prefix.wasm.json");
    Ok(())
}

fn workspace_root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .map(Path::to_owned)
        .context("the crate is outside of the workspace")
}
