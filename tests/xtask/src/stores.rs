//! Starts third-party object stores, runs the tests against them, and prints a table of results.

use crate::test::{self, Environment};
use crate::workspace::{root, target};
use crate::{ort, python};
use anyhow::{Context, Result, bail};
use frostline_e2e::{OPERATIONS, STORES};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Server names, equal to the names of test modules, and scripts in `tests/stores/`.
const SERVERS: [(&str, &str); 4] = [
    ("azurite", "azurite.py"),
    ("fake_gcs", "fake_gcs.py"),
    ("swift", "swift.py"),
    ("moto", "moto_s3.py"),
];

/// Running server, stopped on drop.
struct Server {
    name: &'static str,
    version: String,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The script stops its server when standard input closes.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs `cargo xtask stores [--install] [--serve] [server..]`: starts each available server, runs the tests
/// of real stores against it, and prints the results. With `--serve`, the servers run until Enter is pressed,
/// without tests.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (flags, named): (Vec<&str>, Vec<&str>) = arguments
        .iter()
        .map(String::as_str)
        .partition(|word| word.starts_with("--"));
    let names = SERVERS.map(|(name, _)| name);
    if let Some(word) = named.iter().find(|word| !names.contains(*word)) {
        bail!("unknown server {word:?}; the servers are {}", names.join(", "));
    }
    if let Some(flag) = flags.iter().find(|flag| !["--install", "--serve"].contains(flag)) {
        bail!("unknown flag {flag}; the flags are --install and --serve");
    }
    let folder = target().join("stores");
    let _ = fs::remove_dir_all(folder.join("tried"));
    let path = python::ensure("tests/requirements.txt", "python")?;
    let mut servers = Vec::new();
    for (name, script) in SERVERS {
        if !named.is_empty() && !named.contains(&name) {
            continue;
        }
        match start(name, script, &folder, &path, flags.contains(&"--install")) {
            Ok(server) => servers.push(server),
            Err(error) => eprintln!("skipping {name}: {error:#}"),
        }
    }
    if servers.is_empty() {
        eprintln!("cannot test: no server is available; install servers with --install");
        return Ok(());
    }
    if flags.contains(&"--serve") {
        let files = servers
            .iter()
            .map(|server| folder.join(format!("{}.json", server.name)));
        files.for_each(|file| println!("{}", file.display()));
        println!("press Enter to stop the servers");
        std::io::stdin().read_line(&mut String::new())?;
        return Ok(());
    }
    let names: Vec<&str> = servers.iter().map(|server| server.name).collect();
    let environment = Environment {
        library: ort::ensure()?,
        path,
    };
    let (runner, mut command) = test::store_tests(&names, &environment);
    let ran = runner.run(command.env(STORES, &folder), None);
    println!("{}", table(&servers, &folder.join("tried")));
    ran.map(|count| eprintln!("stores: {count} tests on {} servers passed", servers.len()))
}

/// Starts a server and writes its connection file. With `install`, installs it first if necessary.
fn start(name: &'static str, script: &str, folder: &Path, path: &OsStr, install: bool) -> Result<Server> {
    // fake-gcs-server has a separate environment, because its packages may be unavailable on machines that
    // can install the others.
    let own = match name {
        "fake_gcs" => Some(python::ensure("tests/stores/requirements.txt", "stores-python")?),
        _ => None,
    };
    let mut child = Command::new("python3")
        .arg(root().join("tests/stores").join(script))
        .arg(folder.join(name))
        .args(install.then_some("--install"))
        .env("PATH", own.as_deref().unwrap_or(path))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start python3")?;
    let mut line = String::new();
    let output = child.stdout.take().context("no standard output")?;
    BufReader::new(output).read_line(&mut line)?;
    let mut server = Server {
        name,
        version: name.to_owned(),
        child,
    };
    let connection: Value =
        serde_json::from_str(&line).context("cannot start the server; see the output above")?;
    if let Some(reason) = connection.get("missing").and_then(Value::as_str) {
        bail!("{reason}");
    }
    fs::write(folder.join(format!("{name}.json")), &line)?;
    if let Some(version) = connection.get("version").and_then(Value::as_str) {
        version.clone_into(&mut server.version);
    }
    eprintln!("started {}", server.version);
    Ok(server)
}

/// Formats the results with a row per operation and a column per server.
fn table(servers: &[Server], tried: &Path) -> String {
    let row = |first: &str, cells: &mut dyn Iterator<Item = String>| {
        format!("| {first} | {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut text = row("", &mut servers.iter().map(|server| server.version.clone()));
    text += &row("---", &mut servers.iter().map(|_| "---".to_owned()));
    for operation in OPERATIONS {
        let note = |server: &Server| -> PathBuf { tried.join(server.name).join(operation) };
        let cell =
            |server| fs::read_to_string(note(server)).unwrap_or_else(|_| "not tested or failed".to_owned());
        text += &row(operation, &mut servers.iter().map(cell));
    }
    text
}
