//! Checks formatting, clippy, dependency rules, import cycles, names and phrases, links, tables and the
//! generated reference.

use crate::workspace::{self, cargo, has_cargo_command, output, root};
use crate::{layers, needs, pages, python, reference, structure};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Large dependencies and the only crate that uses each directly. `deny.toml` has the same rules for
/// cargo-deny.
const DIRECT_USERS: [(&str, &str); 4] = [
    ("wasmtime", "frostline-sandbox"),
    ("ort", "frostline-engine"),
    ("object_store", "frostline-objects"),
    ("opentelemetry", "frostline"),
];

/// Crates with dependencies that they must not have, even indirectly, although their [layers](layers) allow
/// them or do not apply.
const FORBIDDEN: [(&str, &[&str]); 21] = [
    ("frostline-tensor", &["wasmtime", "ort", "object_store", "hyper"]),
    (
        "frostline-primitives",
        &["wasmtime", "ort", "object_store", "hyper", "tokio"],
    ),
    (
        "frostline-sealed",
        &["wasmtime", "ort", "object_store", "hyper", "tokio"],
    ),
    (
        "frostline-walls",
        &["wasmtime", "ort", "object_store", "hyper", "tokio"],
    ),
    (
        "frostline-batching",
        &["wasmtime", "ort", "object_store", "hyper"],
    ),
    ("frostline-engine", &["wasmtime", "object_store", "hyper"]),
    ("frostline-images", &["wasmtime", "ort", "object_store", "hyper"]),
    (
        "frostline-features",
        &["wasmtime", "ort", "object_store", "hyper", "tokio"],
    ),
    ("frostline-profile", &["wasmtime", "ort", "object_store", "hyper"]),
    (
        "frostline-quantization",
        &["wasmtime", "ort", "object_store", "hyper"],
    ),
    ("frostline-fusion", &["wasmtime", "ort", "object_store", "hyper"]),
    ("frostline-sandbox", &["ort", "object_store", "hyper"]),
    (
        "frostline-state",
        &["wasmtime", "ort", "axum", "frostline-server"],
    ),
    ("frostline-client", &["wasmtime", "ort", "object_store"]),
    ("frostline-rows", &["wasmtime", "ort", "object_store"]),
    (
        "frostline-plan",
        &[
            "wasmtime",
            "ort",
            "object_store",
            "hyper",
            "tokio",
            "frostline-client",
            "frostline-engine",
        ],
    ),
    (
        "frostline-compute",
        &["wasmtime", "object_store", "hyper", "frostline-client"],
    ),
    ("frostline-trainer", &["wasmtime", "object_store"]),
    ("frostline-python", &["wasmtime", "ort", "object_store"]),
    (
        "frostline-job",
        &["wasmtime", "ort", "object_store", "hyper", "tokio"],
    ),
    (
        "frostline-report",
        &[
            "wasmtime",
            "ort",
            "object_store",
            "hyper",
            "tokio",
            "frostline-graph",
        ],
    ),
];

pub(crate) fn run() -> Result<()> {
    workspace::run(cargo().args(["fmt", "--all", "--check"]))?;
    workspace::run(cargo().args(["fmt", "--all", "--check", "--manifest-path", "guest/Cargo.toml"]))?;
    check_graph()?;
    structure::check()?;
    needs::lint::check()?;
    pages::check()?;
    reference::check()?;
    workspace::run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // The code and the tests of this command, which `--workspace` excludes.
    let own = ["--package", "xtask", "--features", "source"];
    workspace::run(
        cargo()
            .arg("clippy")
            .args(own)
            .args(["--all-targets", "--", "-D", "warnings"]),
    )?;
    workspace::run(cargo().args(["test", "--quiet"]).args(own))?;
    check_dependencies()?;
    eprintln!("lint: passed");
    Ok(())
}

/// Checks licenses, sources and bans with cargo-deny, and known vulnerabilities if the advisory database can
/// be fetched.
fn check_dependencies() -> Result<()> {
    let path = cargo_deny()?;
    let deny = |arguments: &[&str]| {
        let mut command = cargo();
        command.arg("deny").args(arguments).env("PATH", &path);
        command
    };
    workspace::run(&mut deny(&[
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    if output(&mut deny(&["fetch", "db"])).is_err() {
        eprintln!("lint: cannot fetch the advisory database; known vulnerabilities are not checked");
        return Ok(());
    }
    workspace::run(&mut deny(&["--offline", "check", "advisories"]))
}

/// Returns a `PATH` that contains cargo-deny. If cargo-deny is not installed, installs a prebuilt one into
/// the build folder.
fn cargo_deny() -> Result<OsString> {
    if has_cargo_command("deny") {
        return Ok(std::env::var_os("PATH").unwrap_or_default());
    }
    python::ensure("tests/requirements-lint.txt", "python-lint")
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Checks [`DIRECT_USERS`], [`FORBIDDEN`] and the [layers](layers) of crates against cargo's resolved dependency
/// graph, without development dependencies.
fn check_graph() -> Result<()> {
    let text = output(
        cargo()
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(root()),
    )?;
    let metadata: Value = serde_json::from_str(&text)?;
    let graph = dependencies(&metadata).context("unexpected output of cargo metadata")?;
    let mut violations = Vec::new();
    for (dependency, only_user) in DIRECT_USERS {
        for (user, uses) in graph.iter().filter(|(user, _)| is_ours(user)) {
            if uses.contains(dependency) && user != only_user {
                violations.push(format!(
                    "{user} must not use {dependency} directly; use {only_user}"
                ));
            }
        }
    }
    for (from, forbidden) in FORBIDDEN {
        let reached = reachable(&graph, from);
        violations.extend(
            forbidden
                .iter()
                .filter(|name| reached.contains(**name))
                .map(|name| format!("{from} reaches {name}")),
        );
    }
    let page = fs::read_to_string(root().join(layers::PAGE))
        .with_context(|| format!("cannot read {}", layers::PAGE))?;
    violations.extend(layers::violations(&page, &folders(&metadata), &graph));
    if !violations.is_empty() {
        bail!("forbidden dependencies:\n  {}", violations.join("\n  "));
    }
    Ok(())
}

fn is_ours(name: &str) -> bool {
    name.starts_with("frostline") || name == "xtask"
}

/// Maps the package name of each crate in the repository to its folder.
fn folders(metadata: &Value) -> BTreeMap<String, String> {
    let packages = metadata.get("packages").and_then(Value::as_array);
    let folders = packages.into_iter().flatten().filter_map(|package| {
        package.get("source").filter(|source| source.is_null())?;
        let manifest = Path::new(package.get("manifest_path")?.as_str()?);
        let folder = manifest.parent()?.strip_prefix(root()).ok()?.to_str()?;
        Some((package.get("name")?.as_str()?.to_owned(), folder.to_owned()))
    });
    folders.collect()
}

/// Maps each package name to the names of direct dependencies, without development dependencies.
fn dependencies(metadata: &Value) -> Option<Graph> {
    let packages = metadata.get("packages")?.as_array()?;
    let names: BTreeMap<&str, &str> = packages
        .iter()
        .filter_map(|package| Some((package.get("id")?.as_str()?, package.get("name")?.as_str()?)))
        .collect();
    let mut graph = Graph::new();
    for node in metadata.get("resolve")?.get("nodes")?.as_array()? {
        let user = names.get(node.get("id")?.as_str()?)?;
        let uses = graph.entry((*user).to_owned()).or_default();
        for dependency in node.get("deps")?.as_array()? {
            let kinds = dependency.get("dep_kinds")?.as_array()?;
            let linked = kinds
                .iter()
                .any(|kind| kind.get("kind").is_none_or(|kind| kind.as_str() != Some("dev")));
            if linked && let Some(name) = names.get(dependency.get("pkg")?.as_str()?) {
                uses.insert((*name).to_owned());
            }
        }
    }
    Some(graph)
}

fn reachable(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from.to_owned()];
    while let Some(name) = waiting.pop() {
        for next in graph.get(&name).into_iter().flatten() {
            if reached.insert(next.clone()) {
                waiting.push(next.clone());
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(kind: &str) -> Value {
        serde_json::json!({
            "packages": [{"id": "1", "name": "frostline-trainer"}, {"id": "2", "name": "middle"}, {"id": "3", "name": "wasmtime"}],
            "resolve": {"nodes": [
                {"id": "1", "deps": [{"pkg": "2", "dep_kinds": [{"kind": null}]}]},
                {"id": "2", "deps": [{"pkg": "3", "dep_kinds": [{"kind": kind}]}]},
                {"id": "3", "deps": []},
            ]},
        })
    }

    #[test]
    fn an_indirect_dependency_is_reached() {
        let graph = dependencies(&metadata("build")).unwrap();
        assert!(reachable(&graph, "frostline-trainer").contains("wasmtime"));
    }

    #[test]
    fn a_development_dependency_is_not_reached() {
        let graph = dependencies(&metadata("dev")).unwrap();
        assert!(!reachable(&graph, "frostline-trainer").contains("wasmtime"));
    }
}
