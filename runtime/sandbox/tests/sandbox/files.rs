use std::path::{Path, PathBuf};

/// The component of a guest: from `FROSTLINE_GUESTS_DIR`, else as `cargo xtask guests` built it, else as committed.
/// `None`, with a word on stderr, where there is none of these.
pub(crate) fn component(name: &str) -> Option<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built =
        std::env::var_os("FROSTLINE_GUESTS_DIR").map_or_else(|| root.join("target/guests"), PathBuf::from);
    let committed = root.join("guest").join(name);
    let found = [built, committed]
        .iter()
        .find_map(|folder| std::fs::read(folder.join(format!("{name}.wasm"))).ok());
    if found.is_none() {
        eprintln!("skipped: there is no guest {name}, run `cargo xtask guests`");
    }
    found
}

/// The component of a guest, or the end of the test.
macro_rules! component_or_skip {
    ($name:expr) => {
        match crate::files::component($name) {
            Some(bytes) => bytes,
            None => return,
        }
    };
}
pub(crate) use component_or_skip;
