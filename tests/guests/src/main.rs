//! `cargo xtask guests`: compiles the guests to WebAssembly components.
//!
//! All of them land in `target/guests/<name>.wasm`. The stock guest is also committed, as `guest/prefix/prefix.wasm` with
//! the hash of the sources it was built from, so that nobody needs a Wasm toolchain to use it; this command renews it
//! when the sources have changed, and `--check` fails then instead.

mod build;
mod c_bindings;
mod c_guests;
mod sources;
mod toolchain;

use anyhow::{Context, bail};
use sources::Stamp;
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: cargo xtask guests [--check]\n\n  --check  build as usual, but fail when the committed stock guest is older than its sources";

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("{USAGE}"),
    };
    let root = workspace_root()?;
    c_bindings::settle(&root, check)?;
    let built = build_all(&root)?;
    settle_stock_guest(&root, &built, check)
}

/// Builds every guest; those in Rust only unless that was done for these very sources. Returns where the components lie.
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

/// Compares the committed stock guest with its sources; renews it, or fails under `--check`, when they differ.
fn settle_stock_guest(root: &Path, built: &Path, check: bool) -> anyhow::Result<()> {
    let sources = sources::hash(&root.join("guest"), &["wit", "sdk", "prefix"])?;
    let committed = root.join("guest/prefix/prefix.wasm");
    let record = root.join("guest/prefix/prefix.wasm.json");
    let current = Stamp::read(&record).is_ok_and(|stamp| stamp.sources == sources) && committed.exists();
    if current {
        println!("guests: the committed stock guest matches its sources");
        return Ok(());
    }
    if check {
        bail!(
            "guest/prefix/prefix.wasm was built from other sources than those here: run `cargo xtask guests` and commit it together \
             with guest/prefix/prefix.wasm.json"
        );
    }
    std::fs::copy(built.join("prefix.wasm"), &committed)
        .with_context(|| format!("cannot write {}", committed.display()))?;
    let compiler = Stamp::read(&built.join("sources.json"))?.compiler;
    Stamp { sources, compiler }.write(&record)?;
    println!("guests: renewed guest/prefix/prefix.wasm; commit it together with prefix.wasm.json");
    Ok(())
}

fn workspace_root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .map(Path::to_owned)
        .context("the xtask crate lies outside the workspace")
}
