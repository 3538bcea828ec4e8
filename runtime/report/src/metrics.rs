//! Table of epochs for other programs.

use crate::Run;
use crate::figure;

/// Columns after the validation metrics, which depend on the task.
const AFTER: &str = "seconds,waited_seconds,bytes,split,cached_rows,fetched_rows,skipped";

/// Returns a CSV table with a header and a row per epoch:
/// `epoch,loss,validation_accuracy,seconds,waited_seconds,bytes,split,cached_rows,fetched_rows,skipped`. The
/// validation metrics depend on the task. All values refer to one epoch, except for `skipped`, which is the
/// total since the start of the job. Unknown values are empty.
pub fn metrics_csv(run: &Run) -> String {
    let epochs = run.journal.trained();
    let figures = run
        .journal
        .trained()
        .next()
        .map(|epoch| epoch.validation.figures());
    let names: Vec<&str> = figures.into_iter().flatten().map(|(name, _)| name).collect();
    let mut header = vec!["epoch".to_owned(), "loss".to_owned()];
    header.extend(names.iter().map(|name| format!("validation_{name}")));
    header.extend(AFTER.split(',').map(str::to_owned));
    let mut table = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail, and all rows have the same length.
    let _ = table.write_record(&header);
    for epoch in epochs {
        let mut row = vec![epoch.epoch.to_string(), number(epoch.loss)];
        let figures = names.iter().map(|name| figure::value(&epoch.validation, name));
        row.extend(figures.map(|value| value.map_or_else(String::new, number)));
        row.extend([
            number(epoch.seconds),
            number(epoch.waited_seconds),
            epoch.bytes_received.to_string(),
            epoch.split.to_string(),
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
