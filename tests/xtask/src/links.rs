//! Checks the relative links of pages: the file exists, and so does the heading.

use crate::markdown::{is_fence, is_relative, links, resolve};
use crate::workspace::{output, root};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Checks every tracked page.
///
/// # Errors
/// Lists the broken links with their pages.
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
    }
    if !broken.is_empty() {
        bail!("broken links:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

/// Why a link of `page` is broken, if it is.
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

/// The anchors of a page's headings.
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

/// The anchor that GitHub and mdBook give a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    heading
        .chars()
        .filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'))
        .map(|character| if character == ' ' { '-' } else { character })
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
}
