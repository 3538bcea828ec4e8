//! Whether a component is of the world `frozen-prefix`: it imports only what guests get and exports what guests give.

use crate::bindings::FrozenPrefixPre;
use crate::error::SandboxError;
use crate::state::CallState;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker};

const NEAR: [&str; 2] = ["frostline:pushdown/", "wasi:nn/"];
const IMPORTS: [&str; 8] = [
    "frostline:pushdown/types@0.1.0",
    "frostline:pushdown/objects@0.1.0",
    "frostline:pushdown/images@0.1.0",
    "frostline:pushdown/log@0.1.0",
    "wasi:nn/tensor@0.2.0-rc-2024-10-28",
    "wasi:nn/graph@0.2.0-rc-2024-10-28",
    "wasi:nn/inference@0.2.0-rc-2024-10-28",
    "wasi:nn/errors@0.2.0-rc-2024-10-28",
];
const EXPORTS: [&str; 2] = ["describe", "extract"];

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
            detail: format!("{error:#}"),
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

fn check_names(engine: &Engine, component: &Component) -> Result<(), SandboxError> {
    let world = component.component_type();
    let mut imports = imports(component);
    imports.retain(|name| !IMPORTS.contains(&name.as_str()));
    let missing = EXPORTS
        .into_iter()
        .filter(|name| world.get_export(engine, name).is_none());
    let exports: Vec<String> = missing.map(str::to_owned).collect();
    if imports.is_empty() && exports.is_empty() {
        return Ok(());
    }
    let other_version = imports
        .iter()
        .any(|name| NEAR.iter().any(|near| name.starts_with(near)));
    let detail = if other_version {
        format!("this host offers {}", IMPORTS.join(", "))
    } else {
        String::new()
    };
    Err(SandboxError::OtherWorld {
        imports,
        exports,
        detail,
    })
}
