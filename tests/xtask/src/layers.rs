//! Checks the layers of the product's crates, which the table of crates in `runtime/docs/architecture.md` defines.

use std::collections::{BTreeMap, BTreeSet};

/// Page with the table of crates.
pub(crate) const PAGE: &str = "runtime/docs/architecture.md";

/// Folder of crates without a layer, which can depend on all others.
const TESTS: &str = "tests/";

/// Returns the dependencies that the layers do not allow, and differences between the table in `page` and the
/// workspace. `folders` contains the folder of each crate of the workspace by package name, and `graph` the
/// dependencies of each package without development dependencies.
pub(crate) fn violations(
    page: &str,
    folders: &BTreeMap<String, String>,
    graph: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<String> {
    let rows = rows(page);
    let mut violations = Vec::new();
    if !rows.is_sorted_by_key(|(_, layer)| layer) {
        violations.push(format!("{PAGE}: the crates are not in the order of their layers"));
    }
    let layers: BTreeMap<&str, u32> = rows.into_iter().collect();
    let existing: BTreeSet<&str> = folders.values().map(String::as_str).collect();
    for folder in layers.keys().filter(|folder| !existing.contains(*folder)) {
        violations.push(format!("{PAGE}: no crate is in {folder}"));
    }
    for (name, folder) in folders.iter().filter(|(_, folder)| !folder.starts_with(TESTS)) {
        let Some(layer) = layers.get(folder.as_str()) else {
            violations.push(format!("{PAGE}: {folder} has no layer"));
            continue;
        };
        for used in graph.get(name).into_iter().flatten() {
            let Some(used) = folders.get(used) else {
                continue;
            };
            match layers.get(used.as_str()) {
                Some(lower) if lower < layer => {}
                Some(other) => violations.push(format!(
                    "{folder} (layer {layer}) depends on {used} (layer {other}); a crate can only depend on lower layers"
                )),
                None => violations.push(format!("{folder} depends on {used}, which has no layer")),
            }
        }
    }
    violations
}

/// Parses the folders and layers in the first two columns of the table, in its order.
fn rows(page: &str) -> Vec<(&str, u32)> {
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let layer = cells.next()?.parse().ok()?;
        let folder = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((folder, layer))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "| layer | crate | purpose |\n|---|---|---|\n| 1 | `a` | x |\n| 2 | `b` | y |\n| 2 | `c` | z |\n";

    /// Returns the violations of `page` in a workspace with the crates `a`, `b`, `c` and `tests/t` and these
    /// dependencies.
    fn check(page: &str, dependencies: &[(&str, &str)]) -> Vec<String> {
        let crates = [("pa", "a"), ("pb", "b"), ("pc", "c"), ("pt", "tests/t")];
        let folders = crates.map(|(name, folder)| (name.to_owned(), folder.to_owned()));
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (user, used) in dependencies {
            graph
                .entry((*user).to_owned())
                .or_default()
                .insert((*used).to_owned());
        }
        violations(page, &folders.into(), &graph)
    }

    #[test]
    fn lower_layers_and_other_packages_are_allowed() {
        let allowed = [("pb", "pa"), ("pc", "pa"), ("pb", "serde"), ("pt", "pc")];
        assert_eq!(check(TABLE, &allowed), [""; 0]);
    }

    #[test]
    fn the_same_layer_a_higher_layer_and_tests_are_refused() {
        let refused = [
            (
                ("pb", "pc"),
                "b (layer 2) depends on c (layer 2); a crate can only depend on lower layers",
            ),
            (
                ("pa", "pb"),
                "a (layer 1) depends on b (layer 2); a crate can only depend on lower layers",
            ),
            (("pa", "pt"), "a depends on tests/t, which has no layer"),
        ];
        for (dependency, expected) in refused {
            assert_eq!(check(TABLE, &[dependency]), [expected]);
        }
    }

    #[test]
    fn the_table_lists_all_crates_in_the_order_of_their_layers() {
        let page = "| 2 | `b` | y |\n| 1 | `a` | x |\n| 2 | `d` | z |\n";
        let expected = [
            "the crates are not in the order of their layers",
            "no crate is in d",
            "c has no layer",
        ];
        assert_eq!(check(page, &[]), expected.map(|text| format!("{PAGE}: {text}")));
    }
}
