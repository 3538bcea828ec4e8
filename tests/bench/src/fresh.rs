//! Time from an empty machine to a trained epoch in Python: a new virtual environment, installation of the
//! wheel with pip, one epoch on the bundled photos.

use crate::package;
use crate::report::Report;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The program a new user would write for the bundled network and photos.
const EPOCH: &str = r#"
import sys, frostline
demo = sys.argv[1]
done = frostline.Client().train(f"{demo}/backbone.onnx", f"{demo}/photos", freeze="features", epochs=1, batch=32, lr=0.05)
print(f"validation accuracy {done['validation_accuracy']:.3f}")
"#;

/// Prints the time of each step. Sets `fresh_venv_seconds`, `fresh_install_seconds`, `fresh_epoch_seconds`
/// and the sum, `fresh_seconds`.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    let wheel = package::wheel()?;
    let folder = tempfile::tempdir()?;
    let (environment, python) = (folder.path().join("env"), folder.path().join("env/bin/python"));
    let demo = frostline_e2e::repository().join("models/zoo/demo");
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&environment);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    install.arg(&wheel);
    let mut train = Command::new(&python);
    train.args(["-c", EPOCH]).arg(&demo).current_dir(folder.path());
    // As on a machine without this repository.
    train.env_remove("ORT_DYLIB_PATH").env_remove("PYTHONPATH");
    let name = Path::new(&wheel)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    println!("\nfrom an empty machine to the first trained epoch:");
    let mut sum = 0.0;
    for (key, shown, command) in [
        ("venv", "python3 -m venv env".to_owned(), &mut make),
        ("install", format!("env/bin/pip install {name}"), &mut install),
        (
            "epoch",
            "env/bin/python -c 'frostline.Client().train(..)'".to_owned(),
            &mut train,
        ),
    ] {
        let since = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("cannot start {shown}"))?;
        let seconds = since.elapsed().as_secs_f64();
        ensure!(status.success(), "{shown}: {status}");
        println!("$ {shown:<60} {seconds:>6.1} s");
        report.set(&format!("fresh_{key}_seconds"), seconds);
        sum += seconds;
    }
    println!("{:<62} {sum:>6.1} s", "total");
    report.set("fresh_seconds", sum);
    Ok(())
}
