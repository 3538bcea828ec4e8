//! The one place with `unsafe`: machine code becomes a component.
//!
//! Contract: [`Component::deserialize`] runs whatever its bytes say, so they must be what the engine of this very host
//! serialized. [`Compiled`] stands for that. It is made in three ways: by the engine of this process; by a child process
//! that this host started from its own program and whose answer came through a pipe that nobody else holds; and from a
//! file, when the keyed hash in front of the bytes is right. The key lies in a file that only this host's user can read, and
//! is used for nothing but code that was made in one of the first two ways; whoever can forge a hash can read that file and
//! needs no forgery. wasmtime itself refuses artefacts of another version or configuration.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

const TAG: usize = 32;

/// The host's own key.
pub(crate) type Key = [u8; 32];

/// Machine code that this host's engine serialized.
pub(crate) struct Compiled(Vec<u8>);

impl Compiled {
    /// Compiles a component.
    pub(crate) fn by(engine: &Engine, component: &[u8]) -> wasmtime::Result<Self> {
        engine.precompile_component(component).map(Self)
    }

    /// What a child process of this host answered, which runs [`Self::by`].
    pub(crate) fn by_child(code: Vec<u8>) -> Self {
        Self(code)
    }

    /// The code in `sealed`, if it was sealed with `key` as `name`.
    pub(crate) fn unseal(mut sealed: Vec<u8>, key: &Key, name: &str) -> Option<Self> {
        let (tag, code) = sealed.split_at_checked(TAG)?;
        keyed_hash(key, name, code)?.verify_slice(tag).ok()?;
        sealed.drain(..TAG);
        Some(Self(sealed))
    }

    /// The code as bytes that [`Self::unseal`] accepts under the same `name` and `key`.
    pub(crate) fn seal(&self, key: &Key, name: &str) -> Option<Vec<u8>> {
        let tag = keyed_hash(key, name, &self.0)?.finalize().into_bytes();
        Some([tag.as_slice(), self.0.as_slice()].concat())
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The component, ready to run.
    #[allow(unsafe_code)]
    pub(crate) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: by the contract above these are bytes that this host's engine serialized, unaltered.
        unsafe { Component::deserialize(engine, &self.0) }
    }
}

fn keyed_hash(key: &Key, name: &str, code: &[u8]) -> Option<Hmac<Sha256>> {
    let mut hash = Hmac::<Sha256>::new_from_slice(key).ok()?;
    hash.update(&u64::try_from(name.len()).ok()?.to_le_bytes());
    hash.update(name.as_bytes());
    hash.update(code);
    Some(hash)
}
