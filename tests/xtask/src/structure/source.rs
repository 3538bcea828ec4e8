//! Parsed source files of a crate.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use syn::{Attribute, Item, Meta, UseTree, Visibility};

/// Module path of a file such as `["http", "admin"]`. Empty for the root of the crate.
pub(crate) type Module = Vec<String>;

#[derive(Default)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) files: BTreeMap<Module, File>,
    /// Number of lines in files that contain only tests.
    pub(crate) test_files: usize,
}

pub(crate) struct File {
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
}

impl Crate {
    pub(crate) fn read(name: String, source: &Path) -> Result<Self> {
        let mut this = Self {
            name,
            ..Self::default()
        };
        this.walk(source, &mut Vec::new())?;
        Ok(this)
    }

    fn walk(&mut self, folder: &Path, module: &mut Module) -> Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let is_root = matches!(name.as_str(), "mod" | "lib" | "main");
            if !is_root {
                module.push(name);
            }
            if path.is_dir() {
                self.walk(&path, module)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                self.add(&path, module)?;
            }
            if !is_root {
                module.pop();
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, module: &Module) -> Result<()> {
        let text = std::fs::read_to_string(path)?;
        self.parse(module.clone(), text)
            .with_context(|| format!("cannot parse {}", path.display()))
    }

    pub(crate) fn parse(&mut self, module: Module, text: String) -> Result<()> {
        if module.iter().any(|name| name == "tests") {
            self.test_files += text.lines().count();
            return Ok(());
        }
        let syntax = syn::parse_file(&text)?;
        self.files.insert(module, File { text, syntax });
        Ok(())
    }

    /// Counts public names that the root declares or re-exports.
    pub(crate) fn public_names(&self) -> usize {
        let root = self.files.get(&Module::new());
        let items = root.into_iter().flat_map(|file| &file.syntax.items);
        let public = items.filter(|item| matches!(visibility(item), Some(Visibility::Public(_))));
        public
            .map(|item| match item {
                Item::Use(import) => leaves(&import.tree),
                _ => 1,
            })
            .sum()
    }
}

fn visibility(item: &Item) -> Option<&Visibility> {
    match item {
        Item::Const(item) => Some(&item.vis),
        Item::Enum(item) => Some(&item.vis),
        Item::Fn(item) => Some(&item.vis),
        Item::Mod(item) => Some(&item.vis),
        Item::Static(item) => Some(&item.vis),
        Item::Struct(item) => Some(&item.vis),
        Item::Trait(item) => Some(&item.vis),
        Item::Type(item) => Some(&item.vis),
        Item::Use(item) => Some(&item.vis),
        _ => None,
    }
}

fn leaves(tree: &UseTree) -> usize {
    match tree {
        UseTree::Path(path) => leaves(&path.tree),
        UseTree::Group(group) => group.items.iter().map(leaves).sum(),
        UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => 1,
    }
}

/// True if an item is a test or compiled only for tests.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        Meta::NameValue(_) => false,
    })
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
