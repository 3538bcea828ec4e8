//! Report as a single file without scripts or network access.

mod classes;
mod compare;
mod curves;
mod headline;
mod labels;
mod mistakes;
mod plan;
mod settings;
mod shell;
mod table;
mod targets;
mod timeline;
mod traffic;

use crate::Run;
use crate::facts::Classes;
use crate::run::Predictions;
use frostline_job::Task;

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
    let dataset = &run.journal.dataset;
    let classes = match &run.predictions {
        Some(Predictions::Classes(said)) if dataset.task == Task::Classes => {
            Some(Classes::from_predictions(said, dataset))
        }
        _ => None,
    };
    let mut out = shell::open_page(&run.name);
    headline::section(&mut out, run, classes.as_ref());
    curves::section(&mut out, run);
    match &run.predictions {
        Some(Predictions::Classes(_)) => classes.iter().for_each(|of| classes::section(&mut out, of)),
        Some(Predictions::Labels(labels)) => labels::section(&mut out, labels),
        Some(Predictions::Numbers(targets)) => targets::section(&mut out, targets),
        None => {}
    }
    mistakes::section(&mut out, &run.mistakes);
    timeline::section(&mut out, &run.journal);
    plan::section(&mut out, run);
    traffic::section(&mut out, &run.journal);
    settings::section(&mut out, &run.settings);
    shell::end(&mut out);
    out
}
