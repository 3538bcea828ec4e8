//! Fuzz target for the check of a guest's bytes before compilation.

use frostline_sandbox::{SandboxConfig, SandboxError, component};
use std::borrow::Cow;

/// Checks the bytes like a host and converts core modules to components.
///
/// # Panics
/// Panics if accepted bytes are not WebAssembly, or a converted component is refused for a reason other than
/// missing exports.
pub fn upload_validation(data: &[u8]) {
    let config = SandboxConfig::default();
    let Ok(taken) = component(data, &config) else {
        return;
    };
    assert!(
        taken.starts_with(b"\0asm"),
        "accepted bytes without WebAssembly header"
    );
    if let Cow::Owned(made) = taken {
        // Missing exports are detected only in components.
        let again = component(&made, &config);
        let known = matches!(again, Ok(Cow::Borrowed(_)) | Err(SandboxError::OtherWorld { .. }));
        assert!(known, "{:?}", again.err());
    }
}

/// Returns the stock guest, minimal modules and components, a section with an invalid length, and text.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let stock = include_bytes!("../../../guest/prefix/prefix.wasm");
    let short: [&[u8]; 6] = [
        b"\0asm\x01\0\0\0",
        b"\0asm\x0d\0\x01\0",
        b"\0asm\x01\0\0\0\x01\xff\xff\xff\xff\x0f",
        b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x05\x01\x01f\0\0\x0a\x04\x01\x02\0\x0b",
        b"(module)",
        b"\x7fELF",
    ];
    let short = short.into_iter().map(<[u8]>::to_vec);
    short.chain([stock.to_vec()]).collect()
}
