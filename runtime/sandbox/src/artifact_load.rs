//! The only `unsafe` code: machine code becomes a component.
//!
//! Contract: [`Component::deserialize`] runs whatever its bytes say, so they must be what the engine of this very host
//! serialized. [`Compiled`] stands for that. It is made in three ways: by the engine of this process; by a child process
//! that this host started from its own program and whose answer came through a pipe that nobody else holds; and from a
//! file, when the keyed hash in front of the bytes is right. The key (`frostline-sealed`)
//! is used for nothing but code that was made in one of the first two ways. wasmtime itself refuses artifacts of another version or configuration.

use frostline_sealed::{PrivateFolder, TAG};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Machine code that this host's engine serialized.
pub(crate) struct Compiled(Vec<u8>);

impl Compiled {
    /// Compiles a component.
    pub(crate) fn compile(engine: &Engine, component: &[u8]) -> wasmtime::Result<Self> {
        engine.precompile_component(component).map(Self)
    }

    /// The answer of a child process of this host, which runs [`Self::compile`].
    pub(crate) fn from_child(code: Vec<u8>) -> Self {
        Self(code)
    }

    /// The code in `sealed`, if it was sealed for `folder` as `name`.
    pub(crate) fn unseal(mut sealed: Vec<u8>, folder: &PrivateFolder, name: &str) -> Option<Self> {
        let (tag, code) = sealed.split_at_checked(TAG)?;
        let mut hash = folder.hash(name).ok()?;
        hash.update(code);
        if !hash.is(tag) {
            return None;
        }
        sealed.drain(..TAG);
        Some(Self(sealed))
    }

    /// The code as bytes that [`Self::unseal`] accepts under the same `name` in the same `folder`.
    pub(crate) fn seal(&self, folder: &PrivateFolder, name: &str) -> Option<Vec<u8>> {
        let mut hash = folder.hash(name).ok()?;
        hash.update(&self.0);
        Some([hash.tag().as_slice(), self.0.as_slice()].concat())
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
