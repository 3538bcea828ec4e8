use std::path::{Path, PathBuf};

/// The component of a guest: from `FROSTLINE_GUESTS_DIR`, else as `cargo xtask guests` built it, else as committed. Of those that are
/// not committed only tests in a module `needs_guests` may ask.
pub(crate) fn component(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built =
        std::env::var_os("FROSTLINE_GUESTS_DIR").map_or_else(|| root.join("target/guests"), PathBuf::from);
    let committed = root.join("guest").join(name);
    let found = [built, committed]
        .iter()
        .find_map(|folder| std::fs::read(folder.join(format!("{name}.wasm"))).ok());
    found.unwrap_or_else(|| panic!("there is no guest {name}: cargo xtask guests builds it"))
}
