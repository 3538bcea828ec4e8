use crate::markup::{escaped, middle_cut, percent, shortened, significant};
use crate::run::RecordedMistake;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Maximum length of labels and predictions in characters.
const LETTERS: usize = 60;

pub(super) fn section(out: &mut String, mistakes: &[RecordedMistake]) {
    let Some(first) = mistakes.first() else {
        return;
    };
    let order = match (first.wrong, &first.target) {
        (Some(_), _) => "Images with the most wrong labels, then the largest loss.",
        (None, Some(_)) => {
            "Images with the largest error. Errors of several targets are compared relative to the RMSE."
        }
        (None, None) => "Wrong predictions with the highest confidence.",
    };
    let without = match mistakes
        .iter()
        .filter(|mistake| mistake.contents.is_none())
        .count()
    {
        0 => String::new(),
        count => format!(
            " {count} of {} images are missing, because they were too large or not received before the job ended.",
            mistakes.len()
        ),
    };
    out.push_str(&format!(
        r#"<section><h2>Worst mistakes</h2><p class="soft">{order}{without}</p><div class="mistakes">"#,
    ));
    for mistake in mistakes {
        figure(out, mistake);
    }
    out.push_str("</div></section>");
}

fn figure(out: &mut String, mistake: &RecordedMistake) {
    let [label, predicted, measure] = caption(mistake);
    let picture = match &mistake.contents {
        Some((kind, bytes)) => format!(
            r#"<img alt="{label}, predicted {predicted}" src="data:{kind};base64,{}"/>"#,
            STANDARD.encode(bytes)
        ),
        None => r#"<div class="blank">no image</div>"#.to_owned(),
    };
    out.push_str(&format!(
        r#"<figure>{picture}<figcaption>{label}<br/><span class="taken">predicted {predicted}{measure}</span><small title="{}">{}</small></figcaption></figure>"#,
        escaped(&shortened(&mistake.key, 300)),
        escaped(&middle_cut(&mistake.key, 48)),
    ));
}

/// Returns the label, the prediction and the measure, escaped.
fn caption(mistake: &RecordedMistake) -> [String; 3] {
    let RecordedMistake { label, predicted, .. } = mistake;
    let shown = |value: Option<f64>| significant(value.unwrap_or(f64::NAN));
    let (label, predicted, measure) = match (mistake.wrong, &mistake.target) {
        (Some(wrong), _) => {
            let measure = format!("; {wrong} wrong, loss {}", shown(mistake.loss));
            (labels(label), labels(predicted), measure)
        }
        (None, Some(target)) => {
            let label = format!("{target} {}", rounded(label));
            let measure = format!(", error {}", shown(mistake.error));
            (label, rounded(predicted), measure)
        }
        (None, None) => {
            let sure = mistake
                .probability
                .map(|probability| format!(", {}", percent(probability)));
            (label.clone(), predicted.clone(), sure.unwrap_or_default())
        }
    };
    let [label, predicted] = [label, predicted].map(|text| escaped(&shortened(&text, LETTERS)));
    [label, predicted, measure]
}

fn labels(names: &str) -> String {
    if names.is_empty() { "no label" } else { names }.to_owned()
}

/// Rounds a number for display. Other text is returned unchanged.
fn rounded(number: &str) -> String {
    number.parse().map_or_else(|_| number.to_owned(), significant)
}
