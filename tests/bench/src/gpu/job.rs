//! Measures epochs of a complete job from photos to training steps: at the planned split, at fixed splits, and
//! in PyTorch, with host and trainer on this machine.

use super::{Extent, torch};
use crate::networks::{Grid, exported};
use crate::report::{Report, median};
use crate::run::{binary, text, train};
use anyhow::{Context, Result};
use frostline_e2e::HostProcess;
use frostline_engine::Device;
use serde_json::Value;
use std::path::Path;

/// Images per step.
const BATCH: &str = "64";

/// Part of the photos for validation, which the host also computes in each epoch.
const VALIDATION: &str = "0.05";

/// Minimum number of photos. The photos in the folder are repeated to reach it.
const PHOTOS: usize = 2048;
const QUICK_PHOTOS: usize = 40;

/// Number of epochs. The first one is a warm-up for opening sessions and correcting plans.
const EPOCHS: usize = 4;
const QUICK_EPOCHS: usize = 2;

/// Fixed splits before the freeze cut, in order of importance. The freeze cut is measured first.
const SPLITS: [&str; 4] = ["none", "layer4.0", "layer2.3", "input"];
const QUICK_SPLITS: [&str; 1] = ["none"];

/// Measurements of a job in a precision.
struct Job<'a> {
    extent: &'a Extent,
    network: &'a str,
    freeze: String,
    /// Precision of the job, and its name in PyTorch and in figures.
    precision: (&'static str, &'static str),
    data: &'a Path,
    photos: usize,
    epochs: usize,
}

pub(super) fn run(report: &mut Report, extent: &Extent) -> Result<()> {
    let Some(network) = extent.networks.first() else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("photos");
    let least = if report.quick() { QUICK_PHOTOS } else { PHOTOS };
    let photos = repeat(&report.photos().part("train"), &data, least)?;
    println!("\n{network} on {photos} photos, steps of {BATCH}");
    let precisions: &[_] = match extent.device {
        Device::Cpu => &[("full", "f32")],
        Device::Cuda(_) => &[("tf32", "tf32"), ("f16", "f16"), ("full", "f32")],
    };
    for &precision in precisions {
        if !extent.has_time(&format!("job in {}", precision.1)) {
            break;
        }
        let host = HostProcess::start(
            &binary()?,
            &folder.path().join(format!("host-{}", precision.1)),
            text(&data)?,
            &["--device", &extent.device.to_string()],
        )?;
        let job = Job {
            extent,
            network,
            freeze: Grid::read()?.network(network)?.freeze.clone(),
            precision,
            data: &data,
            photos,
            epochs: if report.quick() { QUICK_EPOCHS } else { EPOCHS },
        };
        job.measure(report, &host)?;
    }
    Ok(())
}

impl Job<'_> {
    /// Measures the planned split, PyTorch, and as many fixed splits as there is time for.
    fn measure(&self, report: &mut Report, host: &HostProcess) -> Result<()> {
        let (_, precision) = self.precision;
        let name = |figure: &str| format!("job_{precision}_{figure}");
        let (planned, split) = self.rate(host, "auto")?;
        println!("{precision:<5} {planned:>10.0} images/s at the planned split, {split}");
        report.set(&name("auto_split"), split);
        report.set(&name("auto_images_per_second"), planned);
        let (mut best, _) = self.rate(host, &self.freeze)?;
        println!("{precision:<5} {best:>10.0} images/s at the freeze cut");
        report.set(&name("freeze_images_per_second"), best);
        if self.extent.has_time("PyTorch's job") {
            let torch = torch::job(
                self.extent,
                self.network,
                self.data,
                precision,
                BATCH,
                self.epochs,
            )?;
            println!("{precision:<5} {torch:>10.0} images/s by PyTorch");
            report.set(&name("pytorch_images_per_second"), torch);
            report.set(&name("ratio_vs_pytorch"), planned / torch);
        }
        let splits: &[&str] = if report.quick() { &QUICK_SPLITS } else { &SPLITS };
        for split in splits {
            if !self.extent.has_time(split) {
                break;
            }
            let (rate, _) = self.rate(host, split)?;
            println!("{precision:<5} {rate:>10.0} images/s at {split}");
            report.set(&name(&format!("{split}_images_per_second")), rate);
            best = best.max(rate);
            // Set again after each split, because the next one may exceed the time limit.
            report.set(&name("regret"), best / planned - 1.0);
        }
        Ok(())
    }

    /// Returns the images per second in the median of the epochs after the first, and the split at the end.
    fn rate(&self, host: &HostProcess, split: &str) -> Result<(f64, String)> {
        let folder = tempfile::tempdir()?;
        let (file, url) = (exported(self.network)?, host.url());
        let (device, epochs) = (self.extent.device.to_string(), self.epochs.to_string());
        let mut flags = vec!["--host", &url, "--token-file", text(host.token_file())?];
        flags.extend(["--split", split, "--batch", BATCH, "--epochs", &epochs]);
        flags.extend(["--precision", self.precision.0, "--device", &device]);
        // With random weights, features are so large that training diverges at common learning rates.
        flags.extend([
            "--feature-cache",
            "off",
            "--lr",
            "1e-9",
            "--validation",
            VALIDATION,
        ]);
        let events = train(&file, self.data, &self.freeze, folder.path(), &flags)?;
        let named = |name: &'static str| {
            let of_name = move |event: &&Value| event.get("event").and_then(Value::as_str) == Some(name);
            events.iter().filter(of_name)
        };
        let seconds = named("epoch")
            .skip(1)
            .filter_map(|event| event.get("seconds")?.as_f64());
        let seconds = median(&seconds.collect::<Vec<_>>());
        let used = named("done")
            .next_back()
            .and_then(|event| event.get("split")?.as_str());
        let used = used.context("the job reported no split")?;
        Ok((self.photos as f64 / seconds, used.to_owned()))
    }
}

/// Copies the photos in `from` to `to`, repeatedly until there are at least `count`. Returns the number of
/// copies.
fn repeat(from: &Path, to: &Path, count: usize) -> Result<usize> {
    let classes = std::fs::read_dir(from)?.collect::<Result<Vec<_>, _>>()?;
    let most = count.div_ceil(classes.len().max(1));
    let mut linked = 0;
    for round in 0.. {
        for class in &classes {
            let folder = to.join(class.file_name());
            std::fs::create_dir_all(&folder)?;
            for photo in std::fs::read_dir(class.path())?.take(most) {
                let photo = photo?;
                let name = photo.file_name();
                std::fs::copy(
                    photo.path(),
                    folder.join(format!("{round}-{}", name.to_string_lossy())),
                )?;
                linked += 1;
            }
        }
        if linked >= count || linked == 0 {
            break;
        }
    }
    Ok(linked)
}
