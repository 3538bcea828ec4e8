//! Writes the bill of materials of the command in CycloneDX 1.6. It lists crates and ONNX Runtime.

use super::{Build, VERSION, epoch};
use crate::ort;
use crate::python::sha256;
use crate::workspace::{cargo, host_target, output, root};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages, keyed by package URL such as `pkg:cargo/serde@1.0.0`.
type Packages = BTreeMap<String, Package>;

#[derive(Default)]
struct Package {
    name: String,
    version: String,
    license: String,
    sha256: Option<String>,
    /// Package URLs of direct dependencies.
    dependencies: BTreeSet<String>,
}

pub(super) fn pack(_: &Build, to: &Path) -> Result<PathBuf> {
    let target = host_target()?;
    // `cargo metadata` would unify features with the other packages of the workspace. Procedural macros are excluded because they only run in
    // the compiler.
    let mut tree = cargo();
    tree.args(["tree", "--locked", "--color", "never", "--package", "frostline"]);
    tree.args(["--edges", "normal,no-proc-macro", "--target", &target]);
    tree.args(["--prefix", "depth", "--format", " {p}|{l}"]);
    let mut packages = crates(&output(&mut tree)?)?;
    add_checksums(&mut packages, &fs::read_to_string(root().join("Cargo.lock"))?);
    let library = ort::pinned_wheel()?;
    let library_url = format!("pkg:pypi/{}@{}", library.package, library.version);
    let command = packages.get_mut(&crate_url("frostline", VERSION));
    let command = command.context("cargo tree did not list frostline")?;
    command.dependencies.insert(library_url.clone());
    let library = Package {
        name: library.package,
        version: library.version,
        license: "MIT".to_owned(),
        sha256: Some(library.sha256),
        dependencies: BTreeSet::new(),
    };
    packages.insert(library_url, library);
    let created = output(
        Command::new("date")
            .args(["--utc", "--date", &format!("@{}", epoch()?)])
            .arg("+%Y-%m-%dT%H:%M:%SZ"),
    )?;
    let file = to.join(format!("frostline-{VERSION}-{target}.cdx.json"));
    let mut document = document(&packages, created.trim());
    let serial_number = uuid(&sha256(document.to_string().as_bytes())?);
    if let Some(fields) = document.as_object_mut() {
        fields.insert(
            "serialNumber".to_owned(),
            format!("urn:uuid:{serial_number}").into(),
        );
    }
    let text = serde_json::to_string_pretty(&document)?;
    fs::write(&file, text + "\n")?;
    Ok(file)
}

/// Parses the output of `cargo tree`. A line is `DEPTH NAME vVERSION ..|LICENSE`.
fn crates(tree: &str) -> Result<Packages> {
    let mut crates = Packages::new();
    let mut dependents: Vec<String> = Vec::new();
    for line in tree.lines() {
        let parse = || {
            let (depth, rest) = line.split_once(' ')?;
            let (package, license) = rest.split_once('|')?;
            let mut words = package.split(' ');
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            Some((depth.parse::<usize>().ok()?, name, version, license))
        };
        let parsed = parse().with_context(|| format!("unexpected output of cargo tree: {line}"))?;
        let (depth, name, version, license) = parsed;
        let url = crate_url(name, version);
        dependents.truncate(depth);
        if let Some(dependent) = dependents.last().and_then(|dependent| crates.get_mut(dependent)) {
            dependent.dependencies.insert(url.clone());
        }
        let package = crates.entry(url.clone()).or_default();
        package.name = name.to_owned();
        package.version = version.to_owned();
        // cargo marks repeated crates with (*). Old manifests separate alternative licenses with a slash.
        let license = license.trim_end_matches(" (*)");
        package.license = license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
        dependents.push(url);
    }
    Ok(crates)
}

/// Formats a package URL, with plus signs of the version escaped.
fn crate_url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// Adds checksums from the text of Cargo.lock, which has one for each crate outside the workspace.
fn add_checksums(packages: &mut Packages, lock: &str) {
    for entry in lock.split("[[package]]") {
        let value = |key: &str| {
            let mut lines = entry.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        let (Some(name), Some(version)) = (value("name"), value("version")) else {
            continue;
        };
        if let Some(package) = packages.get_mut(&crate_url(name, version)) {
            package.sha256 = value("checksum").map(str::to_owned);
        }
    }
}

fn document(packages: &Packages, created: &str) -> Value {
    let own_url = crate_url("frostline", VERSION);
    let (own, others): (Vec<_>, Vec<_>) = packages.iter().partition(|(url, _)| **url == own_url);
    let libraries = others
        .iter()
        .map(|(url, package)| component("library", url, package));
    let dependencies = packages.iter().map(|(url, package)| {
        json!({
            "ref": url,
            "dependsOn": package.dependencies,
        })
    });
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": own.first().map(|(url, package)| component("application", url, package)),
        },
        "components": libraries.collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    })
}

fn component(kind: &str, url: &str, package: &Package) -> Value {
    let hashes = package
        .sha256
        .iter()
        .map(|sha256| json!({"alg": "SHA-256", "content": sha256}));
    json!({
        "type": kind,
        "bom-ref": url,
        "purl": url,
        "name": package.name,
        "version": package.version,
        "licenses": [{"expression": package.license}],
        "hashes": hashes.collect::<Vec<_>>(),
    })
}

/// Derives a version 8 UUID from a SHA-256.
fn uuid(digest: &str) -> String {
    let part = |digits: Range<usize>| digest.get(digits).unwrap_or_default();
    format!(
        "{}-{}-8{}-8{}-{}",
        part(0..8),
        part(8..12),
        part(12..15),
        part(15..18),
        part(18..30)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
0 frostline v0.2.0 (/frostline/runtime/cli)|MIT OR Apache-2.0
1 anyhow v1.0.1|MIT/Apache-2.0
1 zstd v1.0.0|MIT
2 zstd-sys v2.0.0+zstd.1.5|MIT / Apache-2.0
2 anyhow v1.0.1|MIT/Apache-2.0 (*)
1 serde v1.0.0|MIT
";

    #[test]
    fn a_tree_gives_crates_with_their_dependencies() {
        let mut packages = crates(TREE).unwrap();
        let dependencies =
            |name: &str| Vec::from_iter(packages[name].dependencies.iter().map(String::as_str));
        let (anyhow, sys) = ("pkg:cargo/anyhow@1.0.1", "pkg:cargo/zstd-sys@2.0.0%2Bzstd.1.5");
        let direct = [anyhow, "pkg:cargo/serde@1.0.0", "pkg:cargo/zstd@1.0.0"];
        assert_eq!(dependencies("pkg:cargo/frostline@0.2.0"), direct);
        assert_eq!(dependencies("pkg:cargo/zstd@1.0.0"), [anyhow, sys]);
        assert_eq!(packages[anyhow].license, "MIT OR Apache-2.0");
        assert_eq!(packages[sys].license, "MIT OR Apache-2.0");

        let lock = "[[package]]\nname = \"anyhow\"\nversion = \"1.0.1\"\nchecksum = \"ab\"\n";
        add_checksums(&mut packages, lock);
        assert_eq!(packages[anyhow].sha256.as_deref(), Some("ab"));
        assert!(crates("frostline v0.2.0").is_err());
    }

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(uuid(of_nothing), "e3b0c442-98fc-81c1-849a-fbf4c8996fb9");
    }
}
