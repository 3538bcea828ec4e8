//! Checks Markdown pages: relative links name existing files and headings, and blank lines do not divide
//! tables.

use crate::markdown::{is_fence, is_relative, links, resolve};
use crate::workspace::{output, root};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Checks every tracked page.
///
/// # Errors
/// Lists all broken links and all table rows outside of tables.
pub(crate) fn check() -> Result<()> {
    let listed = output(Command::new("git").args(["ls-files", "*.md"]).current_dir(root()))?;
    let mut broken = Vec::new();
    for page in listed.lines().map(Path::new) {
        let text = read(page)?;
        for link in links(&text).into_iter().filter(|link| is_relative(link.target)) {
            if let Some(problem) = problem(page, link.target)? {
                broken.push(format!("{}: {}: {problem}", page.display(), link.target));
            }
        }
        let rows = rows_outside_tables(&text);
        broken.extend(
            rows.iter()
                .map(|line| format!("{}:{line}: row outside of a table", page.display())),
        );
    }
    if !broken.is_empty() {
        bail!("broken links and tables:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

/// Returns the reason a link of `page` is broken, or `None` if the link is valid.
fn problem(page: &Path, target: &str) -> Result<Option<&'static str>> {
    let file = resolve(page, target);
    if !root().join(&file).exists() {
        return Ok(Some("no such file"));
    }
    let heading = target.split_once('#').map(|(_, heading)| heading);
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    match heading {
        Some(heading) if is_page && !anchors(&read(&file)?).contains(heading) => Ok(Some("no such heading")),
        _ => Ok(None),
    }
}

fn read(page: &Path) -> Result<String> {
    std::fs::read_to_string(root().join(page)).with_context(|| format!("cannot read {}", page.display()))
}

/// Returns the anchors of all headings in a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut fenced = false;
    for line in page.lines() {
        if is_fence(line) {
            fenced = !fenced;
        } else if !fenced && let Some((_, heading)) = line.split_once("# ").filter(|_| line.starts_with('#'))
        {
            let anchor = anchor(heading);
            let again = (1..).map(|number| format!("{anchor}-{number}"));
            let free = std::iter::once(anchor.clone())
                .chain(again)
                .find(|name| !anchors.contains(name));
            anchors.extend(free);
        }
    }
    anchors
}

/// Returns a heading's anchor on GitHub and in mdBook.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    heading
        .chars()
        .filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'))
        .map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

/// Returns the line numbers, from 1, of table rows after a blank line that do not begin a table. Pages show
/// them as text.
fn rows_outside_tables(page: &str) -> Vec<usize> {
    let mut fenced = false;
    let mut lines: Vec<&str> = page
        .lines()
        .map(|line| {
            fenced ^= is_fence(line);
            if fenced { "```" } else { line }
        })
        .collect();
    lines.push("");
    let is_delimiter =
        |line: &str| line.contains('-') && line.chars().all(|character| "|-: ".contains(character));
    let is_outside =
        |lines: &[&str]| matches!(lines, ["", row, after] if row.starts_with('|') && !is_delimiter(after));
    let numbered = (2..).zip(lines.windows(3));
    numbered
        .filter_map(|(number, lines)| is_outside(lines).then_some(number))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_names_that_links_use() {
        let page = "# Tar shards\n```sh\n# a comment\n```\n## `int8`, and f16\n## Run it\n## Run it\n";
        let expected = ["int8-and-f16", "run-it", "run-it-1", "tar-shards"];
        assert!(anchors(page).iter().eq(expected));
    }

    #[test]
    fn a_row_after_a_blank_line_belongs_to_no_table() {
        let page = "\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n| 3 | 4 |\n```\n\n| 5 |\n```\n";
        assert_eq!(rows_outside_tables(page), [6]);
    }
}
