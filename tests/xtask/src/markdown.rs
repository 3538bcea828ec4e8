//! Links in Markdown pages, except those in fenced blocks and code spans.

use anyhow::Result;
use std::path::{Component, Path, PathBuf};

/// Inline link: `[text](target)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    /// Byte offset of the opening `[`.
    start: usize,
    /// Byte offset after the closing `)`.
    end: usize,
    pub(crate) text: &'a str,
    pub(crate) target: &'a str,
}

/// Returns the page's links in order.
pub(crate) fn links(page: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    let mut fenced = false;
    let mut offset = 0;
    for line in page.split_inclusive('\n') {
        if is_fence(line) {
            fenced = !fenced;
        } else if !fenced {
            links_of_line(line, offset, &mut found);
        }
        offset += line.len();
    }
    found
}

/// True if a line opens or closes a fenced block.
pub(crate) fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

fn links_of_line<'a>(line: &'a str, offset: usize, found: &mut Vec<Link<'a>>) {
    let mut open = Vec::new();
    let mut code = false;
    for (at, character) in line.char_indices() {
        match character {
            '`' => code = !code,
            '[' if !code => open.push(at),
            ']' if !code => {
                if let Some(start) = open.pop()
                    && let Some(text) = line.get(start + 1..at)
                    && let Some(rest) = line.get(at + 1..).and_then(|rest| rest.strip_prefix('('))
                    && let Some((target, _)) = rest.split_once(')')
                {
                    found.push(Link {
                        start: offset + start,
                        end: offset + at + "](".len() + target.len() + ")".len(),
                        text,
                        target,
                    });
                }
            }
            _ => {}
        }
    }
}

/// Replaces each link target by the result of `replace`. If the result is `None`, only the link's text
/// remains.
///
/// # Errors
/// Returns the first error of `replace`.
pub(crate) fn replace_targets(
    page: &str,
    mut replace: impl FnMut(&str) -> Result<Option<String>>,
) -> Result<String> {
    let mut replaced = String::with_capacity(page.len());
    let mut done = 0;
    for link in links(page) {
        replaced.push_str(page.get(done..link.start).unwrap_or_default());
        match replace(link.target)? {
            Some(target) => replaced.push_str(&format!("[{}]({target})", link.text)),
            None => replaced.push_str(link.text),
        }
        done = link.end;
    }
    replaced.push_str(page.get(done..).unwrap_or_default());
    Ok(replaced)
}

/// True if a target names a file of the repository or a heading.
pub(crate) fn is_relative(target: &str) -> bool {
    !target.contains(':')
}

/// Resolves a relative target to a path from the repository's root. A target that is only a heading resolves
/// to `page`.
pub(crate) fn resolve(page: &Path, target: &str) -> PathBuf {
    let (path, _) = target.split_once('#').unwrap_or((target, ""));
    if path.is_empty() {
        return page.to_path_buf();
    }
    let mut resolved = page.parent().unwrap_or(Path::new("")).to_path_buf();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir => {
                resolved.pop();
            }
            _ => {}
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(page: &str) -> Vec<&str> {
        links(page).into_iter().map(|link| link.target).collect()
    }

    #[test]
    fn links_in_code_are_left_out() {
        let page = "[a](a.md) `[b](b.md)` [`c`](c.md#d)\n```sh\n[d](d.md)\n```\n![e](e.svg)\n";
        assert_eq!(targets(page), ["a.md", "c.md#d", "e.svg"]);
    }

    #[test]
    fn a_link_without_a_target_leaves_its_text() {
        let replace = |target: &str| Ok((target == "a.md").then(|| "b.md".to_owned()));
        let replaced = replace_targets("see [a](a.md), ![c](c.svg) and [d](d).", replace).unwrap();
        assert_eq!(replaced, "see [a](b.md), !c and d.");
    }

    #[test]
    fn a_target_is_resolved_from_its_page() {
        let page = Path::new("runtime/docs/capacity.md");
        assert_eq!(
            resolve(page, "../deploy/README.md#image"),
            Path::new("runtime/deploy/README.md")
        );
        assert_eq!(resolve(page, "#balance"), page);
    }
}
