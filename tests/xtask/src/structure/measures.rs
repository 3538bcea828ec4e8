//! Lines of files and functions, and names of types.

use super::source::{Crate, File, attributes, is_test};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Expr, Ident, ImplItemFn, Item, ItemFn, Local, Macro, Pat, Signature, TraitItemFn};

#[derive(Default)]
pub(crate) struct Lines {
    /// Lines of each file, excluding tests.
    pub(crate) files: Vec<usize>,
    /// Lines of each function, excluding tests.
    pub(crate) functions: Vec<usize>,
    /// Locations of `let (a, b) = (x, y);`.
    pub(crate) tuple_lets: Vec<String>,
    /// Names of structs, enums and traits.
    types: Vec<String>,
    file: String,
    pub(crate) tests: usize,
    /// Lines of code, excluding tests, top-level imports, comments and empty lines.
    pub(crate) code: usize,
}

impl Lines {
    pub(crate) fn count(krate: &Crate) -> Self {
        let mut lines = Self {
            tests: krate.test_files,
            ..Self::default()
        };
        for (path, file) in &krate.files {
            lines.file = format!("{} {}", krate.name, path.join("::"));
            let tests: usize = file
                .syntax
                .items
                .iter()
                .filter(|item| is_test(attributes(item)))
                .map(span)
                .sum();
            lines.files.push(file.text.lines().count().saturating_sub(tests));
            lines.tests += tests;
            lines.code += code(file);
            lines.visit_file(&file.syntax);
        }
        lines
    }

    pub(crate) fn product(&self) -> usize {
        self.files.iter().sum()
    }

    /// Names that more than one type has, with the number of types, most reused first.
    pub(crate) fn reused_names(&self) -> Vec<(usize, &str)> {
        let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
        for name in &self.types {
            *uses.entry(name).or_default() += 1;
        }
        let reused = uses.into_iter().filter(|(_, count)| *count > 1);
        let mut reused: Vec<_> = reused.map(|(name, count)| (count, name)).collect();
        reused.sort_by_key(|(count, name)| (Reverse(*count), *name));
        reused
    }

    fn add_function(&mut self, signature: &Signature, body: &Block) {
        self.functions.push(span(signature) + span(body) - 1);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.functions.extend(other.functions);
        self.tuple_lets.extend(other.tuple_lets);
        self.types.extend(other.types);
        self.tests += other.tests;
        self.code += other.code;
    }
}

/// Returns true for a `let` that destructures a tuple literal, unless a later value reads a name that an earlier
/// pattern binds, as in a swap.
fn binds_unrelated_values(local: &Local) -> bool {
    let pattern = match &local.pat {
        Pat::Type(typed) => &*typed.pat,
        pattern => pattern,
    };
    let (Pat::Tuple(patterns), Some(init)) = (pattern, &local.init) else {
        return false;
    };
    let Expr::Tuple(values) = &*init.expr else {
        return false;
    };
    if init.diverge.is_some() || patterns.elems.len() != values.elems.len() {
        return false;
    }
    let mut bound = Words::default();
    for (pattern, value) in patterns.elems.iter().zip(&values.elems) {
        let mut read = Words::default();
        read.visit_expr(value);
        if !bound.0.is_disjoint(&read.0) {
            return false;
        }
        bound.visit_pat(pattern);
    }
    true
}

/// Identifiers of a piece of code, including those in the arguments of macros.
#[derive(Default)]
struct Words(HashSet<String>);

impl<'a> Visit<'a> for Words {
    fn visit_ident(&mut self, ident: &'a Ident) {
        self.0.insert(ident.to_string());
    }

    fn visit_macro(&mut self, called: &'a Macro) {
        let text = called.tokens.to_string();
        let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        self.0.extend(words.map(str::to_owned));
    }
}

fn code(file: &File) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let all = file.text.lines().filter(is_code).count();
    let is_other = |item: &&Item| is_test(attributes(item)) || matches!(item, Item::Use(_));
    let others = file.syntax.items.iter().filter(is_other).map(|item| {
        let span = item.span();
        let lines = file
            .text
            .lines()
            .take(span.end().line)
            .skip(span.start().line - 1);
        lines.filter(is_code).count()
    });
    all - others.sum::<usize>()
}

fn span(spanned: &impl Spanned) -> usize {
    let span = spanned.span();
    span.end().line + 1 - span.start().line
}

impl<'a> Visit<'a> for Lines {
    fn visit_item(&mut self, item: &'a Item) {
        if is_test(attributes(item)) {
            return;
        }
        let name = match item {
            Item::Struct(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            _ => None,
        };
        self.types.extend(name.map(Ident::to_string));
        visit::visit_item(self, item);
    }

    fn visit_local(&mut self, local: &'a Local) {
        if binds_unrelated_values(local) {
            let line = local.span().start().line;
            self.tuple_lets.push(format!("{}, line {line}", self.file));
        }
        visit::visit_local(self, local);
    }

    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        self.add_function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        self.add_function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        if let Some(body) = &function.default {
            self.add_function(&function.sig, body);
        }
    }
}

/// Returns the percentile of `values` by the nearest rank, or 0 if there are none.
pub(crate) fn percentile(values: &[usize], percent: usize) -> usize {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}
