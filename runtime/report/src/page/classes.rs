use super::table::{Cell, LETTERS, Row, add_omitted_note, bar, select_rows, table};
use crate::chart::{FULL, Matrix, matrix};
use crate::facts::{Class, Classes};
use crate::markup::{count, percent, shortened};

/// Maximum number of confused pairs below a matrix, and without a matrix.
const PAIRS: (usize, usize) = (10, 40);

pub(super) fn section(out: &mut String, classes: &Classes) {
    if classes.samples == 0 {
        return;
    }
    let accuracy = classes.right as f64 / classes.samples as f64;
    let top_five = classes.top_five.filter(|_| classes.classes.len() > 5);
    let top_five = top_five.map_or_else(String::new, |share| {
        format!(", {} with the correct class in the top five", percent(share))
    });
    out.push_str(&format!(
        "<section><h2>Classes</h2><p>The written model on {} validation images: {} correct{top_five}.</p>",
        count(classes.samples),
        percent(accuracy)
    ));
    confusion(out, classes);
    per_class(out, classes);
    out.push_str("</section>");
}

fn confusion(out: &mut String, classes: &Classes) {
    let full = classes.classes.len() <= FULL;
    if full {
        let names: Vec<&str> = classes.classes.iter().map(|class| class.name.as_str()).collect();
        let chart = matrix(&Matrix {
            title: "Confusion matrix: true class by rows, predicted class by columns",
            names: &names,
            cells: &classes.pairs,
        });
        out.push_str(&format!(
            r#"<figure><h3>Confusion matrix</h3><div class="scroll">{chart}</div><figcaption>Rows are true classes, and the shade of a cell is the share of the row. Correct predictions are blue, and wrong predictions are orange.</figcaption></figure>"#
        ));
    }
    let confused = classes.confused();
    let most = if full { PAIRS.0 } else { PAIRS.1 };
    if confused.is_empty() {
        return;
    }
    let rows: Vec<Row> = confused
        .iter()
        .take(most)
        .map(|(is, taken, samples)| Row {
            cells: vec![
                Cell::Text(shortened(&is.name, LETTERS)),
                Cell::Text(shortened(&taken.name, LETTERS)),
                Cell::Number(count(*samples)),
                Cell::Number(percent(*samples as f64 / is.support as f64)),
            ],
            best: false,
        })
        .collect();
    let (open, close) = if full {
        ("<details><summary>Most confused classes</summary>", "</details>")
    } else {
        ("<h3>Most confused classes</h3>", "")
    };
    out.push_str(open);
    let header = [
        ("True class", false),
        ("Predicted class", false),
        ("Images", true),
        ("Share of class", true),
    ];
    out.push_str(&table(&header, &rows));
    add_omitted_note(out, rows.len(), confused.len() as u64, "pairs");
    out.push_str(close);
}

fn per_class(out: &mut String, classes: &Classes) {
    // If there are too many classes, those with the lowest F1 are shown. Classes without samples have no F1
    // and are omitted first.
    let worth = |class: &Class| {
        if class.support > 0 {
            class.f1()
        } else {
            f64::INFINITY
        }
    };
    let shown = select_rows(&classes.classes, worth);
    let mut rows: Vec<Row> = shown.iter().map(|class| row(class)).collect();
    let mean = |figure: fn(&Class) -> f64| Cell::Number(percent(classes.mean(figure)));
    rows.push(Row {
        cells: vec![
            Cell::Text("mean of all classes".to_owned()),
            mean(Class::precision),
            mean(Class::recall),
            mean(Class::f1),
            Cell::Number(count(classes.samples)),
            Cell::Raw(String::new()),
        ],
        best: true,
    });
    out.push_str("<h3>Each class</h3>");
    let header = [
        ("Class", false),
        ("Precision", true),
        ("Recall", true),
        ("F1", true),
        ("Images", true),
        ("", false),
    ];
    out.push_str(&table(&header, &rows));
    add_omitted_note(
        out,
        shown.len(),
        classes.classes.len() as u64,
        "classes, the lowest F1 first",
    );
}

fn row(class: &Class) -> Row {
    Row {
        cells: vec![
            Cell::Text(shortened(&class.name, LETTERS)),
            Cell::Number(percent(class.precision())),
            Cell::Number(percent(class.recall())),
            Cell::Number(percent(class.f1())),
            Cell::Number(count(class.support)),
            bar(class.f1()),
        ],
        best: false,
    }
}
