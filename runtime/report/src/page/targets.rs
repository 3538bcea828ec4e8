use super::table::{Cell, LETTERS, Row, add_omitted_note, select_rows, table};
use crate::markup::{count, shortened, significant};
use crate::run::{TargetScore, Targets};
use frostline_job::scores::Errors;

pub(super) fn section(out: &mut String, targets: &Targets) {
    if targets.samples == 0 {
        return;
    }
    out.push_str(&format!(
        "<section><h2>Targets</h2><p>The written model on {} validation images. Mean is that of the true values.</p>",
        count(targets.samples)
    ));
    let shown = select_rows(&targets.scores, |target| target.errors.r2());
    let mut rows: Vec<Row> = shown.iter().map(|target| row(target)).collect();
    if targets.scores.len() > 1 {
        rows.push(means(targets));
    }
    let header = [
        ("Target", false),
        ("MAE", true),
        ("RMSE", true),
        ("R²", true),
        ("Mean", true),
    ];
    out.push_str(&table(&header, &rows));
    add_omitted_note(
        out,
        shown.len(),
        targets.scores.len() as u64,
        "targets, the lowest R² first",
    );
    out.push_str("</section>");
}

fn row(target: &TargetScore) -> Row {
    let errors = &target.errors;
    let figures = [errors.mae(), errors.rmse(), errors.r2(), errors.mean()];
    let name = Cell::Text(shortened(&target.name, LETTERS));
    let figures = figures.map(|figure| Cell::Number(significant(figure)));
    Row {
        cells: [name].into_iter().chain(figures).collect(),
        best: false,
    }
}

/// Returns the means in the same way as the run's metrics.
fn means(targets: &Targets) -> Row {
    let over = |figure: fn(&Errors) -> f64| {
        let sum: f64 = targets.scores.iter().map(|target| figure(&target.errors)).sum();
        Cell::Number(significant(sum / targets.scores.len() as f64))
    };
    Row {
        cells: vec![
            Cell::Text("mean of all targets".to_owned()),
            over(Errors::mae),
            over(Errors::rmse),
            over(Errors::r2),
            Cell::Raw(String::new()),
        ],
        best: true,
    }
}
