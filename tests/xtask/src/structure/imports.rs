//! Imports between files of a crate, from `use` declarations and paths in code.

use super::source::{Crate, File, Module, attributes, is_test};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, Macro, UseTree, Visibility};

/// Maps each file to the files that it imports from.
pub(crate) fn by_file(krate: &Crate) -> BTreeMap<Module, BTreeSet<Module>> {
    let read: BTreeMap<&Module, Paths> = krate
        .files
        .iter()
        .map(|(module, file)| (module, Paths::read(file)))
        .collect();
    let names = Names { krate, read: &read };
    let imports = read.iter().map(|(module, paths)| {
        let targets = paths
            .used
            .iter()
            .filter_map(|path| names.declaring_file(module, path, 0));
        let others = targets.filter(|target| target != *module);
        ((*module).clone(), others.collect())
    });
    imports.collect()
}

/// Paths in a file.
#[derive(Default)]
struct Paths {
    /// Paths used in declarations or code.
    used: BTreeSet<Vec<String>>,
    /// Re-exported paths by exported name.
    reexported: BTreeMap<String, Vec<String>>,
}

impl Paths {
    fn read(file: &File) -> Self {
        let mut paths = Self::default();
        paths.visit_file(&file.syntax);
        paths
    }

    fn add_tree(&mut self, tree: &UseTree, before: &mut Vec<String>, reexports: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(&path.tree, before, reexports);
                before.pop();
            }
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.add_tree(tree, before, reexports)),
            UseTree::Name(name) => {
                self.add_leaf(name.ident.to_string(), name.ident.to_string(), before, reexports)
            }
            UseTree::Rename(name) => {
                self.add_leaf(name.ident.to_string(), name.rename.to_string(), before, reexports)
            }
            UseTree::Glob(_) => self.add_leaf(String::new(), String::new(), before, false),
        }
    }

    fn add_leaf(&mut self, name: String, alias: String, before: &[String], reexports: bool) {
        let mut path = before.to_vec();
        if name != "self" && !name.is_empty() {
            path.push(name);
        }
        if reexports {
            self.reexported.insert(alias, path);
        } else {
            self.used.insert(path);
        }
    }

    /// Collects paths in macro arguments.
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
                self.used.insert(path.clone());
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
        self.add_tree(
            &item.tree,
            &mut Vec::new(),
            !matches!(item.vis, Visibility::Inherited),
        );
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            self.used.insert(
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
    krate: &'a Crate,
    read: &'a BTreeMap<&'a Module, Paths>,
}

impl Names<'_> {
    /// Resolves `path`, used in `module`, to the declaring file. Returns `None` for items of other crates.
    fn declaring_file(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Module::new(),
            "self" => module.clone(),
            "super" => module.split_last()?.1.to_vec(),
            name => {
                let child = child(module, name);
                self.krate.files.contains_key(&child).then_some(child)?
            }
        };
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                at.pop();
            } else if self.krate.files.contains_key(&child(&at, name)) {
                at = child(&at, name);
            } else {
                break;
            }
            rest = after;
        }
        let reexported = rest.split_first().and_then(|(name, after)| {
            let origin = self.read.get(&at)?.reexported.get(name)?;
            (depth < 8).then(|| self.declaring_file(&at, &[origin.as_slice(), after].concat(), depth + 1))?
        });
        reexported.or(Some(at))
    }
}

fn child(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}
