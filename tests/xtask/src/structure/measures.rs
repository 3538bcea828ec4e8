//! Lines of files and functions.

use super::source::{Crate, File, attributes, is_test};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, Item, ItemFn, Signature, TraitItemFn};

#[derive(Default)]
pub(crate) struct Lines {
    /// Lines of each file, excluding tests.
    pub(crate) files: Vec<usize>,
    /// Lines of each function, excluding tests.
    pub(crate) functions: Vec<usize>,
    /// Functions that exceed a limit.
    pub(crate) large: Vec<LargeFunction>,
    file: String,
    pub(crate) tests: usize,
    /// Lines of code, excluding tests, top-level imports, comments and empty lines.
    pub(crate) code: usize,
}

/// Function that exceeds [`MAX_LINES`] or [`MAX_PARAMETERS`].
#[derive(Debug)]
pub(crate) struct LargeFunction {
    /// File and name of the function.
    pub(crate) name: String,
    pub(crate) lines: usize,
    pub(crate) parameters: usize,
}

/// Maximum lines of a function.
pub(crate) const MAX_LINES: usize = 60;

/// Number of parameters that a function should not exceed, including `self`.
pub(crate) const MAX_PARAMETERS: usize = 5;

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

    fn add_function(&mut self, signature: &Signature, body: &Block) {
        let (lines, parameters) = (span(signature) + span(body) - 1, signature.inputs.len());
        self.functions.push(lines);
        if lines > MAX_LINES || parameters > MAX_PARAMETERS {
            self.large.push(LargeFunction {
                name: format!("{} {}", self.file, signature.ident),
                lines,
                parameters,
            });
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.functions.extend(other.functions);
        self.large.extend(other.large);
        self.tests += other.tests;
        self.code += other.code;
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
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
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
