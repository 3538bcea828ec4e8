//! Which file of a crate imports which: by `use`, and by paths in the code.

use super::source::{Crate, File, Module, attributes, is_test};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, Macro, UseTree, Visibility};

/// From a file to those it imports from.
pub(crate) fn of(of: &Crate) -> BTreeMap<Module, BTreeSet<Module>> {
    let read: BTreeMap<&Module, Paths> = of
        .files
        .iter()
        .map(|(module, file)| (module, Paths::of(file)))
        .collect();
    let names = Names { of, read: &read };
    let arrows = read.iter().map(|(module, paths)| {
        let targets = paths.found.iter().filter_map(|path| names.home(module, path, 0));
        let others = targets.filter(|target| target != *module);
        ((*module).clone(), others.collect())
    });
    arrows.collect()
}

/// What a file names.
#[derive(Default)]
struct Paths {
    /// What it takes from elsewhere.
    found: BTreeSet<Vec<String>>,
    /// What it hands on under a name.
    handed_on: BTreeMap<String, Vec<String>>,
}

impl Paths {
    fn of(file: &File) -> Self {
        let mut paths = Self::default();
        paths.visit_file(&file.syntax);
        paths
    }

    fn take(&mut self, tree: &UseTree, before: &mut Vec<String>, hands_on: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take(&path.tree, before, hands_on);
                before.pop();
            }
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.take(tree, before, hands_on)),
            UseTree::Name(name) => {
                self.leaf(name.ident.to_string(), name.ident.to_string(), before, hands_on)
            }
            UseTree::Rename(name) => {
                self.leaf(name.ident.to_string(), name.rename.to_string(), before, hands_on)
            }
            UseTree::Glob(_) => self.leaf(String::new(), String::new(), before, false),
        }
    }

    fn leaf(&mut self, name: String, alias: String, before: &[String], hands_on: bool) {
        let mut path = before.to_vec();
        if name != "self" && !name.is_empty() {
            path.push(name);
        }
        if hands_on {
            // Who takes it from here takes it from where it is.
            self.handed_on.insert(alias, path);
        } else {
            self.found.insert(path);
        }
    }

    /// Paths in what a macro is given.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(name) => path.push(name.to_string()),
                TokenTree::Punct(mark) if mark.as_char() == ':' => continue,
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    path.clear();
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => path.clear(),
            }
            if path.len() > 1 {
                self.found.insert(path.clone());
            }
        }
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        self.take(
            &item.tree,
            &mut Vec::new(),
            !matches!(item.vis, Visibility::Inherited),
        );
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            self.found.insert(
                path.segments
                    .iter()
                    .map(|segment| segment.ident.to_string())
                    .collect(),
            );
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        self.tokens(call.tokens.clone());
    }
}

struct Names<'a> {
    of: &'a Crate,
    read: &'a BTreeMap<&'a Module, Paths>,
}

impl Names<'_> {
    /// The file in which what `path` says, as written in `module`, is at home; `None` for what is not this crate's.
    fn home(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Module::new(),
            "self" => module.clone(),
            "super" => module.split_last()?.1.to_vec(),
            name => {
                let child = child(module, name);
                self.of.files.contains_key(&child).then_some(child)?
            }
        };
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                at.pop();
            } else if self.of.files.contains_key(&child(&at, name)) {
                at = child(&at, name);
            } else {
                break;
            }
            rest = after;
        }
        let handed_on = rest.split_first().and_then(|(name, after)| {
            let origin = self.read.get(&at)?.handed_on.get(name)?;
            (depth < 8).then(|| self.home(&at, &[origin.as_slice(), after].concat(), depth + 1))?
        });
        handed_on.or(Some(at))
    }
}

fn child(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}
