//! The page: one file without scripts that asks no network for anything.

mod classes;
mod compare;
mod curves;
mod headline;
mod mistakes;
mod plan;
mod settings;
mod shell;
mod table;
mod timeline;
mod traffic;

use crate::Run;
use crate::facts::Classes;
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
    let classes = run
        .predictions
        .as_ref()
        .filter(|_| run.journal.dataset.task == Task::Classes)
        .map(|predictions| Classes::from_predictions(predictions, &run.journal.dataset));
    let mut out = shell::open_page(&run.name);
    headline::section(&mut out, run, classes.as_ref());
    curves::section(&mut out, run);
    if let Some(classes) = &classes {
        classes::section(&mut out, classes);
    }
    mistakes::section(&mut out, &run.mistakes);
    timeline::section(&mut out, &run.journal);
    plan::section(&mut out, run);
    traffic::section(&mut out, &run.journal);
    settings::section(&mut out, &run.settings);
    shell::end(&mut out);
    out
}
