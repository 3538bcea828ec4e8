//! Packs the Debian package: the command, ONNX Runtime, and a systemd unit for a host.

use super::command::COMPLETIONS;
use super::tree::Tree;
use super::{Build, EPOCH, VERSION, command, epoch, scratch};
use crate::workspace::{self, output, root, run};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian revision of the package.
const REVISION: &str = "1";

/// Operator documentation.
const DOCUMENTS: [&str; 14] = [
    "runtime/docs/operating.md",
    "runtime/docs/incidents.md",
    "runtime/docs/security.md",
    "runtime/docs/capacity.md",
    "runtime/docs/slo.md",
    "runtime/docs/reference/settings.md",
    "host-ops/objects/docs/stores.md",
    "runtime/server/docs/http.md",
    "runtime/server/docs/tenants.md",
    "runtime/server/docs/accounting.md",
    "runtime/state/docs/state.md",
    "runtime/server/docs/metrics.md",
    "runtime/server/docs/memory.md",
    "runtime/server/docs/tracing.md",
];

/// Files for Prometheus and Grafana, which cannot read compressed ones.
const EXAMPLES: [&str; 3] = [
    "runtime/deploy/deb/prometheus.yml",
    "runtime/deploy/helm/frostline/files/rules.yaml",
    "runtime/deploy/helm/frostline/files/dashboard.json",
];

pub(super) fn missing() -> Option<String> {
    const TOOLS: [(&str, &str); 3] = [
        ("dpkg-deb", "dpkg"),
        ("dpkg-shlibdeps", "dpkg-dev"),
        ("gzip", "gzip"),
    ];
    workspace::missing(&[&TOOLS[..], &command::TOOLS].concat())
}

pub(super) fn pack(build: &Build, to: &Path) -> Result<PathBuf> {
    let scratch = scratch("deb")?;
    let version = format!("{VERSION}-{REVISION}");
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let tree = Tree(scratch.join("tree"));
    fill(&tree, &build.command()?.folder)?;
    write_documents(&tree, &version)?;
    let depends = dependencies(&scratch, &tree.0)?;
    let sizes = output(
        Command::new("find")
            .arg(&tree.0)
            .args(["-type", "f", "-printf", "%s\n"]),
    )?;
    let sizes = sizes.lines().filter_map(|bytes| bytes.parse::<u64>().ok());
    let kibibytes: u64 = sizes.map(|bytes| bytes.div_ceil(1024)).sum();
    let control = fs::read_to_string(folder().join("control"))?
        .replace("@version@", &version)
        .replace("@architecture@", architecture)
        .replace("@depends@", &depends)
        .replace("@size@", &kibibytes.to_string());
    tree.write("DEBIAN/control", &control)?;
    // For `dpkg --verify`.
    let sums = output(
        Command::new("sh")
            .current_dir(&tree.0)
            .args(["-c", "find usr -type f | LC_ALL=C sort | xargs md5sum"]),
    )?;
    tree.write("DEBIAN/md5sums", &sums)?;
    let file = to.join(format!("frostline_{version}_{architecture}.deb"));
    // Checks favor speed: gzip is six times as fast as xz and the file is 44 % larger.
    let compression = if build.release { "-Zxz" } else { "-Zgzip" };
    output(
        Command::new("dpkg-deb")
            .env(EPOCH, epoch()?)
            .args(["--root-owner-group", compression, "-z1", "--build"])
            .arg(&tree.0)
            .arg(&file),
    )?;
    Ok(file)
}

fn folder() -> PathBuf {
    root().join("runtime/deploy/deb")
}

/// Adds the command, the unit, its configuration and the maintainer scripts.
fn fill(tree: &Tree, command: &Path) -> Result<()> {
    let own = |file: &str, place: &str, mode: u32| tree.copy(&folder().join(file), place, mode);
    tree.copy(&command.join("frostline"), "usr/lib/frostline/frostline", 0o755)?;
    let library = "onnxruntime/libonnxruntime.so";
    tree.copy(
        &command.join(library),
        &format!("usr/lib/frostline/{library}"),
        0o644,
    )?;
    symlink("../lib/frostline/frostline", tree.path("usr/bin/frostline")?)?;
    for page in fs::read_dir(command.join("share/man/man1"))?.flatten() {
        let place = format!("usr/share/man/man1/{}", page.file_name().display());
        tree.copy(&page.path(), &place, 0o644)?;
        compress(&tree.path(&place)?)?;
    }
    for (_, place) in COMPLETIONS {
        let debian = place.replace("site-functions", "vendor-completions");
        tree.copy(
            &command.join("share").join(place),
            &format!("usr/share/{debian}"),
            0o644,
        )?;
    }
    own(
        "frostline.service",
        "usr/lib/systemd/system/frostline.service",
        0o644,
    )?;
    own("host.toml", "etc/frostline/host.toml", 0o644)?;
    own("copyright", "usr/share/doc/frostline/copyright", 0o644)?;
    own(
        "lintian-overrides",
        "usr/share/lintian/overrides/frostline",
        0o644,
    )?;
    tree.write("DEBIAN/conffiles", "/etc/frostline/host.toml\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        own(script, &format!("DEBIAN/{script}"), 0o755)?;
    }
    Ok(())
}

/// Adds the changelog, [`DOCUMENTS`] and [`EXAMPLES`].
fn write_documents(tree: &Tree, version: &str) -> Result<()> {
    let changelog = fs::read_to_string(folder().join("changelog"))?.replace("@version@", version);
    let place = "usr/share/doc/frostline/changelog.Debian";
    tree.write(place, &changelog)?;
    compress(&tree.path(place)?)?;
    let name = |page: &'static str| page.rsplit('/').next().unwrap_or(page);
    for page in DOCUMENTS {
        let place = format!("usr/share/doc/frostline/{}", name(page));
        tree.copy(&root().join(page), &place, 0o644)?;
        compress(&tree.path(&place)?)?;
    }
    for example in EXAMPLES {
        let place = format!("usr/share/doc/frostline/examples/{}", name(example));
        tree.copy(&root().join(example), &place, 0o644)?;
    }
    Ok(())
}

fn compress(file: &Path) -> Result<()> {
    run(Command::new("gzip").args(["-9", "--no-name"]).arg(file))
}

/// Returns the package's `Depends` entries for the libraries that the command links.
fn dependencies(scratch: &Path, tree: &Path) -> Result<String> {
    fs::create_dir_all(scratch.join("debian"))?;
    fs::write(
        scratch.join("debian/control"),
        "Source: frostline\n\nPackage: frostline\nArchitecture: any\n",
    )?;
    let own = tree.join("usr/lib/frostline");
    let needed = output(
        Command::new("dpkg-shlibdeps")
            .current_dir(scratch)
            .args(["-O", "--warnings=0"])
            .arg(own.join("frostline"))
            .arg(own.join("onnxruntime/libonnxruntime.so")),
    )?;
    let depends = needed.trim().strip_prefix("shlibs:Depends=");
    Ok(depends
        .context("dpkg-shlibdeps printed no dependencies")?
        .to_owned())
}
