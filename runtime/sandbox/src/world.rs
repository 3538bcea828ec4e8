//! Checks a component against the world `frozen-prefix`: its imports must be available and its exports complete.

use crate::bindings::FrozenPrefixPre;
use crate::error::SandboxError;
use crate::state::CallState;
use crate::text::{MESSAGE, one_line};
use std::collections::BTreeSet;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker};

const OWN_NAMESPACES: [&str; 2] = ["frostline:pushdown/", "wasi:nn/"];
const IMPORTS: [&str; 8] = [
    "frostline:pushdown/types@0.1.2",
    "frostline:pushdown/objects@0.1.2",
    "frostline:pushdown/images@0.1.2",
    "frostline:pushdown/log@0.1.2",
    "wasi:nn/tensor@0.2.0-rc-2024-10-28",
    "wasi:nn/graph@0.2.0-rc-2024-10-28",
    "wasi:nn/inference@0.2.0-rc-2024-10-28",
    "wasi:nn/errors@0.2.0-rc-2024-10-28",
];

const EXPORTS: [&str; 2] = ["describe", "extract"];

/// Import modules that wit-component provides: the world's own functions, the guest's exports, and a newer naming scheme
/// that can only be checked in the component.
const OWN_MODULES: [&str; 3] = ["$root", "[export]", "cm32p2"];

/// The warning for [`imports_load`].
pub(crate) const NO_LOAD: &str = "its call to wasi:nn `load` will be refused, since models cannot be loaded from bytes: use load-by-name for the \
    job's model";

/// The longest name in a message, in bytes.
const NAME: usize = 128;
/// The most foreign imports in a message: enough to see which library needs them.
const MAX_FOREIGN: usize = 12;

/// Links `component` with the host's side of the world.
///
/// # Errors
/// [`SandboxError::OtherWorld`], naming unavailable imports and missing exports.
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
            detail: one_line(&format!("{error:#}"), MESSAGE),
        })
}

/// The names of a component's imports.
pub(crate) fn imports(component: &Component) -> Vec<String> {
    let world = component.component_type();
    // Names of types stand for what an allowed interface defines; linking checks them.
    let needed = world
        .imports(component.engine())
        .filter(|(_, item)| !matches!(item.ty, ComponentItem::Type(_) | ComponentItem::Resource(_)));
    needed.map(|(name, _)| name.to_owned()).collect()
}

/// Whether a component imports `load` of `wasi:nn`, whose calls are refused.
pub(crate) fn imports_load(component: &Component) -> bool {
    imports_function(component, is_load)
}

/// Whether a component can load augmented pixels.
pub(crate) fn augments(component: &Component) -> bool {
    imports_function(component, |interface, function| {
        interface.starts_with("frostline:pushdown/images@")
            && matches!(function, "load-augmented" | "load-recipe")
    })
}

/// Whether a component imports a function that matches `is`, which takes the names of interface and function.
fn imports_function(component: &Component, is: impl Fn(&str, &str) -> bool) -> bool {
    let engine = component.engine();
    let world = component.component_type();
    world.imports(engine).any(|(name, item)| {
        let ComponentItem::ComponentInstance(interface) = item.ty else {
            return false;
        };
        interface.exports(engine).any(|(function, _)| is(name, function))
    })
}

/// Whether an interface is available to guests.
fn is_available(name: &str) -> bool {
    IMPORTS.contains(&name)
}

/// Of any version of `wasi:nn`, also that of core modules.
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
    names.loads = imports_load(component);
    names.check()
}

/// Imports and exports of a guest, checked against the world.
#[derive(Default)]
pub(crate) struct Names {
    foreign: BTreeSet<String>,
    exported: [bool; EXPORTS.len()],
    loads: bool,
}

impl Names {
    /// An import of a component.
    pub(crate) fn import(&mut self, name: &str) {
        if !is_available(name) {
            self.add_foreign(one_line(name, NAME));
        }
    }

    /// An import of a core module, whose names are wit-bindgen's.
    pub(crate) fn import_of_module(&mut self, module: &str, name: &str) {
        self.loads |= is_load(module, name);
        let known = is_available(module) || OWN_MODULES.iter().any(|own| module.starts_with(own));
        if !known {
            let (module, name) = (one_line(module, NAME), one_line(name, NAME));
            self.add_foreign(if name.is_empty() {
                module
            } else {
                format!("{module}.{name}")
            });
        }
    }

    /// An export of a component.
    pub(crate) fn export(&mut self, name: &str) {
        for (exported, expected) in self.exported.iter_mut().zip(EXPORTS) {
            *exported |= expected == name;
        }
    }

    fn add_foreign(&mut self, name: String) {
        if self.foreign.len() < MAX_FOREIGN {
            self.foreign.insert(name);
        }
    }

    /// # Errors
    /// [`SandboxError::OtherWorld`] where an import is foreign or an export is missing.
    pub(crate) fn check(self) -> Result<(), SandboxError> {
        let missing = EXPORTS
            .iter()
            .zip(self.exported)
            .filter(|(_, exported)| !exported);
        let exports: Vec<String> = missing.map(|(name, _)| (*name).to_owned()).collect();
        other_world(self.foreign.into_iter().collect(), exports, self.loads)
    }

    /// # Errors
    /// [`SandboxError::OtherWorld`] where an import is foreign.
    pub(crate) fn check_imports(self) -> Result<(), SandboxError> {
        other_world(self.foreign.into_iter().collect(), Vec::new(), self.loads)
    }
}

fn other_world(imports: Vec<String>, exports: Vec<String>, loads: bool) -> Result<(), SandboxError> {
    if imports.is_empty() && exports.is_empty() {
        return Ok(());
    }
    let other_version = imports
        .iter()
        .any(|name| OWN_NAMESPACES.iter().any(|namespace| name.starts_with(namespace)));
    let mut detail = Vec::new();
    if other_version {
        detail.push(format!("available imports: {}", IMPORTS.join(", ")));
    }
    if loads {
        detail.push(NO_LOAD.to_owned());
    }
    let detail = detail.join("; ");
    Err(SandboxError::OtherWorld {
        imports,
        exports,
        detail,
    })
}
