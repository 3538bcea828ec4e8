use crate::hints::{CommandLine, NextStep};
use crate::output::stdout;
use serde::Serialize;
use std::io::{self, Write};

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckState {
    Works,
    Fails,
    /// The check was not run.
    Skipped,
}

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: CheckState,
    pub(super) found: String,
    /// Suggested fix or next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn works(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            state: CheckState::Works,
            found: found.into(),
            advice: None,
        }
    }

    pub(super) fn fails(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            state: CheckState::Fails,
            advice: Some(advice.into()),
            ..Self::works(check, found)
        }
    }

    pub(super) fn skipped(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            state: CheckState::Skipped,
            ..Self::works(check, found)
        }
    }

    /// Appends `step` to the advice, if the command line of this process can be changed like that.
    pub(super) fn or(self, step: &NextStep) -> Self {
        let step = CommandLine::of_process().text(step);
        let advice: Vec<String> = self.advice.into_iter().chain(step).collect();
        Self {
            advice: Some(advice.join("; or ")).filter(|advice| !advice.is_empty()),
            ..self
        }
    }
}

/// Prints the findings as text.
pub(super) fn show(findings: &[Finding]) -> io::Result<()> {
    let mut stdout = stdout();
    for finding in findings {
        let state = match finding.state {
            CheckState::Works => "works",
            CheckState::Fails => "FAILS",
            CheckState::Skipped => "skipped",
        };
        writeln!(stdout, "{state:<7}  {:<7}  {}", finding.check, finding.found)?;
        if let Some(advice) = &finding.advice {
            writeln!(stdout, "{:18}-> {advice}", "")?;
        }
    }
    stdout.flush()
}
