use super::files;
use crate::ReportError;
use crate::markup::shortened;
use serde_json::Value;
use std::path::Path;

/// Maximum number of settings, and maximum length of names and values in characters.
const MOST: usize = 500;
const LETTERS: usize = 300;
/// Maximum depth of objects. Deeper objects are shown as JSON.
const DEPTH: usize = 6;

/// Unix time of the start of the run in seconds.
const CREATED: &str = "created";

/// Contents of `config.json` as paths and values, such as `recipe.lr` and `0.1`.
#[derive(Debug, Default)]
pub(crate) struct RecordedSettings {
    pub(crate) rows: Vec<(String, String)>,
    /// True if settings were omitted.
    pub(crate) cut: bool,
}

impl RecordedSettings {
    pub(crate) fn read(file: &Path) -> Result<Self, ReportError> {
        let mut settings = Self::default();
        if let Some(config) = files::json(file)? {
            settings.add(String::new(), &config, 0);
        }
        Ok(settings)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.rows.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn add(&mut self, name: String, value: &Value, depth: usize) {
        if let Value::Object(fields) = value
            && depth < DEPTH
            && !fields.is_empty()
        {
            for (field, value) in fields {
                let path = if name.is_empty() {
                    field.clone()
                } else {
                    format!("{name}.{field}")
                };
                self.add(path, value, depth + 1);
            }
        } else if self.rows.len() == MOST {
            self.cut = true;
        } else {
            let value = match (name.as_str(), value.as_u64()) {
                (CREATED, Some(seconds)) => format!("{} UTC", frostline_job::utc(seconds)),
                _ => shown(value),
            };
            self.rows
                .push((shortened(&name, LETTERS), shortened(&value, LETTERS)));
        }
    }
}

/// Formats a value for display. Strings have no quotes, flat lists use commas, and other values are JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Array(values) if values.iter().all(|value| !value.is_object() && !value.is_array()) => values
            .iter()
            .take(LETTERS)
            .map(shown)
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_become_paths() {
        let mut settings = RecordedSettings::default();
        let config = serde_json::json!({"recipe": {"lr": 0.1, "milestones": [3, 6], "mix": null}, "model": "m", "none": {}, "created": 1_795_448_325_u64});
        settings.add(String::new(), &config, 0);
        assert_eq!(settings.get("created"), Some("2026-11-23 15:38:45 UTC"));
        assert_eq!(settings.get("recipe.lr"), Some("0.1"));
        assert_eq!(settings.get("recipe.milestones"), Some("3, 6"));
        assert_eq!(settings.get("recipe.mix"), Some("none"));
        assert_eq!(
            (settings.get("model"), settings.get("none")),
            (Some("m"), Some("{}"))
        );
    }

    #[test]
    fn endless_settings_are_cut() {
        let mut settings = RecordedSettings::default();
        let many: serde_json::Map<_, _> = (0..MOST + 9).map(|i| (i.to_string(), i.into())).collect();
        settings.add(String::new(), &many.into(), 0);
        assert!(settings.cut && settings.rows.len() == MOST);
        let mut deep = serde_json::json!(1);
        for _ in 0..40 {
            deep = serde_json::json!({ "a": deep });
        }
        let mut settings = RecordedSettings::default();
        settings.add(String::new(), &deep, 0);
        assert_eq!(settings.rows.len(), 1);
    }
}
