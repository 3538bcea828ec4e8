//! Refuses flags of the command in the strings of library crates. Their messages are also shown by the Python
//! package and by hosts, so they return causes, which `runtime/cli/src/hints` maps to flags.

use super::source::{Crate, attributes, is_test};
use crate::workspace::root;
use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, LitStr, Macro, Meta};

/// Generated page with all flags.
const REFERENCE: &str = "runtime/docs/reference/commands.md";

/// The crate of the command.
const COMMAND: &str = "runtime/cli";

/// Files that start the command as a child process, with a flag in a string for each argument.
const ARGUMENTS: [(&str, &str); 1] = [("runtime/sandbox", "compiler")];

/// Refuses flags in the strings of all crates except the command's.
pub(super) fn check(crates: &[Crate]) -> Result<()> {
    let page = std::fs::read_to_string(root().join(REFERENCE))
        .with_context(|| format!("cannot read {REFERENCE}"))?;
    let flags = flags(&page);
    if flags.is_empty() {
        bail!("{REFERENCE} lists no flags");
    }
    let libraries = crates.iter().filter(|each| each.name != COMMAND);
    let refused: Vec<String> = libraries.flat_map(|each| refused(each, &flags)).collect();
    if !refused.is_empty() {
        bail!(
            "flags in the strings of library crates; return a cause and map it in {COMMAND}/src/hints:\n  {}",
            refused.join("\n  ")
        );
    }
    Ok(())
}

/// Parses the flags in the lists of the reference, without hyphens at the start.
fn flags(page: &str) -> BTreeSet<String> {
    let items = page.lines().filter(|line| line.starts_with("- `-"));
    let names = items.flat_map(|item| item.split('`').skip(1).step_by(2));
    names.flat_map(flags_in).collect()
}

/// Returns the words in `text` that look like long flags, without hyphens at the start.
fn flags_in(text: &str) -> Vec<String> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let words = text.split(|letter: char| !is_name(letter));
    let flags = words.filter_map(|word| word.strip_prefix("--"));
    flags
        .filter(|name| name.starts_with(|letter: char| letter.is_ascii_lowercase()))
        .map(str::to_owned)
        .collect()
}

fn refused(krate: &Crate, flags: &BTreeSet<String>) -> Vec<String> {
    let starts = |module: &[String]| {
        ARGUMENTS
            .iter()
            .any(|(name, file)| *name == krate.name && module == [*file])
    };
    let files = krate.files.iter().filter(|(module, _)| !starts(module));
    let found = files.flat_map(|(module, file)| {
        let mut reader = Reader {
            flags,
            refused: Vec::new(),
        };
        reader.visit_file(&file.syntax);
        let place = format!("{} {}", krate.name, module.join("::"));
        let refused = reader.refused.into_iter();
        refused.map(move |(line, flag)| format!("{}:{line}: --{flag}", place.trim_end()))
    });
    found.collect()
}

/// Collects flags in strings by line. Tests and comments are skipped.
struct Reader<'a> {
    flags: &'a BTreeSet<String>,
    refused: Vec<(usize, String)>,
}

impl Reader<'_> {
    fn check_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) if !is_comment(&group.stream()) => self.check_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse2::<LitStr>(TokenTree::Literal(literal).into()) {
                        self.visit_lit_str(&text);
                    }
                }
                TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

/// True for the content of `#[doc = ".."]`, to which comments inside of macros are converted.
fn is_comment(tokens: &TokenStream) -> bool {
    matches!(tokens.clone().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        let found = flags_in(&text.value()).into_iter();
        let line = text.span().start().line;
        self.refused.extend(
            found
                .filter(|name| self.flags.contains(name))
                .map(|name| (line, name)),
        );
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.check_tokens(call.tokens.clone());
    }

    /// Checks messages such as `#[error("..")]`.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.check_tokens(list.tokens.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# train\n- `--batch <N>`: Samples, see `--other`\n- `--host <URL>`, `--hosts`: Hosts\n- `-v`, `--verbose...`: Log\n";

    fn refused_in(name: &str, module: &str, text: &str) -> Vec<String> {
        let mut whole = Crate {
            name: name.to_owned(),
            ..Crate::default()
        };
        whole.parse(vec![module.to_owned()], text.to_owned()).unwrap();
        refused(&whole, &flags(PAGE))
    }

    #[test]
    fn flags_are_read_from_the_reference() {
        let flags = flags(PAGE);
        for flag in ["batch", "host", "hosts", "verbose"] {
            assert!(flags.contains(flag), "{flags:?}");
        }
        assert_eq!(
            flags_in("--batch 4, --no_such, a--b, --help."),
            ["batch", "no", "help"]
        );
    }

    #[test]
    fn a_flag_is_refused_in_messages_of_libraries() {
        let at = |line: u32| [format!("runtime/job plan:{line}: --batch")];
        let in_job = |text: &str| refused_in("runtime/job", "plan", text);
        assert_eq!(in_job("fn f() {\n  g(\"reduce --batch\")\n}"), at(2));
        assert_eq!(in_job("fn f() { bail!(\"reduce --batch {n}\") }"), at(1));
        assert_eq!(
            in_job("#[error(\"{n} is too large; reduce --batch\")]\nstruct A;"),
            at(1)
        );
        assert_eq!(in_job("const A: &str = \"--batch=4\";"), at(1));
    }

    #[test]
    fn comments_tests_and_other_programs_may_name_flags() {
        let in_job = |text: &str| refused_in("runtime/job", "plan", text);
        assert!(in_job("/// See --batch.\nfn f() { g(\"cp --sparse\") }").is_empty());
        assert!(in_job("settings! { /// See --batch.\n a: u32 }").is_empty());
        assert!(in_job("#[cfg(test)] mod checks { const A: &str = \"--batch\"; }").is_empty());
        let arguments = "const A: &str = \"--batch=4\";";
        assert!(refused_in("runtime/sandbox", "compiler", arguments).is_empty());
    }
}
