//! Calls that the compiler cannot check: loading machine code as a component, and a function of glibc. This is
//! the only file of the product with `unsafe` code.
//!
//! Contract of machine code: [`Component::deserialize`] executes whatever its bytes contain, so they must have been
//! serialized by the engine of this host. [`Compiled`] represents such bytes. There are three sources:
//! - the engine of this process
//! - the answer of a child process that this host started from its own program, read from a private pipe
//! - a file with a valid keyed hash; the key (`frostline-sealed`) is used only for code from the other two
//!   sources
//!
//! In addition, wasmtime rejects artifacts of another version or configuration.

use frostline_sealed::{PrivateFolder, TAG};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Machine code that this host's engine serialized.
pub(crate) struct Compiled(Vec<u8>);

impl Compiled {
    pub(crate) fn compile(engine: &Engine, component: &[u8]) -> wasmtime::Result<Self> {
        engine.precompile_component(component).map(Self)
    }

    /// Wraps the answer of a child process of this host that runs [`Self::compile`].
    pub(crate) fn from_child(code: Vec<u8>) -> Self {
        Self(code)
    }

    /// Returns the code in `sealed` if it was sealed for `folder` and `name`.
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

    /// Returns the code in the form that [`Self::unseal`] accepts for the same `folder` and `name`.
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
        // SAFETY: by the contract above, an engine of this host serialized these bytes and they are
        // unaltered.
        unsafe { Component::deserialize(engine, &self.0) }
    }
}

/// Returns free memory of this process to the system, except the smallest amounts.
///
/// glibc returns only the end of a heap by itself, so a single block that stays allocated keeps everything below
/// it. Searching all heaps takes milliseconds, and other threads that need memory wait. Other C libraries do
/// not need this call, which does nothing there.
#[cfg_attr(all(target_os = "linux", target_env = "gnu"), allow(unsafe_code))]
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function has no preconditions, and locks every heap that it changes.
    unsafe {
        libc::malloc_trim(0);
    }
}
