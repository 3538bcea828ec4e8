use super::table::{Cell, LETTERS, Row, add_omitted_note, bar, select_rows, table};
use crate::markup::{count, percent, shortened};
use crate::run::{LabelScore, Labels};

pub(super) fn section(out: &mut String, labels: &Labels) {
    if labels.samples == 0 {
        return;
    }
    out.push_str(&format!(
        "<section><h2>Labels</h2><p>The written model on {} validation images. A label is predicted above a probability of 0.5.</p>",
        count(labels.samples)
    ));
    // Labels without images cannot be rated and follow at the end.
    let worth = |label: &LabelScore| match label.counts.support {
        0 => f64::INFINITY,
        _ => label.counts.f1(),
    };
    let shown = select_rows(&labels.scores, worth);
    let mut rows: Vec<Row> = shown.iter().map(|label| row(label)).collect();
    rows.push(means(labels));
    let header = [
        ("Label", false),
        ("Images", true),
        ("Precision", true),
        ("Recall", true),
        ("F1", true),
        ("Average precision", true),
        ("", false),
    ];
    out.push_str(&table(&header, &rows));
    add_omitted_note(
        out,
        shown.len(),
        labels.scores.len() as u64,
        "labels, the lowest F1 first",
    );
    out.push_str("</section>");
}

fn row(label: &LabelScore) -> Row {
    let counts = &label.counts;
    let f1 = share(counts.f1(), counts.support + counts.predicted);
    Row {
        cells: vec![
            Cell::Text(shortened(&label.name, LETTERS)),
            Cell::Number(count(counts.support as u64)),
            Cell::Number(percent(share(counts.precision(), counts.predicted))),
            Cell::Number(percent(share(counts.recall(), counts.support))),
            Cell::Number(percent(f1)),
            Cell::Number(percent(label.average_precision.unwrap_or(f64::NAN))),
            bar(f1),
        ],
        best: false,
    }
}

/// Returns the means in the same way as the run's metrics: F1 over all labels, and average precision over
/// labels with images.
fn means(labels: &Labels) -> Row {
    let over = |figure: fn(&LabelScore) -> Option<f64>| {
        let known: Vec<f64> = labels.scores.iter().filter_map(figure).collect();
        Cell::Number(percent(known.iter().sum::<f64>() / known.len() as f64))
    };
    Row {
        cells: vec![
            Cell::Text("mean of all labels".to_owned()),
            Cell::Number(count(labels.samples)),
            over(|label| Some(label.counts.precision())),
            over(|label| Some(label.counts.recall())),
            over(|label| Some(label.counts.f1())),
            over(|label| label.average_precision),
            Cell::Raw(String::new()),
        ],
        best: true,
    }
}

/// Returns NaN instead of the fraction if the denominator is 0.
fn share(share: f64, of: usize) -> f64 {
    if of == 0 { f64::NAN } else { share }
}
