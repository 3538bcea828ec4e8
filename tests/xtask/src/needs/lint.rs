//! Checks that a test with a need is in the module of this need. Other tests must not use the need's marks,
//! directly or through functions of the same crate.
//!
//! Functions are identified by name. A function in the same file takes precedence over functions in other
//! files of the crate, which count only if they are imported or qualified by a path.

use super::NEEDS;
use crate::workspace::{output, root};
use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprPath, ItemFn, ItemMod, LitStr, Macro, UseName};

/// Function in test code.
#[derive(Debug)]
struct Function {
    file: PathBuf,
    name: String,
    /// Module path, from the file's modules to the innermost module.
    modules: Vec<String>,
    is_test: bool,
    /// Names of called functions, and string literals.
    names: BTreeSet<String>,
    /// Called functions that another file may declare.
    imported: BTreeSet<String>,
}

/// Checks every crate of the workspace.
///
/// # Errors
/// Lists all tests that are outside the required module.
pub(crate) fn check() -> Result<()> {
    let listed = output(
        Command::new("git")
            .args(["ls-files", "-co", "--exclude-standard", "*.rs"])
            .current_dir(root()),
    )?;
    let mut crates: BTreeMap<PathBuf, Vec<Function>> = BTreeMap::new();
    for file in listed.lines().map(Path::new).filter(|file| is_test_code(file)) {
        let Some(home) = file
            .ancestors()
            .skip(1)
            .find(|folder| root().join(folder).join("Cargo.toml").is_file())
        else {
            continue;
        };
        let Ok(text) = std::fs::read_to_string(root().join(file)) else {
            continue;
        };
        let within = file.strip_prefix(home)?;
        let functions = functions(file, within, &text).with_context(|| file.display().to_string())?;
        crates.entry(home.to_owned()).or_default().extend(functions);
    }
    let misplaced: Vec<String> = crates
        .values()
        .flat_map(|functions| misplaced(functions))
        .collect();
    if misplaced.is_empty() {
        return Ok(());
    }
    bail!("tests outside the required module:\n  {}", misplaced.join("\n  "));
}

/// True if a file contains test code to check. Product code and development tools are not checked.
fn is_test_code(file: &Path) -> bool {
    let text = file.to_string_lossy();
    let tools = [
        "tests/xtask/",
        "tests/bench/",
        "tests/guests/",
        "tests/fuzz/",
        "tests/needs/",
        "guest/",
    ];
    let tests = ["/tests/", "/tests.rs"];
    !tools.iter().any(|tool| text.starts_with(tool))
        && (text.starts_with("tests/") || tests.iter().any(|part| text.contains(part)))
}

fn functions(file: &Path, within: &Path, text: &str) -> Result<Vec<Function>> {
    let modules = within.with_extension("");
    let modules = modules
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let syntax = syn::parse_file(text)?;
    let mut imports = Imports::default();
    imports.visit_file(&syntax);
    let mut reader = Reader {
        file,
        modules,
        functions: Vec::new(),
    };
    reader.visit_file(&syntax);
    for function in &mut reader.functions {
        function.imported.extend(imports.0.iter().cloned());
    }
    Ok(reader.functions)
}

struct Reader<'a> {
    file: &'a Path,
    modules: Vec<String>,
    functions: Vec<Function>,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.modules.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.modules.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let mut names = Names::default();
        names.visit_block(&function.block);
        self.functions.push(Function {
            file: self.file.to_owned(),
            name: function.sig.ident.to_string(),
            modules: self.modules.clone(),
            is_test: function.attrs.iter().any(is_test),
            names: names.called,
            imported: names.qualified,
        });
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute
        .path()
        .segments
        .last()
        .is_some_and(|last| last.ident == "test")
}

/// Imported names of a file.
#[derive(Default)]
struct Imports(BTreeSet<String>);

impl<'ast> Visit<'ast> for Imports {
    fn visit_use_name(&mut self, name: &'ast UseName) {
        self.0.insert(name.ident.to_string());
    }
}

#[derive(Default)]
struct Names {
    called: BTreeSet<String>,
    /// Called functions qualified by a path.
    qualified: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Expr::Path(ExprPath { path, .. }) = &*call.func
            && let Some(last) = path.segments.last()
        {
            self.called.insert(last.ident.to_string());
            self.qualified
                .extend((path.segments.len() > 1).then(|| last.ident.to_string()));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.called.insert(text.value());
    }

    /// Collects words before parentheses and string literals, because a macro has an arbitrary syntax.
    fn visit_macro(&mut self, call: &'ast Macro) {
        self.tokens(call.tokens.clone());
    }
}

impl Names {
    fn tokens(&mut self, tokens: TokenStream) {
        let mut word = None;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => word = Some(ident.to_string()),
                TokenTree::Group(group) => {
                    let is_call = group.delimiter() == Delimiter::Parenthesis;
                    self.called.extend(word.take().filter(|_| is_call));
                    self.tokens(group.stream());
                }
                TokenTree::Literal(literal) => {
                    self.called
                        .insert(literal.to_string().trim_matches('"').to_owned());
                    word = None;
                }
                TokenTree::Punct(_) => word = None,
            }
        }
    }
}

/// Reports tests of a crate that are outside the required module.
fn misplaced(functions: &[Function]) -> Vec<String> {
    let tests = functions.iter().filter(|function| function.is_test);
    tests
        .flat_map(|test| {
            let reachable_names = reachable_names(test, functions);
            let outside = NEEDS
                .iter()
                .filter(|need| !test.modules.iter().any(|module| module == need.module));
            outside.filter_map(move |need| {
                let mark = need.marks.iter().find(|mark| reachable_names.contains(**mark))?;
                let (file, name) = (test.file.display(), &test.name);
                Some(format!(
                    "{file}: `{name}` uses `{mark}`; move it to a module `{}`",
                    need.module
                ))
            })
        })
        .collect()
}

/// Returns all names used by `test`, directly or indirectly, except functions of the crate.
fn reachable_names(test: &Function, functions: &[Function]) -> BTreeSet<String> {
    let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut waiting = vec![test];
    while let Some(function) = waiting.pop() {
        if !seen.insert(std::ptr::from_ref(function)) {
            continue;
        }
        for name in &function.names {
            let named = functions
                .iter()
                .filter(|other| other.name == *name && !other.is_test);
            let (here, elsewhere): (Vec<_>, Vec<_>) = named.partition(|other| other.file == function.file);
            let imported = function.imported.contains(name);
            let called = if here.is_empty() && imported {
                elsewhere
            } else {
                here
            };
            if called.is_empty() {
                names.insert(name.clone());
            }
            waiting.extend(called);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misplaced_in(text: &str) -> Vec<String> {
        let file = Path::new("src/tests/some.rs");
        misplaced(&functions(file, file, text).unwrap())
    }

    #[test]
    fn a_test_outside_the_module_of_its_need_is_named() {
        let direct = "#[test] fn wrong() { read(frostline_needs::built_guest(\"spin\")); }";
        assert_eq!(
            misplaced_in(direct),
            ["src/tests/some.rs: `wrong` uses `built_guest`; move it to a module `needs_guests`"]
        );
        let indirect =
            "fn help() { let a = shared_file(\"x\"); } #[tokio::test] async fn wrong() { assert!(help()); }";
        assert_eq!(misplaced_in(indirect).len(), 1);
        let text = "#[test] fn wrong() { Command::new(\"clang\"); }";
        assert_eq!(misplaced_in(text).len(), 1);
    }

    #[test]
    fn every_test_is_in_the_module_of_its_need() {
        check().unwrap();
    }

    #[test]
    fn a_test_in_the_module_of_its_need_is_fine() {
        let inside = "fn help() { shared_file(\"x\"); } mod needs_shared { #[test] fn right() { help(); } }";
        assert!(misplaced_in(inside).is_empty());
        let other = "fn shared_file() {} #[test] fn right() { shared_file(); }";
        assert!(misplaced_in(other).is_empty());
    }
}
