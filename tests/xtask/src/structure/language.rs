//! Checks names and wording. Product code and pages must not use the words in the column "never" of the
//! vocabulary in `runtime/docs/architecture.md`, and function names must describe the function.

use super::source::{Crate, attributes, is_test};
use crate::workspace::{output, root};
use anyhow::{Context, Result, bail};
use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use std::process::Command;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemFn, ItemImpl, LitStr, Macro, Signature, TraitItemFn};

/// Function names that do not describe the function.
const VAGUE_NAMES: [&str; 10] = [
    "of", "begin", "said", "told", "found", "gone", "kept", "look", "tell", "come",
];

/// Page with the vocabulary table, which quotes the replaced words.
const VOCABULARY: &str = "runtime/docs/architecture.md";

/// Patterns of tracked files to check as plain text.
const PAGES: [&str; 3] = ["*.md", "*.py", "*.wit"];

/// Phrase in the column "never" and the replacing terms.
#[derive(Debug, PartialEq, Eq)]
struct Replaced {
    words: Vec<String>,
    terms: String,
}

/// Refuses vague function names, and the words of the column "never" in the names, comments and strings of the product's crates and in pages.
pub(crate) fn check(crates: &[Crate]) -> Result<()> {
    let vocabulary = read(VOCABULARY)?;
    let replaced = replaced_words(&vocabulary);
    if replaced.is_empty() {
        bail!("{VOCABULARY} has no vocabulary table with a column \"never\"");
    }
    let mut refused: Vec<String> = crates
        .iter()
        .flat_map(|each| refused_in_crate(each, &replaced))
        .collect();
    let pages = output(
        Command::new("git")
            .arg("ls-files")
            .args(PAGES)
            .current_dir(root()),
    )?;
    for page in pages.lines() {
        refused.extend(refused_in_page(page, &read(page)?, &replaced));
    }
    if !refused.is_empty() {
        bail!("unclear names or words:\n  {}", refused.join("\n  "));
    }
    Ok(())
}

fn read(page: &str) -> Result<String> {
    std::fs::read_to_string(root().join(page)).with_context(|| format!("cannot read {page}"))
}

/// Parses the phrases in the fourth column of the vocabulary table.
fn replaced_words(page: &str) -> Vec<Replaced> {
    let mut replaced = Vec::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [terms, _, _, never] = cells[..]
            && !matches!(never, "never" | "---")
        {
            let phrases = never.split(',').map(|phrase| words(phrase).collect());
            let phrases = phrases.filter(|words: &Vec<String>| !words.is_empty());
            replaced.extend(phrases.map(|words| Replaced {
                words,
                terms: terms.to_owned(),
            }));
        }
    }
    replaced
}

fn refused_in_crate(krate: &Crate, replaced: &[Replaced]) -> Vec<String> {
    let files = krate.files.iter().flat_map(|(module, file)| {
        let mut reader = Reader {
            replaced,
            refused: Vec::new(),
        };
        reader.visit_file(&file.syntax);
        reader.check_comments(&file.text);
        let place = format!("{} {}", krate.name, module.join("::"));
        reader
            .refused
            .into_iter()
            .map(move |(line, why)| format!("{}:{line}: {why}", place.trim_end()))
    });
    files.collect()
}

fn refused_in_page(page: &str, text: &str, replaced: &[Replaced]) -> Vec<String> {
    let lines = text.lines().enumerate();
    let prose = lines.filter(|(_, line)| page != VOCABULARY || !line.starts_with('|'));
    let words = prose.flat_map(|(index, line)| words(line).map(move |word| (index + 1, word)));
    let refused = refused_phrases(&words.collect::<Vec<_>>(), replaced);
    refused
        .into_iter()
        .map(|(line, why)| format!("{page}:{line}: {why}"))
        .collect()
}

/// Splits text into words, in lower case and without punctuation. Names are split too.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let parts = text.split(|character: char| !character.is_alphanumeric());
    parts.flat_map(words_of_name)
}

/// Splits a name in camel case into words, in lower case.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut after_lower = false;
    for character in name.chars() {
        match words.last_mut() {
            Some(word) if !(after_lower && character.is_uppercase()) => word.extend(character.to_lowercase()),
            _ => words.push(character.to_lowercase().collect()),
        }
        after_lower = character.is_lowercase();
    }
    words
}

/// Returns the line on which each replaced phrase starts in `words`, and the correction.
fn refused_phrases(words: &[(usize, String)], replaced: &[Replaced]) -> Vec<(usize, String)> {
    let mut refused = Vec::new();
    for phrase in replaced {
        let windows = words.windows(phrase.words.len());
        let uses = windows.filter(|window| window.iter().map(|(_, word)| word).eq(&phrase.words));
        let lines = uses.filter_map(|window| window.first().map(|(line, _)| *line));
        let why = format!(
            "\"{}\"; see the vocabulary entry \"{}\"",
            phrase.words.join(" "),
            phrase.terms
        );
        refused.extend(lines.map(|line| (line, why.clone())));
    }
    refused
}

/// Collects violations by line. Names and strings in tests are skipped.
struct Reader<'a> {
    replaced: &'a [Replaced],
    refused: Vec<(usize, String)>,
}

impl Reader<'_> {
    fn check_name(&mut self, signature: &Signature) {
        let name = signature.ident.to_string();
        if VAGUE_NAMES.contains(&name.as_str()) {
            let line = signature.ident.span().start().line;
            self.refused
                .push((line, format!("`fn {name}`; the name must describe the function")));
        }
    }

    fn check_comments(&mut self, text: &str) {
        let lines = text.lines().enumerate();
        let comments =
            lines.filter_map(|(index, line)| Some((index + 1, line.trim_start().strip_prefix("//")?)));
        let words: Vec<_> = comments
            .flat_map(|(line, comment)| words(comment).map(move |word| (line, word)))
            .collect();
        self.refused.extend(refused_phrases(&words, self.replaced));
    }

    fn check_words(&mut self, line: usize, text: &str) {
        let words: Vec<_> = words(text).map(|word| (line, word)).collect();
        self.refused.extend(refused_phrases(&words, self.replaced));
    }

    fn check_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.check_tokens(group.stream()),
                TokenTree::Literal(literal) => self.check_literal(literal),
                TokenTree::Ident(name) => self.check_words(name.span().start().line, &name.to_string()),
                TokenTree::Punct(_) => {}
            }
        }
    }

    fn check_literal(&mut self, literal: Literal) {
        if let Ok(text) = syn::parse2::<LitStr>(TokenTree::Literal(literal).into()) {
            self.visit_lit_str(&text);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.check_name(&function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        self.check_name(&function.sig);
        visit::visit_trait_item_fn(self, function);
    }

    /// Checks inherent functions. Functions of trait implementations are named by the trait.
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if item.trait_.is_none() {
            let functions = item.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(function) if !is_test(&function.attrs) => Some(function),
                _ => None,
            });
            functions.for_each(|function| self.check_name(&function.sig));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.check_words(text.span().start().line, &text.value());
    }

    fn visit_ident(&mut self, name: &'ast Ident) {
        self.check_words(name.span().start().line, &name.to_string());
    }

    /// Checks macro arguments as tokens, because they may not be valid Rust.
    fn visit_macro(&mut self, call: &'ast Macro) {
        self.check_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| term | meaning | not | never |\n|---|---|---|---|\n\
        | in flight | requested | | on its way |\n\
        | efficient batch, time slice | the smallest | run | knee, quantum |\n\
        | cut | a point | place | |\n";

    fn refused(text: &str) -> Vec<String> {
        let mut whole = Crate {
            name: "runtime/job".to_owned(),
            ..Crate::default()
        };
        whole.parse(vec!["plan".to_owned()], text.to_owned()).unwrap();
        refused_in_crate(&whole, &replaced_words(TABLE))
    }

    #[test]
    fn a_vague_function_name_is_refused() {
        assert_eq!(
            refused("fn of() {}\nfn cached_rows() {}"),
            ["runtime/job plan:1: `fn of`; the name must describe the function"]
        );
        assert_eq!(refused("impl Plan { pub fn begin(&self) {} }").len(), 1);
        assert_eq!(refused("trait Plan { fn told(&self); }").len(), 1);
    }

    #[test]
    fn names_in_tests_and_trait_implementations_are_allowed() {
        assert!(refused("impl Plan for Split { fn of() {} }").is_empty());
        assert!(refused("#[cfg(test)] mod checks { fn of() {} }").is_empty());
        assert!(refused("impl Plan { #[cfg(test)] fn of() {} }").is_empty());
    }

    #[test]
    fn refused_words_are_in_the_last_column() {
        let replaced = replaced_words(TABLE);
        let phrases: Vec<String> = replaced.iter().map(|each| each.words.join(" ")).collect();
        assert_eq!(phrases, ["on its way", "knee", "quantum"]);
        assert_eq!(replaced[2].terms, "efficient batch, time slice");
    }

    #[test]
    fn a_replaced_word_is_refused_in_names_comments_strings_and_pages() {
        let why = "\"knee\"; see the vocabulary entry \"efficient batch, time slice\"";
        let at = |line: u32| [format!("runtime/job plan:{line}: {why}")];
        assert_eq!(refused("\nstruct KneeSearch;"), at(2));
        assert_eq!(refused("struct Rate { knee_rows: u32 }"), at(1));
        assert_eq!(refused("/// The knee's rows.\nfn f() {}"), at(1));
        assert_eq!(refused("fn f() {\n  // Below the knee.\n}"), at(2));
        assert_eq!(refused("fn f() { bail!(\"{rows} over the knee\") }"), at(1));
        assert_eq!(refused("fn f() { assert!(rate.knee()) }"), at(1));
        assert!(refused("/// Kneeling runs.\nfn f() { g(\"place\") }").is_empty());
        assert!(refused("#[cfg(test)] mod checks { fn knee() {} }").is_empty());
        assert_eq!(
            refused_in_page("README.md", "# Runs\nRows on its\nway", &replaced_words(TABLE)),
            ["README.md:2: \"on its way\"; see the vocabulary entry \"in flight\""]
        );
        assert!(refused_in_page(VOCABULARY, TABLE, &replaced_words(TABLE)).is_empty());
    }
}
