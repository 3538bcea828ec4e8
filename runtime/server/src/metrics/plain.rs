//! Prometheus text format 0.0.4, for clients that do not accept OpenMetrics.

/// Converts OpenMetrics text to version 0.0.4 of the text format: families get the names of their series, and
/// units and the end marker are removed.
pub(crate) fn plain_text(open_metrics: &str) -> String {
    let mut plain = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text;
        } else if let Some((name, kind)) = type_of(line) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            let text = help.split_once(' ').map_or("", |(_, text)| text);
            plain.push_str(&format!(
                "# HELP {name}{suffix} {text}\n# TYPE {name}{suffix} {kind}\n"
            ));
        } else if !line.starts_with('#') {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

fn type_of(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("# TYPE ")?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_named_as_their_series() {
        let text = "# HELP a Things.\n# TYPE a counter\na_total{b=\"x\"} 1\n# HELP v Version.\n# TYPE v info\nv_info{c=\"1\"} 1\n\
            # HELP d_seconds Waits.\n# TYPE d_seconds histogram\n# UNIT d_seconds seconds\nd_seconds_sum 1.5\n# EOF\n";
        let plain = "# HELP a_total Things.\n# TYPE a_total counter\na_total{b=\"x\"} 1\n# HELP v_info Version.\n\
            # TYPE v_info gauge\nv_info{c=\"1\"} 1\n# HELP d_seconds Waits.\n# TYPE d_seconds histogram\nd_seconds_sum 1.5\n";
        assert_eq!(plain_text(text), plain);
    }
}
