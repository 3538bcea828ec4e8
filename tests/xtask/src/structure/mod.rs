//! Metrics and limits of the product's crates: lines, files, functions, public names and import cycles.

mod cycles;
mod flags;
mod imports;
mod language;
mod measures;
mod source;

use crate::workspace::root;
use anyhow::{Result, bail};
use measures::{Lines, percentile};
use source::Crate;
use std::path::{Path, PathBuf};

/// Functions with more lines are counted as long.
const LONG: usize = 40;

/// Number of reused names that are printed.
const MOST_REUSED: usize = 12;

/// Folders of the product's crates.
const FOLDERS: [&str; 3] = ["host-ops", "models", "runtime"];

/// Prints the metrics of this workspace or another checkout.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let folder = arguments.first().map_or_else(root, PathBuf::from);
    let crates = crates(&folder)?;
    println!(
        "| crate | files | lines | code | test lines | longest file | functions over {LONG} | cycles | public names |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut whole = Lines::default();
    for each in &crates {
        let (lines, cycles) = (Lines::count(each), cycles::find(each));
        let sizes: Vec<String> = cycles.iter().map(|cycle| cycle.len().to_string()).collect();
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            each.name,
            lines.files.len(),
            lines.product(),
            lines.code,
            lines.tests,
            lines.files.iter().max().copied().unwrap_or_default(),
            lines.functions.iter().filter(|lines| **lines > LONG).count(),
            if sizes.is_empty() {
                "none".to_owned()
            } else {
                sizes.join(", ")
            },
            each.public_names(),
        );
        whole.add(lines);
    }
    let Lines { files, functions, .. } = &whole;
    println!();
    println!(
        "product {} lines, {} of them code (no comments, imports, empty lines); tests in src {}",
        whole.product(),
        whole.code,
        whole.tests
    );
    println!(
        "files: p50 {}, p90 {}",
        percentile(files, 50),
        percentile(files, 90)
    );
    println!(
        "functions: {}, p50 {}, p90 {}",
        functions.len(),
        percentile(functions, 50),
        percentile(functions, 90)
    );
    println!("tuple-lets: {}", whole.tuple_lets.len());
    let reused = whole.reused_names();
    let most: Vec<String> = reused
        .iter()
        .take(MOST_REUSED)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    println!(
        "names with more than one type: {} ({} types); most: {}",
        reused.len(),
        reused.iter().map(|(count, _)| count).sum::<usize>(),
        most.join(", ")
    );
    Ok(())
}

/// Refuses unclear names and phrases, flags of the command in libraries, import cycles,
/// and tuples of unrelated values that a `let` divides again.
pub(crate) fn check() -> Result<()> {
    let crates = crates(&root())?;
    language::check(&crates)?;
    flags::check(&crates)?;
    let mut violations = Vec::new();
    let mut whole = Lines::default();
    for each in &crates {
        whole.add(Lines::count(each));
        let cycles = cycles::find(each).into_iter();
        violations.extend(cycles.map(|cycle| format!("{}: {}", each.name, cycle.join(", "))));
    }
    if !violations.is_empty() {
        bail!(
            "import cycles; move shared items to a separate file:\n  {}",
            violations.join("\n  ")
        );
    }
    if !whole.tuple_lets.is_empty() {
        bail!("bind one value per `let`:\n  {}", whole.tuple_lets.join("\n  "));
    }
    Ok(())
}

fn crates(folder: &Path) -> Result<Vec<Crate>> {
    let mut found = Vec::new();
    for parent in FOLDERS {
        for entry in std::fs::read_dir(folder.join(parent))? {
            let path = entry?.path();
            if path.join("src/lib.rs").is_file() || path.join("src/main.rs").is_file() {
                let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
                found.push(Crate::read(name, &path.join("src"))?);
            }
        }
    }
    found.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(found)
}
