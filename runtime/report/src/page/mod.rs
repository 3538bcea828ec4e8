//! Report as a single file without scripts or network access.

mod compare;
mod curves;
mod headline;
mod mistakes;
mod plan;
mod scores;
mod table;
mod template;
mod timeline;
mod traffic;

use crate::Run;
use crate::markup::escaped;
use crate::run::RecordedSettings;
use table::{Cell, PageTable};

/// Returns a page for a single run, or a comparison of several runs. The size does not depend on the duration
/// of jobs: up to 1 MB without images, and some megabytes with images.
///
/// Curves keep the minimum and maximum of each of 300 intervals. Long tables show the most relevant rows and
/// the total count. If there are more than twelve runs, only the first twelve are drawn.
pub fn html(runs: &[Run]) -> String {
    match runs {
        [run] => single(run),
        runs => compare::page(runs),
    }
}

fn single(run: &Run) -> String {
    let mut out = String::new();
    headline::section(&mut out, run);
    curves::section(&mut out, &run.journal);
    if let Some(predictions) = &run.predictions {
        scores::section(&mut out, predictions, run.journal.data.task);
    }
    mistakes::section(&mut out, &run.mistakes);
    timeline::section(&mut out, &run.journal);
    plan::section(&mut out, run);
    traffic::section(&mut out, &run.journal);
    settings(&mut out, &run.settings);
    template::page(&run.name, &out)
}

fn settings(out: &mut String, settings: &RecordedSettings) {
    if settings.rows.is_empty() {
        return;
    }
    let mut table = PageTable::new(["Setting", "Value"]);
    for (name, value) in &settings.rows {
        table.row([Cell::Text(name.clone()), Cell::Raw(escaped(value))]);
    }
    out.push_str(
        "<section><h2>Configuration</h2><details open=\"open\"><summary>Settings with defaults</summary>",
    );
    table.write(out, settings.rows.len(), "settings");
    if settings.cut {
        out.push_str(r#"<p class="soft">config.json contains more settings.</p>"#);
    }
    out.push_str("</details></section>");
}
