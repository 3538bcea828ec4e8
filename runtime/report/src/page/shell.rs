use crate::markup::escaped;

/// Nothing but what stands in the page itself is shown, and nothing of it runs.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// The page up to where its contents begin.
pub(super) fn begin(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><meta name=\"color-scheme\" content=\"light dark\"/>\
         <title>{} – Frostline</title><style>{}</style></head><body><main>\n",
        escaped(title),
        include_str!("style.css")
    )
}

pub(super) fn end(out: &mut String) {
    out.push_str(&format!(
        "<footer>Made by frostline {} from the run's folder. Seconds are the trainer's wall clock; KB, MB and GB are powers of ten.</footer></main></body></html>\n",
        env!("CARGO_PKG_VERSION")
    ));
}
