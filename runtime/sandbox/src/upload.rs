//! Converts uploaded bytes to a component.

use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::inspection;
use std::borrow::Cow;

/// Magic number of WebAssembly binaries. Two bytes of version and two bytes that distinguish modules from
/// components follow.
const MAGIC: &[u8] = b"\0asm";
const CORE_MODULE: [u8; 4] = [1, 0, 0, 0];

/// Returns the component that [`Sandbox::prepare`](crate::Sandbox::prepare) compiles. Components are returned
/// unchanged. Core modules are converted, based on the interface that the SDK stored in a custom section.
///
/// # Errors
/// Returns [`SandboxError::NotAGuest`], [`SandboxError::GuestTooLarge`], [`SandboxError::TooComplex`] or
/// [`SandboxError::OtherWorld`] if the bytes are not an acceptable guest.
pub fn component<'a>(bytes: &'a [u8], config: &SandboxConfig) -> Result<Cow<'a, [u8]>, SandboxError> {
    check(bytes, config)?;
    into_component(bytes)
}

/// Checks size, format and parts without building a component.
pub(crate) fn check(bytes: &[u8], config: &SandboxConfig) -> Result<(), SandboxError> {
    if bytes.len() > config.upload_bytes {
        return Err(SandboxError::GuestTooLarge {
            bytes: bytes.len(),
            allowed: config.upload_bytes,
        });
    }
    if version(bytes).is_none() {
        return Err(SandboxError::not_a_guest(describe_other(bytes)));
    }
    inspection::inspect(bytes, config)
}

/// Converts bytes that passed [`check`] to a component.
pub(crate) fn into_component(bytes: &[u8]) -> Result<Cow<'_, [u8]>, SandboxError> {
    match version(bytes) {
        Some(&CORE_MODULE) => componentise(bytes).map(Cow::Owned),
        _ => Ok(Cow::Borrowed(bytes)),
    }
}

fn version(bytes: &[u8]) -> Option<&[u8; 4]> {
    bytes.strip_prefix(MAGIC)?.first_chunk()
}

fn componentise(module: &[u8]) -> Result<Vec<u8>, SandboxError> {
    let encoded = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|mut encoder| encoder.encode());
    encoded.map_err(|error| {
        SandboxError::not_a_guest(format!(
            "a core WebAssembly module without the guest interface ({}); build it with the crate frostline-guest for \
             wasm32-unknown-unknown",
            error.root_cause()
        ))
    })
}

fn describe_other(bytes: &[u8]) -> String {
    let what = match bytes {
        [] => "empty file",
        [0x7f, b'E', b'L', b'F', ..] => {
            "a native executable, not WebAssembly; build for wasm32-unknown-unknown"
        }
        _ if std::str::from_utf8(bytes).is_ok_and(|text| text.trim_start().starts_with('(')) => {
            "WebAssembly text format; send the binary"
        }
        _ if std::str::from_utf8(bytes).is_ok() => "a text file; send a WebAssembly component or core module",
        _ => "not a WebAssembly binary; send a component or core module",
    };
    what.to_owned()
}
