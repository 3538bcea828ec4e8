//! `frostline plan`, which shows the best split of a job, or simulates a split from recorded measurements.

use crate::arguments::PlanFlags;
use crate::output::{bytes, print_json, print_table, write_file};
use crate::reporter::Reporter;
use crate::train::spec;
use crate::training::connect;
use anyhow::{Context, Result, bail};
use frostline_tensor::format_number;
use frostline_trainer::{
    Explanation, Job, LinkPoint, Modules, Objective, PlannedJob, Simulation, Summary, Usage,
};
use frostline_wire::Split;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(flags: PlanFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    if let Some(file) = &flags.simulate {
        return simulate(file, &flags, json);
    }
    let mut job = job(&flags)?.checked().await?;
    let name = job.model_name();
    let modules = Modules::from_network(&job.model.network()?);
    let connection = connect(&mut job).await?;
    let reporter = Arc::new(Reporter::beside(json));
    let planning = frostline_trainer::plan(job, connection.hosts(), reporter.events());
    let planned = tokio::select! {
        planned = planning => planned.map_err(anyhow::Error::from),
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; nothing was changed")),
    };
    reporter.finish();
    connection.close().await;
    let planned = planned?;
    show(&planned, &modules, json)?;
    draw(&flags, &name, &planned.summary, &planned.over_links, json)
}

/// Draws the speed-up of the best split for different links, if `--plot` is set.
fn draw(flags: &PlanFlags, name: &str, summary: &Summary, points: &[LinkPoint], json: bool) -> Result<()> {
    let Some(file) = &flags.plot else {
        return Ok(());
    };
    if points.is_empty() {
        bail!("cannot draw the speed-up over the split 'none', because it is not a candidate");
    }
    let place = match summary.shared_cores {
        true => ", host and trainer on the same cores",
        false => "",
    };
    let how = match flags.simulate {
        Some(_) => "encodings as in the file",
        None => "measured once, planned anew for every link",
    };
    let subtitle = format!("batches of {}{place}; {how}", summary.batch);
    let figure = frostline_report::links(
        &format!("{name}: speed-up by pushdown for different links"),
        &subtitle,
        points,
        summary.link_bytes_per_second,
    );
    write_file("the figure to ", file, figure.as_bytes())?;
    if !json {
        say!("figure written to {}", file.display());
    }
    Ok(())
}

/// A plan with the measured link, and the duration of the decision without measurements.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    link: PrintedLink,
    choosing_seconds: f64,
}

#[derive(Serialize)]
struct PrintedLink {
    bytes_per_second: f64,
    round_trip_seconds: f64,
    connections: usize,
    connection_bytes_per_second: f64,
}

/// Flags that override a file with measurements.
const SIMULATED: [&str; 4] = ["split", "objective", "prices", "link_bytes_per_second"];

/// Plans with measurements from a file, without host or data.
fn simulate(file: &Path, flags: &PlanFlags, json: bool) -> Result<()> {
    if let Some(flag) = flags.job.given.other_than(&SIMULATED) {
        let said = format!(
            "the argument '--simulate <FILE>' cannot be used with '{flag}': the file contains this setting\n"
        );
        return Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, said).into());
    }
    let given = flags.job.given.settings()?;
    given.check_objective()?;
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut simulation = Simulation::parse(&text).with_context(|| unusable(file))?;
    simulation.objective = given.objective;
    simulation.prices = given.prices;
    if let Some(link) = given.link_bytes_per_second {
        simulation.link_bytes_per_second = link;
    }
    if let Some(candidates) = candidates(flags) {
        simulation = simulation
            .with_candidates(&candidates)
            .with_context(|| unusable(file))?;
    }
    let (summary, explanation) = simulation.plan(&given.split).with_context(|| unusable(file))?;
    if json {
        print_json(&summary)?;
    } else {
        print_plan(&summary, &explanation, &Modules::default())?;
        say!();
    }
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    draw(flags, &name, &summary, &simulation.over_links(), json)
}

fn unusable(file: &Path) -> String {
    format!("cannot use {}", file.display())
}

fn candidates(flags: &PlanFlags) -> Option<Vec<Split>> {
    let names = flags.candidates.iter().flat_map(|list| {
        let separator = if list.contains(';') { ';' } else { ',' };
        list.split(separator).map(str::trim)
    });
    let splits = names.filter(|name| !name.is_empty()).map(Split::from);
    Some(splits.collect()).filter(|splits: &Vec<Split>| !splits.is_empty())
}

fn job(flags: &PlanFlags) -> Result<Job> {
    let mut spec = spec(&flags.job, None)?;
    spec.candidates = candidates(flags);
    // No output is written.
    spec.out = Some(std::env::temp_dir().join("unused.onnx"));
    Ok(Job::open(spec)?)
}

fn show(planned: &PlannedJob, modules: &Modules, json: bool) -> Result<()> {
    let link = planned.link;
    if json {
        return Ok(print_json(&Printed {
            summary: &planned.summary,
            link: PrintedLink {
                bytes_per_second: link.bytes_per_second,
                round_trip_seconds: link.round_trip.as_secs_f64(),
                connections: link.connections,
                connection_bytes_per_second: link.connection_bytes_per_second,
            },
            choosing_seconds: planned.seconds,
        })?);
    }
    print_plan(&planned.summary, &planned.explanation, modules)?;
    let summary = &planned.summary;
    say!(
        "\nlink {:.1} Mbit/s over {} connections ({:.1} Mbit/s over a single one), {:.1} ms round trip",
        megabits(summary.link_bytes_per_second),
        link.connections,
        megabits(link.connection_bytes_per_second),
        link.round_trip.as_secs_f64() * 1e3,
    );
    say!(
        "{} iterations of {} images{}; chosen in {:.1} ms",
        summary.iterations,
        summary.batch,
        describe_cache(summary),
        planned.seconds * 1e3
    );
    say!(
        "requests of {} images, up to {} concurrent; up to {} batches extracted ahead",
        summary.request_samples,
        summary.window,
        summary.batches_ahead
    );
    say!(
        "training batch {} images, request {}, host batch {}, engine batch {}",
        summary.batch,
        summary.request_samples,
        number_or_unknown(summary.grant),
        number_or_unknown(summary.engine_batch)
    );
    Ok(())
}

fn megabits(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8.0 / 1e6
}

fn number_or_unknown(images: Option<usize>) -> String {
    images.map_or_else(|| "unknown".to_owned(), |images| images.to_string())
}

/// Describes the use of cached features. Returns an empty string if features are not cached.
fn describe_cache(summary: &Summary) -> String {
    if summary.reuse.is_none() {
        return String::new();
    }
    let later = summary.later_epoch_seconds;
    let later = later.map_or_else(String::new, |seconds| format!(", a later one {seconds:.2} s"));
    format!(
        ", {} of them from cache ({}); the first epoch takes {:.2} s{later}, the job {:.2} s",
        summary.kept_iterations,
        bytes(summary.store_bytes),
        summary.first_epoch_seconds,
        summary.total_seconds
    )
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e3)
}

fn print_plan(summary: &Summary, explanation: &Explanation, modules: &Modules) -> Result<()> {
    say!("{}", explanation.headline);
    for line in [&explanation.cost, &explanation.layers].into_iter().flatten() {
        say!("{line}");
    }
    say!();
    let rows = summary.candidates.iter().map(|row| {
        let rival = explanation.rivals.iter().find(|rival| rival.split == row.split);
        [
            modules.label(&row.split),
            row.encoding.to_string(),
            bytes(row.bytes_per_sample.round() as u64),
            milliseconds(row.stages.host_seconds),
            milliseconds(row.stages.link_seconds),
            milliseconds(row.stages.trainer_seconds),
            milliseconds(row.iteration_seconds),
            row.bottleneck.to_string(),
            rival.map_or_else(|| "chosen".to_owned(), |rival| format!("{:.2}x", rival.ratio)),
            rival.and_then(|rival| rival.wins_if.clone()).unwrap_or_default(),
        ]
    });
    let relative = match summary.objective {
        Objective::Time => "TIME",
        Objective::Cost => "COST",
    };
    let columns = format!(
        "SPLIT|AS|PER IMAGE>|HOST MS>|LINK MS>|TRAINER MS>|ITERATION MS>|BOUND BY|{relative}>|WINS IF"
    );
    print_table(&columns, rows)?;
    print_usage(summary, modules)
}

/// Prints the resource usage of the first epoch for all splits, and of all epochs and the job for the chosen
/// split.
fn print_usage(summary: &Summary, modules: &Modules) -> Result<()> {
    say!();
    let rows = summary.candidates.iter().map(|row| {
        let epoch = &row.first_epoch;
        let mut cells = vec![
            modules.label(&row.split),
            format_number(epoch.seconds),
            format_number(epoch.host_core_seconds),
            format_number(epoch.trainer_core_seconds),
            bytes(epoch.bytes.round() as u64),
            format_number(row.job.seconds),
        ];
        cells.extend(row.job.cost.map(|cost| format_number(cost.total)));
        cells
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let columns = match rows.first().map_or(0, Vec::len) {
        7 => "SPLIT|EPOCH S>|HOST CORE-S>|TRAINER CORE-S>|TRAFFIC>|JOB S>|JOB COST>",
        _ => "SPLIT|EPOCH S>|HOST CORE-S>|TRAINER CORE-S>|TRAFFIC>|JOB S>",
    };
    print_table(columns, rows)?;
    say!();
    let later = summary.later_epoch.iter().map(|epoch| ("a later epoch", epoch));
    let epochs = [("the first epoch", &summary.first_epoch)]
        .into_iter()
        .chain(later);
    for (what, usage) in epochs.chain([("the job", &summary.job)]) {
        say!("{}", describe_usage(what, usage));
    }
    Ok(())
}

fn describe_usage(what: &str, usage: &Usage) -> String {
    let cost = usage.cost.map_or_else(String::new, |cost| {
        format!(
            "; costs {} (host {}, trainer {}, link {})",
            format_number(cost.total),
            format_number(cost.host),
            format_number(cost.trainer),
            format_number(cost.link)
        )
    });
    format!(
        "{what}: {} s, {} host core-seconds, {} trainer core-seconds, {}{cost}",
        format_number(usage.seconds),
        format_number(usage.host_core_seconds),
        format_number(usage.trainer_core_seconds),
        bytes(usage.bytes.round() as u64)
    )
}
