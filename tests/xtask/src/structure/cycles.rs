//! Finds import cycles between files of a crate.

use super::source::{Crate, Module};
use std::collections::{BTreeMap, BTreeSet};

/// Finds import cycles, longest first. Each cycle is a list of modules.
pub(crate) fn find(krate: &Crate) -> Vec<Vec<String>> {
    let imports = super::imports::by_file(krate);
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|from| (from, reach(&imports, from))).collect();
    let mut cycles = BTreeSet::new();
    for (from, to) in &reached {
        let back = to
            .iter()
            .filter(|to| reached.get(**to).is_some_and(|back| back.contains(from)));
        let cycle: BTreeSet<&Module> = back.copied().collect();
        if cycle.len() > 1 {
            cycles.insert(cycle);
        }
    }
    let mut cycles: Vec<Vec<String>> = cycles
        .into_iter()
        .map(|cycle| cycle.into_iter().map(display_name).collect())
        .collect();
    cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    cycles
}

fn reach<'a>(imports: &'a BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&Module> = imports.get(from).into_iter().flatten().collect();
    while let Some(module) = waiting.pop() {
        if reached.insert(module) {
            waiting.extend(imports.get(module).into_iter().flatten());
        }
    }
    reached
}

fn display_name(module: &Module) -> String {
    if module.is_empty() {
        "lib".to_owned()
    } else {
        module.join("::")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: [(&str, &str); 4]) -> Vec<Vec<String>> {
        let mut whole = Crate::default();
        for (module, text) in files {
            let module = module.split_terminator("::").map(str::to_owned).collect();
            whole.parse(module, text.to_owned()).unwrap();
        }
        super::find(&whole)
    }

    #[test]
    fn mutual_imports_are_a_cycle_in_any_form() {
        let found = cycles([
            ("", "mod rooms; mod tools; pub use rooms::door::Door;"),
            ("rooms", "pub(crate) mod door;"),
            (
                "rooms::door",
                "use crate::tools; pub struct Door; fn open() { tools::turn() }",
            ),
            ("tools", "pub fn turn() { assert!(matches!(x(), crate::Door)) }"),
        ]);
        assert_eq!(found, [["rooms::door", "tools"]]);
    }

    #[test]
    fn reexports_and_tests_form_no_cycles() {
        let found = cycles([
            ("", "mod rooms; mod tools; pub use rooms::Door;"),
            ("rooms", "mod door; pub use door::Door;"),
            ("rooms::door", "use crate::tools::turn; pub struct Door;"),
            (
                "tools",
                "pub fn turn() {} #[cfg(test)] mod tests { use crate::Door; }",
            ),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
