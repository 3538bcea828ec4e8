//! Range checks for settings.

use crate::TrainingError;

pub(crate) fn fraction(setting: &'static str, value: f64) -> Result<(), TrainingError> {
    held(
        setting,
        value,
        (0.0..1.0).contains(&value),
        "at least 0 and below 1",
    )
}

pub(crate) fn not_negative(setting: &'static str, value: f64) -> Result<(), TrainingError> {
    held(setting, value, value >= 0.0 && value.is_finite(), "at least 0")
}

pub(crate) fn above_zero(setting: &'static str, value: f64) -> Result<(), TrainingError> {
    held(setting, value, value > 0.0 && value.is_finite(), "above 0")
}

pub(crate) fn held(
    setting: &'static str,
    value: f64,
    holds: bool,
    expected: &'static str,
) -> Result<(), TrainingError> {
    if holds {
        return Ok(());
    }
    Err(TrainingError::Setting {
        setting,
        value,
        expected,
    })
}
