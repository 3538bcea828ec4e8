//! Names and phrases that product code and pages do not use. The vocabulary of `runtime/docs/architecture.md` has the words to use instead.

use super::source::{Crate, attributes, is_test};
use crate::workspace::{output, root};
use anyhow::{Context, Result, bail};
use proc_macro2::{Literal, TokenStream, TokenTree};
use std::process::Command;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemFn, ItemImpl, LitStr, Macro, Signature, TraitItemFn};

/// Function names that do not say what the function does.
const VAGUE_NAMES: [&str; 10] = [
    "of", "begin", "said", "told", "found", "gone", "kept", "look", "tell", "come",
];

/// Phrases that pages and string literals do not use, and what to write instead.
const PHRASES: [(&str, &str); 7] = [
    ("go on with", "resume"),
    ("goes on with", "resumes"),
    ("kept rows", "cached features"),
    ("is no number", "invalid number"),
    ("is no url", "invalid URL"),
    ("on its way", "in flight"),
    ("in vain", "without success"),
];

/// The page whose vocabulary table quotes words that are replaced.
const VOCABULARY: &str = "runtime/docs/architecture.md";

/// Refuses [`VAGUE_NAMES`] and [`PHRASES`] in the product's crates, and the phrases in every tracked page.
pub(crate) fn check(crates: &[Crate]) -> Result<()> {
    let mut refused: Vec<String> = crates.iter().flat_map(refused_in_crate).collect();
    let pages = output(Command::new("git").args(["ls-files", "*.md"]).current_dir(root()))?;
    for page in pages.lines() {
        let text =
            std::fs::read_to_string(root().join(page)).with_context(|| format!("cannot read {page}"))?;
        refused.extend(refused_in_page(page, &text));
    }
    if !refused.is_empty() {
        bail!("unclear names or phrases:\n  {}", refused.join("\n  "));
    }
    Ok(())
}

fn refused_in_crate(krate: &Crate) -> Vec<String> {
    let files = krate.files.iter().flat_map(|(module, file)| {
        let mut reader = Reader::default();
        reader.visit_file(&file.syntax);
        let place = format!("{} {}", krate.name, module.join("::"));
        reader
            .refused
            .into_iter()
            .map(move |(line, why)| format!("{}:{line}: {why}", place.trim_end()))
    });
    files.collect()
}

fn refused_in_page(page: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let prose = lines.filter(|(_, line)| page != VOCABULARY || !line.starts_with('|'));
    let words = prose.flat_map(|(index, line)| words(line).map(move |word| (index + 1, word)));
    let refused = refused_phrases(&words.collect::<Vec<_>>());
    refused
        .into_iter()
        .map(|(line, why)| format!("{page}:{line}: {why}"))
        .collect()
}

/// The words of a text in lower case, without punctuation around them.
fn words(text: &str) -> impl Iterator<Item = String> {
    let is_punctuation = |character: char| !character.is_alphanumeric();
    text.split_whitespace()
        .map(move |word| word.trim_matches(is_punctuation).to_lowercase())
}

/// The line on which each of [`PHRASES`] starts in `words`, and what to write instead.
fn refused_phrases(words: &[(usize, String)]) -> Vec<(usize, String)> {
    let mut refused = Vec::new();
    for (phrase, instead) in PHRASES {
        let phrase_words: Vec<&str> = phrase.split(' ').collect();
        let windows = words.windows(phrase_words.len());
        let uses = windows.filter(|window| window.iter().map(|(_, word)| word).eq(&phrase_words));
        let lines = uses.filter_map(|window| window.first().map(|(line, _)| *line));
        refused.extend(lines.map(|line| (line, format!("\"{phrase}\"; write \"{instead}\""))));
    }
    refused
}

/// What is refused in a file, by line. Tests and attributes (documentation among them) are skipped.
#[derive(Default)]
struct Reader {
    refused: Vec<(usize, String)>,
}

impl Reader {
    fn check_name(&mut self, signature: &Signature) {
        let name = signature.ident.to_string();
        if VAGUE_NAMES.contains(&name.as_str()) {
            let line = signature.ident.span().start().line;
            self.refused
                .push((line, format!("`fn {name}`; say what it does")));
        }
    }

    fn check_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.check_tokens(group.stream()),
                TokenTree::Literal(literal) => self.check_literal(literal),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }

    fn check_literal(&mut self, literal: Literal) {
        if let Ok(text) = syn::parse2::<LitStr>(TokenTree::Literal(literal).into()) {
            self.visit_lit_str(&text);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
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

    /// The trait gives the functions of its implementations their names.
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
        let line = text.span().start().line;
        let words: Vec<_> = words(&text.value()).map(|word| (line, word)).collect();
        self.refused.extend(refused_phrases(&words));
    }

    /// What a macro is given may not be Rust.
    fn visit_macro(&mut self, call: &'ast Macro) {
        self.check_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Vec<String> {
        let mut whole = Crate {
            name: "runtime/job".to_owned(),
            ..Crate::default()
        };
        whole.parse(vec!["plan".to_owned()], text.to_owned()).unwrap();
        refused_in_crate(&whole)
    }

    #[test]
    fn a_vague_function_name_is_refused() {
        assert_eq!(
            refused("fn of() {}\nfn kept_rows() {}"),
            ["runtime/job plan:1: `fn of`; say what it does"]
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
    fn a_replaced_phrase_is_refused_in_literals_and_pages() {
        assert_eq!(
            refused("fn f() {\n  bail!(\"'{text}' is \\\n no number\")\n}"),
            ["runtime/job plan:2: \"is no number\"; write \"invalid number\""]
        );
        assert!(refused("/// Kept rows.\nfn f() { g(\"it is no numbered page\") }").is_empty());
        assert_eq!(
            refused_in_page("README.md", "# Runs\nTo go\non with a run"),
            ["README.md:2: \"go on with\"; write \"resume\""]
        );
        assert!(refused_in_page(VOCABULARY, "| feature cache | kept rows |").is_empty());
    }
}
