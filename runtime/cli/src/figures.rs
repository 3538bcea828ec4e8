//! Tables of an evaluation for users.

use crate::output::{print_table, stdout};
use anyhow::Result;
use frostline_trainer::{ClassFigures, ConfusedPair, LabelFigures, Tables, TargetFigures};
use std::io::Write;

/// Maximum number of classes for a confusion matrix, which then fits in about 100 columns.
const MATRIX: usize = 20;
/// Number of confused pairs in the list that replaces a larger matrix.
const PAIRS: usize = 10;
/// Maximum number of rows. Larger tables only show the outputs with the worst scores.
const ROWS: usize = 50;

/// A table for the terminal.
#[derive(Debug, Default, PartialEq)]
struct TerminalTable {
    /// Line before the table.
    title: String,
    /// Titles of the columns, see [`print_table`].
    columns: String,
    rows: Vec<Vec<String>>,
}

/// Prints the tables with an empty line before each table.
pub(crate) fn print(tables: &Tables) -> Result<()> {
    for table in shown(tables) {
        writeln!(stdout(), "\n{}", table.title)?;
        print_table(&table.columns, &table.rows)?;
    }
    Ok(())
}

fn shown(tables: &Tables) -> Vec<TerminalTable> {
    match tables {
        Tables::Classes {
            classes, confusion, ..
        } => {
            let columns = "#>|CLASS|PRECISION>|RECALL>|F1>|SUPPORT>";
            let mut shown = vec![table("classes", columns, classes, |class| class.f1, of_class)];
            if classes.len() <= MATRIX {
                shown.push(matrix(classes, confusion));
            } else {
                let pairs = pairs(classes, &tables.most_confused(PAIRS));
                shown.extend((!pairs.rows.is_empty()).then_some(pairs));
            }
            shown
        }
        Tables::Labels { labels } => {
            let columns = "#>|LABEL|PRECISION>|RECALL>|F1>|AVERAGE PRECISION>|SUPPORT>";
            vec![table("labels", columns, labels, |label| label.f1, of_label)]
        }
        Tables::Numbers { targets } => {
            let columns = "#>|TARGET|MAE>|RMSE>|R2>|MEAN>";
            vec![table("targets", columns, targets, |target| target.r2, of_target)]
        }
    }
}

/// Creates a table with a row per output. Outputs are numbered from 1. If there are too many outputs, only
/// those with the lowest `score` are shown.
fn table<T, const N: usize>(
    what: &str,
    columns: &str,
    outputs: &[T],
    score: fn(&T) -> f64,
    cells: fn(&T) -> [String; N],
) -> TerminalTable {
    let mut numbered: Vec<(usize, &T)> = (1..).zip(outputs).collect();
    let mut title = format!("{} {what}", outputs.len());
    if outputs.len() > ROWS {
        numbered.sort_by(|left, right| score(left.1).total_cmp(&score(right.1)));
        numbered.truncate(ROWS);
        title += &format!(", the worst {ROWS} are shown (use --json for all)");
    }
    let rows = numbered.into_iter().map(|(number, output)| {
        let number = [number.to_string()];
        number.into_iter().chain(cells(output)).collect()
    });
    TerminalTable {
        title,
        columns: columns.to_owned(),
        rows: rows.collect(),
    }
}

fn of_class(class: &ClassFigures) -> [String; 5] {
    let [precision, recall, f1] = [class.precision, class.recall, class.f1].map(share);
    [
        class.name.clone(),
        precision,
        recall,
        f1,
        class.support.to_string(),
    ]
}

fn of_label(label: &LabelFigures) -> [String; 6] {
    let [precision, recall, f1] = [label.precision, label.recall, label.f1].map(share);
    let average = label.average_precision.map_or_else(|| "-".to_owned(), share);
    [
        label.name.clone(),
        precision,
        recall,
        f1,
        average,
        label.support.to_string(),
    ]
}

fn share(share: f64) -> String {
    format!("{share:.3}")
}

fn of_target(target: &TargetFigures) -> [String; 5] {
    let figures = [target.mae, target.rmse, target.r2, target.mean];
    let [mae, rmse, r2, mean] = figures.map(|figure| format!("{figure:.4}"));
    [target.name.clone(), mae, rmse, r2, mean]
}

/// Creates the confusion matrix. Rows are labels and columns are predictions.
fn matrix(classes: &[ClassFigures], confusion: &[ConfusedPair]) -> TerminalTable {
    let numbers = (1..=classes.len()).map(|number| format!("|{number}>"));
    let rows = classes.iter().enumerate().map(|(label, class)| {
        let mut cells = vec![0; classes.len()];
        for cell in confusion.iter().filter(|cell| cell.label == label) {
            cells
                .get_mut(cell.predicted)
                .into_iter()
                .for_each(|count| *count = cell.count);
        }
        let cells = cells.into_iter().map(|count| match count {
            0 => ".".to_owned(),
            count => count.to_string(),
        });
        let titles = [(label + 1).to_string(), class.name.clone()];
        titles.into_iter().chain(cells).collect()
    });
    TerminalTable {
        title: "confusion matrix (rows: labels, columns: predictions)".to_owned(),
        columns: format!("#>|CLASS{}", numbers.collect::<String>()),
        rows: rows.collect(),
    }
}

fn pairs(classes: &[ClassFigures], confused: &[ConfusedPair]) -> TerminalTable {
    let rows = confused.iter().map(|cell| {
        vec![
            name(classes, cell.label),
            name(classes, cell.predicted),
            cell.count.to_string(),
        ]
    });
    TerminalTable {
        title: "most confused".to_owned(),
        columns: "IS|TAKEN FOR|IMAGES>".to_owned(),
        rows: rows.collect(),
    }
}

fn name(classes: &[ClassFigures], place: usize) -> String {
    classes
        .get(place)
        .map_or_else(String::new, |class| class.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(count: usize, confusion: &[(usize, usize, usize)]) -> Tables {
        let class = |number: usize| ClassFigures {
            name: format!("class-{number}"),
            precision: 0.5,
            recall: 0.25,
            f1: number as f64 / 100.0,
            support: number,
        };
        let cell = |&(label, predicted, count)| ConfusedPair {
            label,
            predicted,
            count,
        };
        Tables::Classes {
            top_5_accuracy: 1.0,
            classes: (0..count).map(class).collect(),
            confusion: confusion.iter().map(cell).collect(),
        }
    }

    #[test]
    fn few_classes_have_a_matrix() {
        let shown = shown(&classes(3, &[(0, 0, 7), (0, 2, 1), (2, 1, 12)]));
        assert_eq!(
            shown[0].rows[2],
            ["3", "class-2", "0.500", "0.250", "0.020", "2"].map(str::to_owned)
        );
        assert_eq!(shown[1].columns, "#>|CLASS|1>|2>|3>");
        assert_eq!(
            shown[1].rows,
            [
                ["1", "class-0", "7", ".", "1"],
                ["2", "class-1", ".", ".", "."],
                ["3", "class-2", ".", "12", "."]
            ]
            .map(|row| row.map(str::to_owned).to_vec())
        );
    }

    #[test]
    fn of_many_classes_the_worst_and_the_most_confused_are_shown() {
        let cells: Vec<_> = (0..30).map(|number| (number, number + 1, number)).collect();
        let shown = shown(&classes(60, &cells));
        assert_eq!((shown[0].rows.len(), shown[1].rows.len()), (50, 10));
        assert!(shown[0].title.contains("60 classes") && shown[0].title.contains("--json"));
        assert_eq!(shown[0].rows[0][1], "class-0");
        assert_eq!(
            shown[1].rows[0],
            ["class-29", "class-30", "29"].map(str::to_owned)
        );
        assert_eq!(
            super::shown(&classes(21, &[(4, 4, 2)])).len(),
            1,
            "none was confused"
        );
    }

    #[test]
    fn labels_and_targets_have_their_own_columns() {
        let labels = Tables::Labels {
            labels: vec![LabelFigures {
                name: "warm".to_owned(),
                precision: 1.0,
                recall: 0.5,
                f1: 2.0 / 3.0,
                average_precision: None,
                support: 0,
            }],
        };
        assert_eq!(
            shown(&labels)[0].rows[0],
            ["1", "warm", "1.000", "0.500", "0.667", "-", "0"].map(str::to_owned)
        );
        let targets = Tables::Numbers {
            targets: vec![TargetFigures {
                name: "price".to_owned(),
                mae: 0.5,
                rmse: 1.25,
                r2: -0.125,
                mean: 12.5,
            }],
        };
        assert_eq!(
            shown(&targets)[0].rows[0],
            ["1", "price", "0.5000", "1.2500", "-0.1250", "12.5000"].map(str::to_owned)
        );
    }
}
