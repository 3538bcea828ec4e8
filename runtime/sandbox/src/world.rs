//! Checks components against the world `frozen-prefix`. Imports must be available and exports complete.

use crate::bindings::FrozenPrefixPre;
use crate::error::SandboxError;
use crate::state::CallState;
use crate::text::{MAX_MESSAGE_BYTES, one_line};
use std::collections::BTreeSet;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker};

const OWN_NAMESPACES: [&str; 2] = ["frostline:pushdown/", "wasi:nn/"];
const IMPORTS: [&str; 10] = [
    "frostline:pushdown/types@0.2.0",
    "frostline:pushdown/tensors@0.2.0",
    "frostline:pushdown/objects@0.2.0",
    "frostline:pushdown/images@0.2.0",
    "frostline:pushdown/descriptions@0.2.0",
    "frostline:pushdown/log@0.2.0",
    "wasi:nn/tensor@0.2.0-rc-2024-10-28",
    "wasi:nn/graph@0.2.0-rc-2024-10-28",
    "wasi:nn/inference@0.2.0-rc-2024-10-28",
    "wasi:nn/errors@0.2.0-rc-2024-10-28",
];

/// Interface that every guest exports, with its functions `describe` and `extract`.
pub const EXPORT: &str = "frostline:pushdown/prefix@0.2.0";

/// Import modules handled by wit-component: functions of the world itself, exports of the guest, and a newer
/// naming scheme that can only be checked in the component.
const BUILTIN_MODULES: [&str; 3] = ["$root", "[export]", "cm32p2"];

/// Warning for [`imports_load`].
pub(crate) const LOAD_WARNING: &str = "its call to wasi:nn `load` will be refused, since models cannot be loaded from bytes: use load-by-name for the \
    job's model";

/// Maximum length of a name in a message in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Maximum number of unavailable imports in a message. Twelve are enough to recognize the library.
const MAX_UNAVAILABLE: usize = 12;

/// Links `component` with the host functions.
///
/// # Errors
/// Returns [`SandboxError::OtherWorld`] with unavailable imports and missing exports.
pub(crate) fn link(
    engine: &Engine,
    linker: &Linker<CallState>,
    component: &Component,
) -> Result<FrozenPrefixPre<CallState>, SandboxError> {
    check_names(engine, component)?;
    linker
        .instantiate_pre(component)
        .and_then(FrozenPrefixPre::new)
        .map_err(|error| SandboxError::OtherWorld {
            imports: Vec::new(),
            exports: Vec::new(),
            detail: one_line(&format!("{error:#}"), MAX_MESSAGE_BYTES),
        })
}

pub(crate) fn imports(component: &Component) -> Vec<String> {
    let world = component.component_type();
    // Type imports refer to types of available interfaces. Linking checks them.
    let needed = world
        .imports(component.engine())
        .filter(|(_, item)| !matches!(item.ty, ComponentItem::Type(_) | ComponentItem::Resource(_)));
    needed.map(|(name, _)| name.to_owned()).collect()
}

/// Returns true if the component imports `load` of `wasi:nn`. Calls of this function are refused.
pub(crate) fn imports_load(component: &Component) -> bool {
    let engine = component.engine();
    let world = component.component_type();
    world.imports(engine).any(|(name, item)| {
        let ComponentItem::ComponentInstance(interface) = item.ty else {
            return false;
        };
        interface
            .exports(engine)
            .any(|(function, _)| is_load(name, function))
    })
}

/// Returns true if guests may import the interface.
fn is_available(name: &str) -> bool {
    IMPORTS.contains(&name)
}

/// Returns true for `load` in any version of `wasi:nn`, including the one for core modules.
fn is_load(interface: &str, function: &str) -> bool {
    function == "load" && (interface.starts_with("wasi:nn/graph") || interface == "wasi_ephemeral_nn")
}

fn check_names(engine: &Engine, component: &Component) -> Result<(), SandboxError> {
    let mut names = Names::default();
    for name in imports(component) {
        names.import(&name);
    }
    for (name, _) in component.component_type().exports(engine) {
        names.export(name);
    }
    names.imports_nn_load = imports_load(component);
    names.check(true)
}

/// Imports and exports of a guest.
#[derive(Default)]
pub(crate) struct Names {
    unavailable: BTreeSet<String>,
    has_export: bool,
    imports_nn_load: bool,
}

impl Names {
    pub(crate) fn import(&mut self, name: &str) {
        if !is_available(name) {
            self.add_unavailable(one_line(name, MAX_NAME_BYTES));
        }
    }

    /// Records an import of a core module with wit-bindgen's naming.
    pub(crate) fn import_of_module(&mut self, module: &str, name: &str) {
        self.imports_nn_load |= is_load(module, name);
        let known = is_available(module) || BUILTIN_MODULES.iter().any(|own| module.starts_with(own));
        if !known {
            let module = one_line(module, MAX_NAME_BYTES);
            let name = one_line(name, MAX_NAME_BYTES);
            self.add_unavailable(if name.is_empty() {
                module
            } else {
                format!("{module}.{name}")
            });
        }
    }

    pub(crate) fn export(&mut self, name: &str) {
        self.has_export |= name == EXPORT;
    }

    fn add_unavailable(&mut self, name: String) {
        if self.unavailable.len() < MAX_UNAVAILABLE {
            self.unavailable.insert(name);
        }
    }

    /// Checks the imports, and the exports of a component.
    ///
    /// # Errors
    /// Returns [`SandboxError::OtherWorld`] if an import is unavailable or an export is missing.
    pub(crate) fn check(self, is_component: bool) -> Result<(), SandboxError> {
        let lacks_export = is_component && !self.has_export;
        if self.unavailable.is_empty() && !lacks_export {
            return Ok(());
        }
        let imports: Vec<String> = self.unavailable.into_iter().collect();
        let other_version = imports
            .iter()
            .any(|name| OWN_NAMESPACES.iter().any(|namespace| name.starts_with(namespace)));
        let mut detail = Vec::new();
        if other_version {
            detail.push(format!("available imports: {}", IMPORTS.join(", ")));
        }
        if self.imports_nn_load {
            detail.push(LOAD_WARNING.to_owned());
        }
        Err(SandboxError::OtherWorld {
            imports,
            exports: Vec::from_iter(lacks_export.then(|| EXPORT.to_owned())),
            detail: detail.join("; "),
        })
    }
}
