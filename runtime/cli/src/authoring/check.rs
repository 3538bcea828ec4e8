use super::workbench::{LocalModel, read_guest};
use crate::arguments::CheckGuest;
use crate::output::{bytes, print_json, print_table};
use anyhow::{Result, bail};
use frostline_sandbox::{EXPORT, Guest, Sandbox, SandboxConfig, SandboxError};
use frostline_wire::{Description, Pixels};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// Name of the check of the network.
const MODEL: &str = "model";

/// Result of one check.
#[derive(Debug, Serialize)]
struct GuestCheck {
    check: &'static str,
    ok: bool,
    detail: String,
}

/// Check results for a guest, in the same order as on a host.
#[derive(Debug, Default, Serialize)]
struct GuestVerdict {
    bytes: u64,
    sha256: Option<String>,
    imports: Vec<String>,
    description: Option<Description>,
    /// Problem that does not prevent an upload but causes refused calls when the guest runs.
    warning: Option<&'static str>,
    checks: Vec<GuestCheck>,
}

/// Prints the results.
///
/// # Errors
/// Returns an error if a host would refuse the guest or the model.
pub(super) async fn run(flags: &CheckGuest, json: bool) -> Result<()> {
    let bytes = read_guest(&flags.file)?;
    let model = flags.model.as_deref();
    let model = model
        .map(|file| LocalModel::read(file, &flags.interface))
        .transpose()?;
    let verdict = judge(bytes, model.as_ref(), &flags.parameters).await?;
    show(&verdict, &flags.file, json)?;
    match verdict.checks.iter().find(|check| !check.ok) {
        // The reason is already in the printed results.
        Some(failed) if failed.check == MODEL => bail!("a host would refuse this model"),
        Some(failed) => bail!("a host would refuse this guest: {} failed", failed.check),
        None => Ok(()),
    }
}

/// Runs the upload checks of the guest and, if given, of the model, then calls `describe` with the model.
/// Stops at the first failure, which is part of the result.
async fn judge(guest: Vec<u8>, model: Option<&LocalModel>, parameters: &str) -> Result<GuestVerdict> {
    let config = SandboxConfig::default();
    let mut verdict = GuestVerdict {
        bytes: guest.len() as u64,
        ..GuestVerdict::default()
    };
    let size = format!(
        "{} of {}",
        bytes(verdict.bytes),
        bytes(config.upload_bytes as u64)
    );
    let form = if guest.get(4..8).is_some_and(|version| version == [1, 0, 0, 0]) {
        "a core module, converted to a component"
    } else {
        "a component"
    };
    let sandbox = Sandbox::new(config)?;
    let started = Instant::now();
    let prepared = sandbox.prepare(guest).await;
    let compiled = format!("in {:.2} s", started.elapsed().as_secs_f64());
    let failed = prepared.as_ref().err().map(check_of);
    if let Ok(guest) = &prepared {
        verdict.sha256 = Some(guest.sha256().to_owned());
        verdict.imports = guest.imports();
        verdict.warning = guest.refused_import();
    }
    let imports = match verdict.imports.as_slice() {
        [] => "only those available to guests".to_owned(),
        imports => imports.join(", "),
    };
    // In the order of a host, which ends with the failed check.
    let checks = [
        ("size", size),
        ("form", form.to_owned()),
        ("imports", imports),
        ("exports", EXPORT.to_owned()),
        ("compile", compiled),
    ];
    let passed = checks.into_iter().take_while(|(check, _)| failed != Some(*check));
    passed.for_each(|(check, detail)| _ = verdict.add(check, Ok(detail)));
    match (prepared, model) {
        (Ok(guest), Some(model)) if verdict.takes(model) => verdict.ask(&guest, model, parameters).await,
        (Ok(_), _) => {}
        (Err(error), _) => _ = verdict.add(check_of(&error), Err(error.to_string())),
    }
    Ok(verdict)
}

impl GuestVerdict {
    /// Adds the result of a check with the text for users, and returns true if it was successful.
    fn add(&mut self, check: &'static str, result: Result<String, String>) -> bool {
        let ok = result.is_ok();
        let (Ok(detail) | Err(detail)) = result;
        self.checks.push(GuestCheck { check, ok, detail });
        ok
    }

    /// Checks the model with a host's default limits, and returns true if it is accepted.
    fn takes(&mut self, model: &LocalModel) -> bool {
        let admitted = model.admit();
        let admitted = admitted.map(|size| format!("{} in a single file", bytes(size)));
        self.add(MODEL, admitted.map_err(|refused| format!("{refused:#}")))
    }

    async fn ask(&mut self, guest: &Guest, model: &LocalModel, parameters: &str) {
        let described = guest.describe(&model.view, parameters).await;
        let text = match &described {
            Ok(description) => Ok(in_words(description, model.view.cuts.len())),
            Err(error) => Err(error.to_string()),
        };
        self.add("describe", text);
        self.description = described.ok();
    }
}

/// Returns the name of the check that fails with this error.
fn check_of(error: &SandboxError) -> &'static str {
    match error {
        SandboxError::GuestTooLarge { .. } => "size",
        SandboxError::OtherWorld { imports, exports, .. } if imports.is_empty() && !exports.is_empty() => {
            "exports"
        }
        SandboxError::OtherWorld { .. } => "imports",
        SandboxError::TooCostly { .. } | SandboxError::PrepareDeadline { .. } => "compile",
        _ => "form",
    }
}

fn in_words(description: &Description, cuts: usize) -> String {
    let pixels = match description.pixels {
        Pixels::Spec(_) => "pixels by the host",
        Pixels::Own => "pixels by the guest",
    };
    format!(
        "{} {}, {pixels}, {} of {cuts} cuts",
        description.name,
        description.version,
        description.cuts.len()
    )
}

fn show(verdict: &GuestVerdict, file: &Path, json: bool) -> Result<()> {
    if json {
        let accepted = verdict.checks.iter().all(|check| check.ok);
        let mut object = serde_json::to_value(verdict)?;
        if let Some(fields) = object.as_object_mut() {
            fields.insert("file".to_owned(), file.display().to_string().into());
            fields.insert("accepted".to_owned(), accepted.into());
        }
        return Ok(print_json(&object)?);
    }
    let rows = verdict.checks.iter().map(|check| {
        let word = if check.ok { "ok" } else { "refused" };
        [check.check.to_owned(), word.to_owned(), check.detail.clone()]
    });
    print_table("CHECK|RESULT|DETAIL", rows)?;
    if let Some(warning) = verdict.warning {
        say!("\nwarning: {warning}");
    }
    if verdict.checks.iter().all(|check| check.ok) {
        say!("\na host would accept this guest");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_sandbox::CompileCost;

    async fn checks(guest: &[u8]) -> Vec<(&'static str, bool)> {
        let verdict = judge(guest.to_vec(), None, "").await.unwrap();
        verdict
            .checks
            .iter()
            .map(|check| (check.check, check.ok))
            .collect()
    }

    #[tokio::test]
    async fn invalid_guests_fail_at_the_same_check_as_on_a_host() {
        assert_eq!(checks(b"import torch").await, [("size", true), ("form", false)]);
        // An empty component.
        assert_eq!(
            checks(b"\0asm\x0d\0\x01\0").await,
            [
                ("size", true),
                ("form", true),
                ("imports", true),
                ("exports", false)
            ]
        );
    }

    #[test]
    fn what_takes_too_much_to_compile_fails_there() {
        let costly = SandboxError::TooCostly {
            cost: CompileCost::MemoryBytes,
            allowed: 1,
        };
        assert_eq!(check_of(&costly), "compile");
    }

    #[tokio::test]
    async fn a_large_file_fails_by_its_size() {
        let most = SandboxConfig::default().upload_bytes;
        assert_eq!(checks(&vec![0; most + 1]).await, [("size", false)]);
    }
}
