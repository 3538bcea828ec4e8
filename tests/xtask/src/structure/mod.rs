//! What the code is like from outside: lines, files, functions, names that are public, and files that import each other in a circle.

mod circles;
mod imports;
mod measures;
mod source;

use crate::workspace::root;
use anyhow::{Result, bail};
use measures::{Lines, MOST_LINES, MOST_PARAMETERS, Unwieldy, percentile};
use source::Crate;
use std::path::{Path, PathBuf};

/// Files that may import each other in a circle. Three still fit on a screen.
const CIRCLE: usize = 3;

/// Lines of a function that is read at one glance.
const LONG: usize = 40;

/// Folders that hold the product's crates.
const ROOMS: [&str; 3] = ["host-ops", "models", "runtime"];

/// Prints the figures of the workspace, or of another copy of it.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let folder = arguments.first().map_or_else(root, PathBuf::from);
    let crates = crates(&folder)?;
    println!(
        "| crate | files | lines | code | tests' | longest file | functions over {LONG} | circles | public names |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut whole = Lines::default();
    for each in &crates {
        let (lines, circles) = (Lines::of(each), circles::of(each));
        let sizes: Vec<String> = circles.iter().map(|circle| circle.len().to_string()).collect();
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
    let count = |beyond: fn(&Unwieldy) -> bool| whole.unwieldy.iter().filter(|each| beyond(each)).count();
    println!(
        "functions of more than {MOST_LINES} lines: {}; of more than {MOST_PARAMETERS} parameters: {}",
        count(|each| each.lines > MOST_LINES),
        count(|each| each.parameters > MOST_PARAMETERS)
    );
    for each in &whole.unwieldy {
        println!(
            "  {}: {} lines, {} parameters",
            each.name, each.lines, each.parameters
        );
    }
    Ok(())
}

/// Functions of more than [`MOST_PARAMETERS`] parameters that there may be.
const MANY_PARAMETERS: usize = 10;

/// Refuses circles of more than [`CIRCLE`] files, functions of more than [`MOST_LINES`] lines, and many of more than [`MOST_PARAMETERS`]
/// parameters.
pub(crate) fn check() -> Result<()> {
    let mut broken = Vec::new();
    let mut whole = Lines::default();
    for each in crates(&root())? {
        whole.add(Lines::of(&each));
        let large = circles::of(&each)
            .into_iter()
            .filter(|circle| circle.len() > CIRCLE);
        broken.extend(large.map(|circle| format!("{}: {}", each.name, circle.join(", "))));
    }
    if !broken.is_empty() {
        bail!(
            "more than {CIRCLE} files import each other in a circle; move what they share into a file of its own:\n  {}",
            broken.join("\n  ")
        );
    }
    let wide = whole
        .unwieldy
        .iter()
        .filter(|each| each.parameters > MOST_PARAMETERS)
        .count();
    let refused = whole
        .unwieldy
        .iter()
        .filter(|each| each.lines > MOST_LINES || wide > MANY_PARAMETERS);
    let refused: Vec<&str> = refused.map(|each| each.name.as_str()).collect();
    if !refused.is_empty() {
        bail!(
            "functions have more than {MOST_LINES} lines, or more than {MANY_PARAMETERS} of them more than {MOST_PARAMETERS} parameters:\n  {}",
            refused.join("\n  ")
        );
    }
    Ok(())
}

fn crates(folder: &Path) -> Result<Vec<Crate>> {
    let mut found = Vec::new();
    for room in ROOMS {
        for entry in std::fs::read_dir(folder.join(room))? {
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
