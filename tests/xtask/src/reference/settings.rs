//! Generates the reference of `host.toml`: names, types and descriptions from structs, defaults as printed by
//! the program.

use super::{doc, parse, row};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use syn::{GenericArgument, Item, ItemEnum, ItemStruct, PathArguments, Type};

const SETTINGS: &str = "runtime/server/src/config/settings.rs";
const QUOTA: &str = "runtime/wire/src/quota.rs";

const HEADER: &str = "| key | type | default | description |\n|---|---|---|---|\n";

pub(super) fn table(defaults: &str) -> Result<String> {
    let defaults: Value = serde_json::from_str(defaults).context("default settings must be JSON")?;
    let syntax = parse(SETTINGS)?;
    let structs = syntax.items.iter().filter_map(|item| match item {
        Item::Struct(item) => Some((item.ident.to_string(), item)),
        _ => None,
    });
    let structs: BTreeMap<String, &ItemStruct> = structs.collect();
    let top = structs
        .get("HostSettings")
        .context("cannot find struct HostSettings")?;
    let mut page = "Every key of `host.toml`, which `frostline serve --config host.toml` reads. A flag of `serve` takes precedence, and an unknown key is an error. \
        Bytes and seconds may have a unit: `\"4GiB\"`, `\"60s\"`. \
        [Operating](../operating.md#start) has an example.\n\n"
        .to_owned();
    page.push_str(HEADER);
    let mut sections = String::new();
    for field in &top.fields {
        let name = field.ident.as_ref().context("unnamed setting")?.to_string();
        let kind = kind(&field.ty);
        let default = defaults.get(&name).unwrap_or(&Value::Null);
        let about = doc(&field.attrs);
        if let Some(table) = structs.get(&kind) {
            let (title, about) = match is_map(&field.ty) {
                true => {
                    let key = if name == "store" { "BUCKET" } else { "NAME" };
                    (format!("{name}.{key}"), format!("{about} {}", doc(&table.attrs)))
                }
                false => (name.clone(), about),
            };
            sections.push_str(&format!("\n## `[{title}]`\n\n{about}\n\n{HEADER}"));
            for field in &table.fields {
                let key = field.ident.as_ref().context("unnamed setting")?.to_string();
                let unset = match self::kind(&field.ty).as_str() {
                    "bool" => &Value::Bool(false),
                    _ => &Value::Null,
                };
                let default = default.get(&key).unwrap_or(unset);
                sections.push_str(&setting(&key, field, default));
            }
        } else if kind == "Quota" {
            sections.push_str(&format!(
                "\n## `[{name}]`\n\n{about}\n\n| key | type | description |\n|---|---|---|\n"
            ));
            sections.push_str(&quotas()?);
        } else {
            page.push_str(&setting(&name, field, default));
        }
    }
    Ok(page + &sections)
}

fn setting(name: &str, field: &syn::Field, default: &Value) -> String {
    let about = doc(&field.attrs);
    // The description may end with a default value that is computed at startup.
    let (about, described) = match about.rsplit_once("Default: ") {
        Some((about, described)) => (about.trim_end(), Some(described.trim_end_matches('.'))),
        None => (about.as_str(), None),
    };
    let default = match (default, described) {
        (Value::Null, Some(described)) => described.to_owned(),
        (Value::Null, None) if is_option(&field.ty) => "none".to_owned(),
        (Value::Null, None) => "required".to_owned(),
        (value, _) => format!("`{value}`{}", size(name, value)),
    };
    row(&[&format!("`{name}`"), toml_type(&kind(&field.ty)), &default, about])
}

/// Formats a number of bytes in GiB or MiB if it is a multiple of one of them.
fn size(name: &str, value: &Value) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB")];
    let bytes = value.as_u64().filter(|_| name.ends_with("_bytes"));
    let unit = |bytes: u64| {
        let (unit, word) = units
            .into_iter()
            .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit))?;
        Some(format!(" ({} {word})", bytes / unit))
    };
    bytes.and_then(unit).unwrap_or_default()
}

fn quotas() -> Result<String> {
    let syntax = parse(QUOTA)?;
    let is_key = |item: &&ItemEnum| item.ident == "QuotaKey";
    let mut enums = syntax.items.iter().filter_map(|item| match item {
        Item::Enum(item) => Some(item),
        _ => None,
    });
    let keys = enums.find(is_key).context("cannot find enum QuotaKey")?;
    let row = |variant: &syn::Variant| {
        let name = format!("`{}`", snake(&variant.ident.to_string()));
        row(&[&name, "integer", &doc(&variant.attrs)])
    };
    Ok(keys.variants.iter().map(row).collect())
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_uppercase() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

fn is_map(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "BTreeMap"))
}

fn is_option(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}

/// Returns the name of a type, or that of the inner type of an `Option` or map.
fn kind(kind: &Type) -> String {
    let Type::Path(path) = kind else {
        return String::new();
    };
    let Some(last) = path.path.segments.last() else {
        return String::new();
    };
    let name = last.ident.to_string();
    let inner = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.last(),
        _ => None,
    };
    match (name.as_str(), inner) {
        ("Option" | "BTreeMap", Some(GenericArgument::Type(inner))) => self::kind(inner),
        _ => name,
    }
}

fn toml_type(kind: &str) -> &'static str {
    match kind {
        "u64" | "usize" | "u32" => "integer",
        "bool" => "boolean",
        "Vec" => "array of strings",
        // Paths, sizes with units, and enums by variant name.
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_described() {
        let page = table("{\"drain\":60,\"limits\":{\"guest_bytes\":16777216}}").unwrap();
        for part in [
            "| `drain` | integer | `60` | ",
            "`16777216` (16 MiB)",
            "| `stored_bytes` | integer | ",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(!page.contains("|  |"), "missing description:\n{page}");
    }
}
