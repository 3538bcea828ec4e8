//! Checks Markdown pages: relative links name existing files and headings, blank lines do not divide tables, and the
//! tests run all blocks of commands and of Rust.

use crate::markdown::{is_fence, is_relative, links, resolve};
use crate::workspace::{output, root};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tests that run the blocks of commands of the pages they name.
const PAGE_TESTS: &str = "tests/e2e/tests/e2e/pages.rs";

/// Start of the comment before a block of commands or of Rust that the tests do not run. The reason follows.
const NOT_RUN: &str = "<!-- not run: ";

/// Checks every tracked page.
///
/// # Errors
/// Lists all broken links, all table rows outside of tables, and all blocks of commands or of Rust that no test runs.
pub(crate) fn check() -> Result<()> {
    let listed = output(Command::new("git").args(["ls-files", "*.md"]).current_dir(root()))?;
    let page_tests = read(Path::new(PAGE_TESTS))?;
    let mut broken = Vec::new();
    for page in listed.lines().map(Path::new) {
        let text = read(page)?;
        for link in links(&text).into_iter().filter(|link| is_relative(link.target)) {
            if let Some(problem) = problem(page, link.target)? {
                broken.push(format!("{}: {}: {problem}", page.display(), link.target));
            }
        }
        if !page_tests.contains(&format!("\"{}\"", page.display())) {
            broken.extend(unmarked_blocks(&text, |language| language == "sh").iter().map(|line| {
                format!("{}:{line}: no test runs this block; run the page in {PAGE_TESTS}, or write '{NOT_RUN}REASON -->' before it", page.display())
            }));
        }
        let tested = is_doc_tested(page);
        let untested = |language: &str| language.starts_with("rust") && !(tested && language == "rust");
        broken.extend(unmarked_blocks(&text, untested).iter().map(|line| {
            format!(
                "{}:{line}: no test runs this block; include the page in {}, or write '{NOT_RUN}REASON -->' before it",
                page.display(),
                library(page).display()
            )
        }));
        let rows = rows_outside_tables(&text);
        broken.extend(
            rows.iter()
                .map(|line| format!("{}:{line}: row outside of a table", page.display())),
        );
    }
    if !broken.is_empty() {
        bail!("broken pages:\n  {}", broken.join("\n  "));
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

/// Returns the line numbers, from 1, of blocks in a `language` that a test must run, without a reason not to run
/// them.
fn unmarked_blocks(page: &str, is_run: impl Fn(&str) -> bool) -> Vec<usize> {
    let lines: Vec<&str> = page.lines().map(str::trim_start).collect();
    let is_marked =
        |line: &str| line.starts_with(NOT_RUN) && line.ends_with(" -->") && line.len() > NOT_RUN.len() + 4;
    let before = std::iter::once("").chain(lines.iter().copied());
    let numbered = (1..).zip(before.zip(&lines));
    numbered
        .filter_map(|(number, (before, line))| {
            let language = line.strip_prefix("```")?;
            (is_run(language) && !is_marked(before)).then_some(number)
        })
        .collect()
}

/// Returns the library of which `page` is the README.
fn library(page: &Path) -> PathBuf {
    page.with_file_name("src").join("lib.rs")
}

/// True if the Rust blocks of a page are doc tests of the library next to it.
fn is_doc_tested(page: &Path) -> bool {
    let name = page.file_name().unwrap_or_default().to_string_lossy();
    let included = format!("#[cfg(doctest)]\n#[doc = include_str!(\"../{name}\")]");
    read(&library(page)).is_ok_and(|text| text.contains(&included))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_commands_needs_a_test_or_a_reason() {
        let page = "```sh\na\n```\n<!-- not run: needs a cluster -->\n```sh\nb\n```\n<!-- not run:  -->\n```sh\nc\n```\n";
        assert_eq!(unmarked_blocks(page, |language| language == "sh"), [1, 9]);
        assert_eq!(unmarked_blocks(page, |language| language == "rust"), [0; 0]);
    }

    #[test]
    fn the_readme_of_a_library_is_a_doc_test() {
        assert!(is_doc_tested(Path::new("models/graph/README.md")));
        assert!(!is_doc_tested(Path::new("models/graph/docs/admission.md")));
        assert!(!is_doc_tested(Path::new("README.md")));
    }

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
