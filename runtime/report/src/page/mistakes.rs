use crate::markup::{escaped, middle_cut, percent, shortened};
use crate::run::Mistake;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(super) fn section(out: &mut String, mistakes: &[Mistake]) {
    if mistakes.is_empty() {
        return;
    }
    let without = match mistakes.iter().filter(|mistake| mistake.image.is_none()).count() {
        0 => String::new(),
        count => format!(
            " {count} of {} have no image: too large, or not received when the job ended.",
            mistakes.len()
        ),
    };
    out.push_str(&format!(
        r#"<section><h2>Worst mistakes</h2><p class="soft">Wrong predictions with the highest confidence.{without}</p><div class="mistakes">"#,
    ));
    for mistake in mistakes {
        let (label, predicted) = (
            escaped(&shortened(&mistake.label, 60)),
            escaped(&shortened(&mistake.predicted, 60)),
        );
        let picture = match &mistake.image {
            Some((kind, bytes)) => format!(
                r#"<img alt="{label}, predicted {predicted}" src="data:{kind};base64,{}"/>"#,
                STANDARD.encode(bytes)
            ),
            None => r#"<div class="blank">no image</div>"#.to_owned(),
        };
        let sure = if mistake.probability.is_finite() {
            format!(", {}", percent(mistake.probability))
        } else {
            String::new()
        };
        out.push_str(&format!(
            r#"<figure>{picture}<figcaption>{label}<br/><span class="taken">predicted {predicted}{sure}</span><small title="{}">{}</small></figcaption></figure>"#,
            escaped(&shortened(&mistake.key, 300)),
            escaped(&middle_cut(&mistake.key, 48)),
        ));
    }
    out.push_str("</div></section>");
}
