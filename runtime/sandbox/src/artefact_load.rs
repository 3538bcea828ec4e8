//! The one place with `unsafe`: machine code from a file becomes a component.
//!
//! Contract: [`Component::deserialize`] runs whatever its bytes say, so they must be what this very host's engine
//! serialized. [`Verified`] stands for that: only [`Verified::check`] makes one, and only when the keyed hash in front of
//! the bytes is right. The key lies in a file that only this host's user can read, and is used for nothing but artefacts
//! that [`seal`] has just been given by the engine; whoever can forge a hash can read that file and needs no forgery.
//! wasmtime itself refuses artefacts of another version or configuration.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

const TAG: usize = 32;

/// The host's own key.
pub(crate) type Key = [u8; 32];

/// Bytes that this host's engine serialized.
pub(crate) struct Verified<'a>(&'a [u8]);

impl<'a> Verified<'a> {
    /// The artefact in `sealed`, if it was sealed with `key` as `name`.
    pub(crate) fn check(sealed: &'a [u8], key: &Key, name: &str) -> Option<Self> {
        let (tag, artefact) = sealed.split_at_checked(TAG)?;
        keyed_hash(key, name, artefact)?.verify_slice(tag).ok()?;
        Some(Self(artefact))
    }

    /// The component, ready to run.
    #[allow(unsafe_code)]
    pub(crate) fn load(self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: by the contract above these are bytes that `Component::serialize` made on this host, unaltered.
        unsafe { Component::deserialize(engine, self.0) }
    }
}

/// `component` as bytes that [`Verified::check`] accepts under the same `name` and `key`.
pub(crate) fn seal(component: &Component, key: &Key, name: &str) -> Option<Vec<u8>> {
    let artefact = component.serialize().ok()?;
    let tag = keyed_hash(key, name, &artefact)?.finalize().into_bytes();
    Some([tag.as_slice(), artefact.as_slice()].concat())
}

fn keyed_hash(key: &Key, name: &str, artefact: &[u8]) -> Option<Hmac<Sha256>> {
    let mut hash = Hmac::<Sha256>::new_from_slice(key).ok()?;
    hash.update(&u64::try_from(name.len()).ok()?.to_le_bytes());
    hash.update(name.as_bytes());
    hash.update(artefact);
    Some(hash)
}
