//! `frostline profile`, which measures a network at each cut on a host.

use crate::arguments::ProfileFlags;
use crate::host::{HostConnection, data_url};
use crate::output::{bytes, print_json, print_table, write_file};
use crate::train::{model_name, read_model_and_pixels};
use anyhow::{Result, bail};
use frostline_report::CutCost;
use frostline_trainer::{Guest, HostStudy, StudyJob, frozen_up_to, study};
use frostline_wire::CutProfile;
use tokio_util::sync::CancellationToken;

/// Batch size for the compute times, which is the usual grant of a host.
const BATCH: f64 = 16.0;

pub(crate) async fn run(flags: ProfileFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    let pixels = flags.pixels.settings()?;
    let model = read_model_and_pixels(&flags.inputs.model, &flags.inputs.interface, &pixels)?;
    let (model, freeze) = frozen_up_to(model, flags.freeze.as_deref())?;
    let name = model_name(&flags.inputs.model);
    let job = StudyJob {
        model,
        model_name: name.clone(),
        freeze,
        root: data_url(&flags.inputs.data)?,
        layout: flags.inputs.layout,
        guest: Guest::stock(),
        pixels,
    };
    let connection = HostConnection::open(flags.host.access(), &job.root, &flags.device).await?;
    let client = connection.client()?;
    let studied = tokio::select! {
        studied = study(job, &client) => studied.map_err(Into::into),
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted before the profile was complete")),
    };
    connection.close().await;
    let studied = studied?;
    if let Some(file) = &flags.plot {
        write_file("the figure to ", file, figure(&name, &studied).as_bytes())?;
    }
    if json {
        return Ok(print_json(&studied)?);
    }
    show(&name, &studied)?;
    if let Some(file) = &flags.plot {
        say!("\nfigure written to {}", file.display());
    }
    Ok(())
}

/// Returns the figure for `--plot` with the name of the network in the title.
fn figure(name: &str, study: &HostStudy) -> String {
    let platform = &study.profile.platform;
    let cuts = study.profile.cuts.iter().map(|cut| CutCost {
        name: cut.name.clone(),
        bytes: cut.bytes_per_sample,
        milliseconds: seconds_alone(cut) * 1e3,
    });
    let title = format!("{name}: bytes and compute up to each cut");
    let subtitle = format!(
        "measured on {}, threads per lane: {}, batches of {BATCH:.0}",
        platform.machine, platform.threads_per_lane
    );
    let weights = [study.object_bytes, study.input_bytes];
    frostline_report::cuts(&title, &subtitle, &cuts.collect::<Vec<_>>(), weights)
}

fn show(name: &str, study: &HostStudy) -> Result<()> {
    let profile = &study.profile;
    let on = &profile.platform;
    say!("{name} up to {}", study.freeze);
    say!(
        "on {}, {}, {}; {} lanes with {} threads each",
        on.machine,
        on.device,
        on.library,
        on.lanes,
        on.threads_per_lane
    );
    say!(
        "objects: {} (mean of {}), read in {:.1} ms, decoded in {:.1} ms by one thread; pixels: {}",
        bytes(study.object_bytes),
        study.objects,
        profile.read_seconds_per_sample * 1e3,
        profile.decode_seconds_per_sample * 1e3,
        bytes(study.input_bytes)
    );
    let encodings = encodings(&profile.cuts);
    if profile.cuts.is_empty() {
        bail!("the host did not measure any cut of the network");
    }
    table(study, &encodings)?;
    say!(
        "\nmilliseconds per image for a batch of {BATCH:.0} on a single busy lane, or (all busy) on all lanes; measured in {:.1} s",
        profile.measured_in_seconds
    );
    if profile.disturbed {
        say!(
            "the host was also busy with other work, so the times may be too long; repeat the measurement on an idle host"
        );
    }
    Ok(())
}

fn encodings(cuts: &[CutProfile]) -> Vec<String> {
    let names = cuts.first().map(|cut| cut.encoded.keys().cloned().collect());
    let names: Vec<String> = names.unwrap_or_default();
    names.into_iter().filter(|name| name != "f32").collect()
}

fn kilobytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e3)
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2}", seconds * 1e3)
}

/// Returns the seconds per image up to a cut, without other work on the host.
fn seconds_alone(cut: &CutProfile) -> f64 {
    cut.compute.at(BATCH) / BATCH
}

fn table(study: &HostStudy, encodings: &[String]) -> Result<()> {
    let all = study.profile.cuts.last().map_or(1.0, seconds_alone);
    let encoded: String = encodings.iter().map(|name| format!("KB AS {name}>|")).collect();
    let columns =
        format!("CUT|SHAPE|KB>|{encoded}MS PER IMAGE>|OWN MS>|SHARE>|ALL BUSY>|MEMORY MB>|PER IMAGE MB>");
    let mut before = 0.0;
    let mut rows = Vec::new();
    for (cut, shape) in study.profile.cuts.iter().zip(&study.shapes) {
        let seconds = seconds_alone(cut);
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        let mut row = vec![
            cut.name.clone(),
            shape.join("x"),
            kilobytes(cut.bytes_per_sample as f64),
        ];
        let encoded = encodings.iter().map(|name| cut.encoded.get(name));
        row.extend(
            encoded.map(|encoded| encoded.map_or_else(String::new, |e| kilobytes(e.bytes_per_sample))),
        );
        row.extend([
            milliseconds(seconds),
            milliseconds(seconds - before),
            format!("{:.1} %", 100.0 * seconds / all.max(f64::MIN_POSITIVE)),
            milliseconds(cut.busy_seconds_per_sample),
            format!("{:.1}", cut.memory.fixed / 1e6),
            format!("{:.2}", cut.memory.per_sample / 1e6),
        ]);
        rows.push(row);
        before = seconds;
    }
    print_table(&columns, rows)
}
