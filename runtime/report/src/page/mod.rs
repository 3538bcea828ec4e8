//! The page: one file without scripts that asks no network for anything.

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

/// A page that shows a run or, of several, how they differ. Its size is bounded, however long the jobs were: some megabytes with images, at
/// most one without.
///
/// Long curves keep the lowest and the highest point of each of 300 parts; of what is listed the most telling part is shown, and how much
/// there is besides. Of more than twelve runs the first twelve are drawn.
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
