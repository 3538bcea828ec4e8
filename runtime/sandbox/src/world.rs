//! Whether a component is of the world `frozen-prefix`: it imports only what guests get and exports what guests give.

use crate::bindings::FrozenPrefixPre;
use crate::error::SandboxError;
use crate::state::CallState;
use crate::text::{MESSAGE, one_line};
use std::collections::BTreeSet;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker};

const NEAR: [&str; 2] = ["frostline:pushdown/", "wasi:nn/"];
const IMPORTS: [&str; 8] = [
    "frostline:pushdown/types@0.1.1",
    "frostline:pushdown/objects@0.1.1",
    "frostline:pushdown/images@0.1.1",
    "frostline:pushdown/log@0.1.1",
    "wasi:nn/tensor@0.2.0-rc-2024-10-28",
    "wasi:nn/graph@0.2.0-rc-2024-10-28",
    "wasi:nn/inference@0.2.0-rc-2024-10-28",
    "wasi:nn/errors@0.2.0-rc-2024-10-28",
];

/// The end of our interfaces' names now, and the earlier ones, to which each later version only added: guests of them run as they are.
const VERSION: &str = "@0.1.1";
const EARLIER: [&str; 1] = ["@0.1.0"];

const EXPORTS: [&str; 2] = ["describe", "extract"];

/// How modules that wit-component itself provides are called: the world's own functions, what the guest exports, and a
/// newer way of naming which shows only once the module is a component.
const OWN_MODULES: [&str; 3] = ["$root", "[export]", "cm32p2"];

/// What is said of [`loads`].
pub(crate) const NO_LOAD: &str = "its `load` of wasi:nn is refused, since hosts take no model bytes from guests: the job's network is there by \
    load-by-name";

/// The longest name that is repeated, in bytes.
const NAME: usize = 128;
/// Foreign imports that are named at most: enough to see which library wants them.
const FOREIGN: usize = 12;

/// Links `component` with the host's side of the world.
///
/// # Errors
/// [`SandboxError::OtherWorld`], naming every import a guest does not get and every export it lacks.
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

/// What a component imports, by name.
pub(crate) fn imports(component: &Component) -> Vec<String> {
    let world = component.component_type();
    // Names of types stand for what an allowed interface defines; linking checks them.
    let needed = world
        .imports(component.engine())
        .filter(|(_, item)| !matches!(item.ty, ComponentItem::Type(_) | ComponentItem::Resource(_)));
    needed.map(|(name, _)| name.to_owned()).collect()
}

/// Whether a component imports `load` of `wasi:nn`, which every call of is refused.
pub(crate) fn loads(component: &Component) -> bool {
    imports_one(component, is_load)
}

/// Whether a component can load augmented pixels.
pub(crate) fn augments(component: &Component) -> bool {
    imports_one(component, |interface, function| {
        interface.starts_with("frostline:pushdown/images@") && function == "load-augmented"
    })
}

/// Whether a component imports a function that is so, by the names of its interface and its own.
fn imports_one(component: &Component, is: impl Fn(&str, &str) -> bool) -> bool {
    let engine = component.engine();
    let world = component.component_type();
    world.imports(engine).any(|(name, item)| {
        let ComponentItem::ComponentInstance(interface) = item.ty else {
            return false;
        };
        interface.exports(engine).any(|(function, _)| is(name, function))
    })
}

/// Whether guests get an interface of this name.
fn is_offered(name: &str) -> bool {
    let of_now = |end| Some(format!("{}{VERSION}", name.strip_suffix(end)?));
    let mut names = EARLIER.into_iter().filter_map(of_now);
    IMPORTS.contains(&name) || names.any(|name| IMPORTS.contains(&name.as_str()))
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
    names.loads = loads(component);
    names.check()
}

/// Names seen at the outside of a guest, held against the world.
#[derive(Default)]
pub(crate) struct Names {
    foreign: BTreeSet<String>,
    given: [bool; EXPORTS.len()],
    loads: bool,
}

impl Names {
    /// An import of a component.
    pub(crate) fn import(&mut self, name: &str) {
        if !is_offered(name) {
            self.name_foreign(one_line(name, NAME));
        }
    }

    /// An import of a core module; its names are wit-bindgen's, and tell only where they come from.
    pub(crate) fn import_of_module(&mut self, module: &str, name: &str) {
        self.loads |= is_load(module, name);
        let known = is_offered(module) || OWN_MODULES.iter().any(|own| module.starts_with(own));
        if !known {
            let (module, name) = (one_line(module, NAME), one_line(name, NAME));
            self.name_foreign(if name.is_empty() {
                module
            } else {
                format!("{module}.{name}")
            });
        }
    }

    /// An export of a component.
    pub(crate) fn export(&mut self, name: &str) {
        for (given, wanted) in self.given.iter_mut().zip(EXPORTS) {
            *given |= wanted == name;
        }
    }

    fn name_foreign(&mut self, name: String) {
        if self.foreign.len() < FOREIGN {
            self.foreign.insert(name);
        }
    }

    /// # Errors
    /// [`SandboxError::OtherWorld`] where an import is foreign or an export is missing.
    pub(crate) fn check(self) -> Result<(), SandboxError> {
        let missing = EXPORTS.iter().zip(self.given).filter(|(_, given)| !given);
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
        .any(|name| NEAR.iter().any(|near| name.starts_with(near)));
    let mut detail = Vec::new();
    if other_version {
        detail.push(format!("this host offers {}", IMPORTS.join(", ")));
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
