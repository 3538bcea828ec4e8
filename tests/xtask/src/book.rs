//! Assembles the documentation site: pages are stored next to the code, `runtime/docs/SUMMARY.md` lists them,
//! and mdBook renders them.
//!
//! Pages have the same paths below `target/book/src` as in the repository, so links between them remain
//! valid. Linked files are copied.

use crate::markdown::{is_relative, links, replace_targets, resolve};
use crate::workspace::{self, root, target};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUMMARY: &str = "runtime/docs/SUMMARY.md";

/// mdBook configuration. It disables preprocessors, because one renames README.md and breaks links, and smart
/// punctuation, because that alters flags.
const CONFIG: &str = r#"[book]
title = "Frostline"

[build]
build-dir = "site"
use-default-preprocessors = false

[output.html]
preferred-dark-theme = "navy"
no-section-label = true
smart-punctuation = false
additional-css = ["site.css"]

[output.html.fold]
enable = true
level = 0
"#;

/// Widens the content for tables.
const STYLE: &str = ":root { --content-max-width: 920px; }\n";

/// Runs `cargo xtask book`: assembles the pages and renders them if mdBook is installed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("book takes no arguments");
    }
    let book = target().join("book");
    let _ = fs::remove_dir_all(&book);
    let source = book.join("src");
    assemble(&source)?;
    fs::write(book.join("book.toml"), CONFIG)?;
    fs::write(book.join("site.css"), STYLE)?;
    if workspace::output(Command::new("mdbook").arg("--version")).is_err() {
        eprintln!(
            "book: mdbook is not installed (`cargo install mdbook`); the pages are in {}",
            source.display()
        );
        return Ok(());
    }
    workspace::run(Command::new("mdbook").arg("build").arg(&book))?;
    println!("{}", book.join("site/index.html").display());
    Ok(())
}

/// Writes the summary, the pages that it lists and the files that these pages link to below `source`.
fn assemble(source: &Path) -> Result<()> {
    let summary_path = Path::new(SUMMARY);
    let summary = read(summary_path)?;
    let listed = links(&summary)
        .into_iter()
        .filter(|link| is_relative(link.target) && !link.target.is_empty());
    let pages: BTreeSet<PathBuf> = listed.map(|link| resolve(summary_path, link.target)).collect();
    for page in &pages {
        let text = read(page)?;
        let text = if page.extension().is_some_and(|extension| extension == "ipynb") {
            notebook(&text)?
        } else {
            text
        };
        let text = replace_targets(&text, |link| site_target(source, &pages, page, link))?;
        write(&source.join(page).with_extension("md"), text)?;
    }
    let summary = replace_targets(&summary, |link| {
        let page = resolve(summary_path, link).with_extension("md");
        Ok(Some(if link.is_empty() {
            String::new()
        } else {
            page.display().to_string()
        }))
    })?;
    write(&source.join("SUMMARY.md"), summary)
}

/// Maps a link of `page` to a target on the site, or `None` if only the link's text remains. Linked files are
/// copied to the site. Links to the summary, which is the site's navigation, and to folders without a listed
/// README are removed.
///
/// # Errors
/// Returns an error if the link names a page that the summary does not list, because the site would not
/// contain that page.
fn site_target(source: &Path, pages: &BTreeSet<PathBuf>, page: &Path, link: &str) -> Result<Option<String>> {
    if !is_relative(link) {
        return Ok(Some(link.to_owned()));
    }
    let path = resolve(page, link);
    if pages.contains(&path) {
        return Ok(Some(link.replacen(".ipynb", ".md", 1)));
    }
    if root().join(&path).is_dir() {
        let readme = format!("{}/README.md", link.trim_end_matches('/'));
        return Ok(pages.contains(&path.join("README.md")).then_some(readme));
    }
    if path == Path::new(SUMMARY) {
        return Ok(None);
    }
    if path.extension().is_some_and(|extension| extension == "md") {
        bail!(
            "{} links to {link}, which {SUMMARY} does not list",
            page.display()
        );
    }
    let bytes =
        fs::read(root().join(&path)).with_context(|| format!("{}: cannot read {link}", page.display()))?;
    write(&source.join(&path), bytes)?;
    let (file, _) = link.split_once('#').unwrap_or((link, ""));
    Ok(Some(file.to_owned()))
}

fn read(page: &Path) -> Result<String> {
    fs::read_to_string(root().join(page)).with_context(|| format!("cannot read {}", page.display()))
}

fn write(file: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(file))?;
    fs::write(file, contents).with_context(|| format!("cannot write {}", file.display()))
}

/// Converts a Jupyter notebook to a page with text, code and committed outputs.
fn notebook(text: &str) -> Result<String> {
    let notebook: Value = serde_json::from_str(text).context("a notebook must be JSON")?;
    let mut page = String::new();
    for cell in each(&notebook, "/cells") {
        let source = text_field(cell, "/source");
        if cell.pointer("/cell_type").and_then(Value::as_str) == Some("markdown") {
            write!(page, "{source}\n\n")?;
            continue;
        }
        write!(page, "```python\n{source}\n```\n\n")?;
        for output in each(cell, "/outputs") {
            let picture = text_field(output, "/data/image~1jpeg").replace('\n', "");
            let text = text_field(output, "/text") + &text_field(output, "/data/text~1plain");
            if picture.is_empty() {
                write!(page, "```text\n{}\n```\n\n", text.trim_end())?;
            } else {
                write!(
                    page,
                    "<img alt=\"output\" src=\"data:image/jpeg;base64,{picture}\">\n\n"
                )?;
            }
        }
    }
    Ok(page)
}

fn each<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Returns a text field of a notebook, which may be stored as a list of lines.
fn text_field(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}
