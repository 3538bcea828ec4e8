//! Table of epochs for other programs.

use crate::Run;
use crate::figure;

/// Columns before and after the validation metrics, which depend on the task.
const BEFORE: [&str; 2] = ["epoch", "loss"];
const AFTER: [&str; 7] = [
    "seconds",
    "waited_seconds",
    "bytes",
    "split",
    "cached_rows",
    "fetched_rows",
    "skipped",
];

/// Returns a CSV table with a header and a row per epoch:
/// `epoch,loss,validation_accuracy,seconds,waited_seconds,bytes,split,cached_rows,fetched_rows,skipped`. The
/// validation metrics depend on the task. All values refer to one epoch, except for `skipped`, which is the
/// total since the start of the job. Unknown values are empty.
pub fn metrics_csv(run: &Run) -> String {
    let epochs = &run.journal.epochs;
    let figures = epochs.first().map(|epoch| epoch.figures.as_slice());
    let names: Vec<&str> = figures
        .unwrap_or_default()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let figures = names.iter().map(|name| format!("validation_{name}"));
    let header = BEFORE.map(str::to_owned).into_iter().chain(figures);
    let header: Vec<String> = header.chain(AFTER.map(str::to_owned)).collect();
    let mut table = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail, and all rows have the same length.
    let _ = table.write_record(&header);
    for epoch in epochs {
        let figures = names.iter().map(|name| figure::value(&epoch.figures, name));
        let row = [epoch.epoch.to_string(), number(epoch.loss)]
            .into_iter()
            .chain(figures.map(|value| value.map_or_else(String::new, number)));
        let row = row.chain([
            number(epoch.seconds),
            number(epoch.waited_seconds),
            epoch.bytes_received.to_string(),
            epoch.split.clone(),
            epoch.cached_rows.to_string(),
            epoch.fetched_rows.to_string(),
            epoch.skipped.to_string(),
        ]);
        let _ = table.write_record(row);
    }
    let bytes = table.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn number(value: f64) -> String {
    if value.is_finite() {
        value.to_string()
    } else {
        String::new()
    }
}
