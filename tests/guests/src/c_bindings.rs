//! Generates the guest interface in C with wit-bindgen. The result is committed as `guest/c/frozen_prefix*`,
//! so authors of guests in C only need clang.

use anyhow::{Context, bail};
use std::path::Path;
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

const WORLD: &str = "frozen-prefix";

/// Compares the committed files with `guest/wit`. If they differ, updates them, or fails if `check` is set.
pub(super) fn check_or_update(root: &Path, check: bool) -> anyhow::Result<()> {
    let folder = root.join("guest/c");
    let mut renewed = Vec::new();
    for (name, contents) in generate(&root.join("guest/wit"))?.iter() {
        let path = folder.join(name);
        if std::fs::read(&path).is_ok_and(|committed| committed == contents) {
            continue;
        }
        if check {
            bail!("guest/c/{name} does not match guest/wit; run `cargo xtask guests` and commit it");
        }
        std::fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
        renewed.push(name.to_owned());
    }
    match renewed.as_slice() {
        [] => println!("guests: the committed C bindings match the interface"),
        files => println!("guests: updated {} in guest/c; commit them", files.join(", ")),
    }
    Ok(())
}

/// Generates a header, a source file and an object file. The object file contains the world in a custom
/// section.
fn generate(wit: &Path) -> anyhow::Result<Files> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit).context("cannot read guest/wit")?;
    let world = resolve.select_world(&[package], Some(WORLD))?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default()
        .build()
        .generate(&mut resolve, world, &mut files)
        .context("cannot generate the C bindings")?;
    Ok(files)
}
