//! The Debian package: the command, ONNX Runtime, and a systemd unit for a host.

use super::tools::{is_root, missing};
use super::{CheckResult, Setup};
use crate::workspace::{output, root, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the package.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// The highest exposure level that systemd may report for the unit, from 0 to 10.
const MAX_EXPOSURE: f64 = 1.5;

/// The variable that says when what is built was last changed: <https://reproducible-builds.org/specs/source-date-epoch/>.
pub(super) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// What an operator reads, and Prometheus.
const DOCUMENTS: [&str; 12] = [
    "runtime/docs/operating.md",
    "runtime/docs/incidents.md",
    "runtime/docs/security.md",
    "runtime/docs/capacity.md",
    "runtime/server/docs/http.md",
    "runtime/server/docs/tenants.md",
    "runtime/server/docs/accounting.md",
    "runtime/server/docs/state.md",
    "runtime/server/docs/metrics.md",
    "runtime/server/docs/tracing.md",
    "runtime/deploy/helm/frostline/files/rules.yaml",
    "runtime/deploy/deb/prometheus.yml",
];

const TOOLS: [(&str, &str); 4] = [
    ("dpkg-deb", "dpkg"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("strip", "binutils"),
    ("gzip", "gzip"),
];

fn folder() -> PathBuf {
    root().join("runtime/deploy/deb")
}

/// Writes the package, once, and returns its file.
pub(super) fn build(setup: &Setup) -> Result<&Path> {
    if let Some(built) = setup.package.get() {
        return Ok(built);
    }
    let built = build_package(setup)?;
    Ok(setup.package.get_or_init(|| built))
}

/// When what is built was last changed, in seconds since 1970: as the environment says, or the last commit.
pub(super) fn epoch() -> Result<String> {
    if let Ok(given) = std::env::var(EPOCH) {
        return Ok(given);
    }
    let committed = output(
        Command::new("git")
            .current_dir(root())
            .args(["log", "-1", "--format=%ct"]),
    )?;
    Ok(committed.trim().to_owned())
}

fn build_package(setup: &Setup) -> Result<PathBuf> {
    if let Some(why) = missing(&TOOLS) {
        bail!("{why}");
    }
    let tree = setup.folder.join("deb");
    let _ = fs::remove_dir_all(&tree);
    Tree(&tree).fill(setup)?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let file = setup
        .folder
        .join(format!("frostline_{VERSION}_{}.deb", architecture.trim()));
    write_control(setup, &tree, architecture.trim())?;
    // Sums for `dpkg --verify`.
    let sums = output(
        Command::new("sh")
            .current_dir(&tree)
            .args(["-c", "find usr -type f | sort | xargs md5sum"]),
    )?;
    Tree(&tree).write("DEBIAN/md5sums", &sums)?;
    output(
        Command::new("dpkg-deb")
            .env(EPOCH, epoch()?)
            .args(["--root-owner-group", "-Zxz", "-z1", "--build"])
            .arg(&tree)
            .arg(&file),
    )?;
    fs::remove_dir_all(&tree)?;
    Ok(file)
}

/// The files of the package, below a folder.
struct Tree<'a>(&'a Path);

impl Tree<'_> {
    fn fill(&self, setup: &Setup) -> Result<()> {
        let program = self.path("usr/lib/frostline/frostline")?;
        strip(&setup.frostline, &program, 0o755)?;
        // The command finds the library there.
        let library = self.path("usr/lib/frostline/onnxruntime/libonnxruntime.so")?;
        strip(&setup.library, &library, 0o644)?;
        symlink("../lib/frostline/frostline", self.path("usr/bin/frostline")?)?;
        self.copy(
            "frostline.service",
            "usr/lib/systemd/system/frostline.service",
            0o644,
        )?;
        self.copy("host.toml", "etc/frostline/host.toml", 0o644)?;
        self.copy("copyright", "usr/share/doc/frostline/copyright", 0o644)?;
        self.copy(
            "lintian-overrides",
            "usr/share/lintian/overrides/frostline",
            0o644,
        )?;
        self.write("DEBIAN/conffiles", "/etc/frostline/host.toml\n")?;
        for script in ["postinst", "prerm", "postrm"] {
            self.copy(script, &format!("DEBIAN/{script}"), 0o755)?;
        }
        self.documents(setup)
    }

    /// Manual pages, completions, the changelog, the operators' pages, and the alerts.
    fn documents(&self, setup: &Setup) -> Result<()> {
        let pages = self.path("usr/share/man/man1/x")?;
        let pages = pages.parent().context("no folder for manual pages")?;
        output(
            Command::new(&setup.frostline)
                .args(["man", "--directory"])
                .arg(pages),
        )?;
        for page in fs::read_dir(pages)?.flatten() {
            mode(&page.path(), 0o644)?;
            self.compress(&page.path())?;
        }
        let shells = [
            ("bash", "bash-completion/completions/frostline"),
            ("zsh", "zsh/vendor-completions/_frostline"),
            ("fish", "fish/vendor_completions.d/frostline.fish"),
        ];
        for (shell, place) in shells {
            let words = output(Command::new(&setup.frostline).args(["completions", shell]))?;
            self.write(&format!("usr/share/{place}"), &words)?;
        }
        let changelog = fs::read_to_string(folder().join("changelog"))?.replace("@version@", VERSION);
        self.write("usr/share/doc/frostline/changelog.Debian", &changelog)?;
        self.compress(&self.0.join("usr/share/doc/frostline/changelog.Debian"))?;
        for page in DOCUMENTS {
            let text = fs::read_to_string(root().join(page))?;
            let name = page.rsplit('/').next().unwrap_or(page);
            let place = format!("usr/share/doc/frostline/{name}");
            self.write(&place, &text)?;
            self.compress(&self.0.join(place))?;
        }
        Ok(())
    }

    fn compress(&self, file: &Path) -> Result<()> {
        run(Command::new("gzip").args(["-9", "--no-name"]).arg(file))
    }

    fn copy(&self, name: &str, place: &str, bits: u32) -> Result<()> {
        let place = self.path(place)?;
        fs::copy(folder().join(name), &place).with_context(|| format!("runtime/deploy/deb/{name}"))?;
        mode(&place, bits)
    }

    fn write(&self, place: &str, text: &str) -> Result<()> {
        let place = self.path(place)?;
        fs::write(&place, text)?;
        mode(&place, 0o644)
    }

    /// The path of a file in the package; creates its folders.
    fn path(&self, place: &str) -> Result<PathBuf> {
        let mut path = self.0.to_owned();
        fs::create_dir_all(&path)?;
        let mut parts = place.split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            if parts.peek().is_some() && !path.is_dir() {
                fs::create_dir(&path)?;
                mode(&path, 0o755)?;
            }
        }
        Ok(path)
    }
}

fn mode(path: &Path, bits: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(bits))?)
}

/// Copies a program or library without debugging symbols.
fn strip(file: &Path, place: &Path, bits: u32) -> Result<()> {
    let unneeded = [
        "--strip-unneeded",
        "--remove-section=.comment",
        "--remove-section=.note",
        "-o",
    ];
    output(Command::new("strip").args(unneeded).arg(place).arg(file))?;
    mode(place, bits)
}

/// Writes the control file, with the packages whose libraries are needed.
fn write_control(setup: &Setup, tree: &Path, architecture: &str) -> Result<()> {
    let scratch = setup.folder.join("shlibdeps");
    fs::create_dir_all(scratch.join("debian"))?;
    fs::write(
        scratch.join("debian/control"),
        "Source: frostline\n\nPackage: frostline\nArchitecture: any\n",
    )?;
    let tree = tree.canonicalize()?;
    let own = tree.join("usr/lib/frostline");
    let needed = output(
        Command::new("dpkg-shlibdeps")
            .current_dir(&scratch)
            .args(["-O", "--warnings=0"])
            .arg(own.join("frostline"))
            .arg(own.join("onnxruntime/libonnxruntime.so")),
    )?;
    let depends = needed
        .trim()
        .strip_prefix("shlibs:Depends=")
        .context("dpkg-shlibdeps printed no dependencies")?;
    let size = output(
        Command::new("du")
            .args(["--summarize", "--block-size=1K"])
            .arg(&tree),
    )?;
    let size = size.split_whitespace().next().unwrap_or_default();
    let control = fs::read_to_string(folder().join("control"))?
        .replace("@version@", VERSION)
        .replace("@architecture@", architecture)
        .replace("@depends@", depends)
        .replace("@size@", size);
    fs::remove_dir_all(&scratch)?;
    Tree(&tree).write("DEBIAN/control", &control)
}

/// Checks the package with lintian, then installs, runs and purges it in a temporary Debian.
pub(super) fn check(setup: &Setup) -> Result<CheckResult> {
    if let Some(why) =
        missing(&TOOLS).or_else(|| missing(&[("lintian", "lintian"), ("mmdebstrap", "mmdebstrap")]))
    {
        return Ok(CheckResult::Skipped(why));
    }
    let file = build(setup)?;
    let first = fs::read(file)?;
    if fs::read(build_package(setup)?)? != first {
        bail!("the package built twice differs; compare the two with diffoscope");
    }
    drop(first);
    let lint = Command::new("lintian")
        .args([
            "--fail-on",
            "error,warning",
            "--no-tag-display-limit",
            "--allow-root",
        ])
        .arg(file)
        .output()?;
    if !lint.status.success() {
        bail!("lintian: {}", String::from_utf8_lossy(&lint.stdout));
    }
    let megabytes = fs::metadata(file)?.len() / 1_000_000;
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if !is_root() {
        return Ok(CheckResult::Skipped(format!(
            "{name} ({megabytes} MB) passes lintian; installing it needs root"
        )));
    }
    install(file)?;
    Ok(CheckResult::Passed(format!(
        "{name} ({megabytes} MB) is equal when built twice and passes lintian; installed, ran and purged in a temporary Debian"
    )))
}

/// Installs, runs and purges the package in a temporary Debian.
fn install(file: &Path) -> Result<()> {
    let inside = "/root/frostline.deb";
    let hook = |words: String| format!("--customize-hook={words}");
    let script_text = format!(
        "set -eu; apt-get install -y --no-install-recommends {inside} >/dev/null 2>&1; frostline --version; \
         frostline model list --help >/dev/null; test -f /lib/systemd/system/frostline.service; getent passwd frostline >/dev/null; \
         systemctl --version >/dev/null 2>&1 && systemd-analyze verify --man=no frostline.service; \
         apt-get purge -y frostline >/dev/null 2>&1; test ! -e /usr/bin/frostline; test ! -e /etc/frostline"
    );
    let script = std::env::temp_dir().join(format!("frostline-installed-{}", std::process::id()));
    fs::write(&script, script_text)?;
    let installed = output(
        Command::new("mmdebstrap")
            .args(["--variant=apt", "--include=systemd"])
            .arg(hook(format!("copy-in '{}' /root", file.display())))
            .arg(hook(format!("mv \"$1\"/root/frostline_*.deb \"$1\"{inside}")))
            .arg(hook(format!("chroot \"$1\" sh < '{}'", script.display())))
            .arg(super::image::suite()?)
            .arg("/dev/null"),
    );
    fs::remove_file(script)?;
    installed.map(drop)
}

/// Checks that systemd accepts the unit and rates its exposure no higher than [`MAX_EXPOSURE`].
pub(super) fn check_unit(_: &Setup) -> Result<CheckResult> {
    if let Some(why) = missing(&[("systemd-analyze", "systemd")]) {
        return Ok(CheckResult::Skipped(why));
    }
    let unit = folder().join("frostline.service");
    let report = output(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(&unit),
    )?;
    let line = report
        .lines()
        .rev()
        .find(|line| line.contains("Overall exposure level"));
    let level = line.and_then(|line| line.split_whitespace().find_map(|word| word.parse::<f64>().ok()));
    let level = level.context("systemd-analyze printed no exposure level")?;
    if level > MAX_EXPOSURE {
        bail!("the unit's exposure is {level}, limit {MAX_EXPOSURE}:\n{report}");
    }
    Ok(CheckResult::Passed(format!(
        "exposure {level} of 10 by systemd-analyze security"
    )))
}
