//! Results of the written model for each class, label or target.

use super::table::{Cell, PageTable};
use crate::chart::{FULL, matrix};
use crate::markup::{count, percent, significant};
use crate::run::{PredictionTotals, Score};
use frostline_job::Task;
use frostline_job::scores::{Counts, Errors};

/// Maximum number of classes, labels or targets in a table.
const ROWS: usize = 200;
/// Maximum number of confused pairs below a matrix, and without a matrix.
const PAIRS: (usize, usize) = (10, 40);

/// Adds the results of a job with the given task.
pub(super) fn section(out: &mut String, predictions: &PredictionTotals, task: Task) {
    match predictions.task {
        _ if predictions.samples == 0 => {}
        Task::Classes if task == Task::Classes => classes(out, predictions),
        Task::Classes => {}
        Task::Labels => labels(out, predictions),
        Task::Numbers => targets(out, predictions),
    }
}

fn classes(out: &mut String, classes: &PredictionTotals) {
    let top_five = classes.top_five.filter(|_| classes.scores.len() > 5);
    let top_five = top_five.map_or_else(String::new, |share| {
        format!(", {} with the correct class in the top five", percent(share))
    });
    out.push_str(&format!(
        "<section><h2>Classes</h2><p>The written model on {} validation images: {} correct{top_five}.</p>",
        count(classes.samples),
        percent(classes.right() as f64 / classes.samples as f64)
    ));
    confusion(out, classes);
    out.push_str("<h3>Each class</h3>");
    let mut table = PageTable::new(["Class", "Precision", "Recall", "F1", "Images", ""]);
    for class in select_rows(&classes.scores, f1) {
        let [precision, recall, f1, bar] = share_cells(class);
        let support = Cell::Number(count(class.counts.support));
        table.row([Cell::name(&class.name), precision, recall, f1, support, bar]);
    }
    let present = classes.scores.iter().filter(|class| class.counts.support > 0);
    let [precision, recall, f1] = mean_shares(present);
    let name = Cell::Text("mean of all classes".to_owned());
    let samples = Cell::Number(count(classes.samples));
    table.means([name, precision, recall, f1, samples, Cell::Raw(String::new())]);
    table.write(out, classes.scores.len(), "classes, the lowest F1 first");
    out.push_str("</section>");
}

fn confusion(out: &mut String, classes: &PredictionTotals) {
    let full = classes.scores.len() <= FULL;
    if full {
        let names: Vec<&str> = classes.scores.iter().map(|class| class.name.as_str()).collect();
        let title = "Confusion matrix: true class by rows, predicted class by columns";
        out.push_str(&format!(
            r#"<figure><h3>Confusion matrix</h3><div class="scroll">{}</div><figcaption>Rows are true classes, and the shade of a cell is the share of the row. Correct predictions are blue, and wrong predictions are orange.</figcaption></figure>"#,
            matrix(title, &names, &classes.pairs)
        ));
    }
    let confused = classes.confused();
    if confused.is_empty() {
        return;
    }
    let (open, most, close) = if full {
        (
            "<details><summary>Most confused classes</summary>",
            PAIRS.0,
            "</details>",
        )
    } else {
        ("<h3>Most confused classes</h3>", PAIRS.1, "")
    };
    out.push_str(open);
    let mut table = PageTable::new(["True class", "Predicted class", "Images", "Share of class"]);
    for (is, taken, samples) in confused.iter().take(most) {
        let share = *samples as f64 / is.counts.support as f64;
        let numbers = [count(samples), percent(share)].map(Cell::Number);
        let names = [is, taken].map(|class| Cell::name(&class.name));
        table.row(names.into_iter().chain(numbers));
    }
    table.write(out, confused.len(), "pairs");
    out.push_str(close);
}

fn labels(out: &mut String, labels: &PredictionTotals) {
    out.push_str(&format!(
        "<section><h2>Labels</h2><p>The written model on {} validation images. A label is predicted above a probability of 0.5.</p>",
        count(labels.samples)
    ));
    let header = [
        "Label",
        "Images",
        "Precision",
        "Recall",
        "F1",
        "Average precision",
        "",
    ];
    let mut table = PageTable::new(header);
    for label in select_rows(&labels.scores, f1) {
        let [precision, recall, f1, bar] = share_cells(label);
        let support = Cell::Number(count(label.counts.support));
        let ranked = Cell::Number(percent(label.average_precision.unwrap_or(f64::NAN)));
        table.row([
            Cell::name(&label.name),
            support,
            precision,
            recall,
            f1,
            ranked,
            bar,
        ]);
    }
    // Means as in the run's metrics: F1 over all labels, and average precision over labels with images.
    let [precision, recall, f1] = mean_shares(labels.scores.iter());
    let ranked = mean(labels.scores.iter().filter_map(|label| label.average_precision));
    let ranked = Cell::Number(percent(ranked));
    let name = Cell::Text("mean of all labels".to_owned());
    let samples = Cell::Number(count(labels.samples));
    table.means([
        name,
        samples,
        precision,
        recall,
        f1,
        ranked,
        Cell::Raw(String::new()),
    ]);
    table.write(out, labels.scores.len(), "labels, the lowest F1 first");
    out.push_str("</section>");
}

fn targets(out: &mut String, targets: &PredictionTotals) {
    out.push_str(&format!(
        "<section><h2>Targets</h2><p>The written model on {} validation images. Mean is that of the true values.</p>",
        count(targets.samples)
    ));
    let mut table = PageTable::new(["Target", "MAE", "RMSE", "R²", "Mean"]);
    let figures: [fn(&Errors) -> f64; 4] = [Errors::mae, Errors::rmse, Errors::r2, Errors::mean];
    for target in select_rows(&targets.scores, |target| target.errors.r2()) {
        let figures = figures.map(|figure| Cell::Number(significant(figure(&target.errors))));
        table.row([Cell::name(&target.name)].into_iter().chain(figures));
    }
    if targets.scores.len() > 1 {
        let errors = targets.scores.iter().map(|target| &target.errors);
        let means = figures
            .iter()
            .take(3)
            .map(|figure| mean(errors.clone().map(figure)));
        let name = Cell::Text("mean of all targets".to_owned());
        let means = means.map(|mean| Cell::Number(significant(mean)));
        table.means([name].into_iter().chain(means).chain([Cell::Raw(String::new())]));
    }
    table.write(out, targets.scores.len(), "targets, the lowest R² first");
    out.push_str("</section>");
}

/// Returns all items in order. If there are too many, returns the items with the lowest `worth` in ascending
/// order.
fn select_rows(all: &[Score], worth: impl Fn(&Score) -> f64) -> Vec<&Score> {
    let mut shown: Vec<&Score> = all.iter().collect();
    if all.len() > ROWS {
        shown.sort_by(|left, right| worth(left).total_cmp(&worth(right)));
        shown.truncate(ROWS);
    }
    shown
}

/// Returns F1. Classes and labels without samples cannot be rated and follow at the end.
fn f1(score: &Score) -> f64 {
    match score.counts.support {
        0 => f64::INFINITY,
        _ => score.counts.f1(),
    }
}

/// Returns precision, recall, F1 and a bar for F1.
fn share_cells(score: &Score) -> [Cell; 4] {
    let [precision, recall, f1] = score.shares();
    let [precision, recall, number] = [precision, recall, f1].map(|share| Cell::Number(percent(share)));
    [precision, recall, number, Cell::bar(f1)]
}

/// Returns the means of precision, recall and F1. Undefined values are replaced by 0.
fn mean_shares<'a>(scores: impl Iterator<Item = &'a Score> + Clone) -> [Cell; 3] {
    let shares: [fn(&Counts) -> f64; 3] = [Counts::precision, Counts::recall, Counts::f1];
    let counts = scores.map(|score| &score.counts);
    shares.map(|share| Cell::Number(percent(mean(counts.clone().map(share)))))
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}
