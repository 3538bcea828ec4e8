//! Files that import each other in a circle.

use super::imports;
use super::source::{Crate, Module};
use std::collections::{BTreeMap, BTreeSet};

/// The circles of a crate, the largest first, each by its files' modules.
pub(crate) fn of(of: &Crate) -> Vec<Vec<String>> {
    let arrows = imports::of(of);
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        arrows.keys().map(|from| (from, reach(&arrows, from))).collect();
    let mut circles = BTreeSet::new();
    for (from, to) in &reached {
        let back = to
            .iter()
            .filter(|to| reached.get(**to).is_some_and(|back| back.contains(from)));
        let circle: BTreeSet<&Module> = back.copied().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let mut circles: Vec<Vec<String>> = circles
        .into_iter()
        .map(|circle| circle.into_iter().map(shown).collect())
        .collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reach<'a>(arrows: &'a BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&Module> = arrows.get(from).into_iter().flatten().collect();
    while let Some(module) = waiting.pop() {
        if reached.insert(module) {
            waiting.extend(arrows.get(module).into_iter().flatten());
        }
    }
    reached
}

fn shown(module: &Module) -> String {
    if module.is_empty() {
        "lib".to_owned()
    } else {
        module.join("::")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: [(&str, &str); 4]) -> Vec<Vec<String>> {
        let mut whole = Crate::default();
        for (module, text) in files {
            let module = module.split_terminator("::").map(str::to_owned).collect();
            whole.parse(module, text.to_owned()).unwrap();
        }
        super::of(&whole)
    }

    #[test]
    fn files_that_take_names_from_each_other_are_a_circle_however_they_take_them() {
        let found = circles([
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
    fn what_hands_names_on_and_what_is_for_tests_ties_nothing() {
        let found = circles([
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
