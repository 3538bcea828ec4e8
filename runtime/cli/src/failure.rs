//! Reports of failed commands, as a line for users or with `--json` as an object for programs, and exit
//! codes.

use crate::hints::{CommandLine, Hint, hints};
use frostline_client::ClientError;
use frostline_job::plain_line;
use frostline_tensor::one_line;
use frostline_trainer::TrainerError;
use frostline_wire::{ErrorBody, ErrorClass};
use serde::Serialize;
use std::io;
use std::process::ExitCode;

/// Exit code for failed commands, except for invalid arguments (clap uses 2) and interruptions.
const FAILED: u8 = 1;
/// Exit code that shells use for commands terminated by Ctrl-C: 128 plus the number of the signal.
pub(crate) const INTERRUPTED: u8 = 130;

/// JSON object with an error.
#[derive(Debug, PartialEq, Serialize)]
struct FailureReport {
    error: String,
    /// `usage`, `interrupted`, the class reported by a host (see [`ErrorClass`]), or `failed`.
    kind: ReportedKind,
    code: u8,
    /// The next step as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The alternatives in `hint` for programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next: Vec<Hint>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum ReportedKind {
    Ours(&'static str),
    Hosts(ErrorClass),
}

/// Reports the error of a command and returns the exit code. `interrupted` is true if the command was stopped
/// by a signal.
pub(crate) fn report_failure(error: &anyhow::Error, interrupted: bool, json: bool) -> ExitCode {
    if reader_left(error) {
        return ExitCode::SUCCESS;
    }
    // Conflicts between flags and files are found after parsing.
    if let Some(error) = error.downcast_ref::<clap::Error>() {
        return report_usage_error(error);
    }
    let (kind, code) = if interrupted {
        (ReportedKind::Ours("interrupted"), INTERRUPTED)
    } else {
        (
            class(error).map_or(ReportedKind::Ours("failed"), ReportedKind::Hosts),
            FAILED,
        )
    };
    let next = hints(error, &CommandLine::of_process());
    let texts: Vec<&str> = next.iter().map(|hint| hint.text.as_str()).collect();
    let hint = texts.join("; or ");
    say(
        &FailureReport {
            error: one_line(error.as_ref()),
            kind,
            code,
            hint: Some(hint).filter(|hint| !hint.is_empty()),
            next,
        },
        json,
    )
}

/// Returns true if the reader of the output closed the pipe (`| head`). This is not a failure. Only print
/// errors have no context, and print errors of events are ignored, so other broken connections are still
/// reported.
fn reader_left(error: &anyhow::Error) -> bool {
    error.chain().len() == 1
        && error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Reports invalid arguments, or prints the requested help or version.
pub(crate) fn report_usage_error(error: &clap::Error) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(FAILED);
    let json = in_json();
    let text = error.render().to_string();
    if !error.use_stderr() {
        // This text contains no external input. Ignore errors of a closed standard output.
        let _ = error.print();
    } else if json {
        return say(&usage(&text, code), json);
    } else {
        tell!("{}", text.trim_end());
    }
    ExitCode::from(code)
}

/// Returns true if failures are reported as JSON. Also works for an invalid command line.
pub(crate) fn in_json() -> bool {
    std::env::args_os().any(|argument| argument == "--json")
}

/// Converts an error message of clap. The first paragraph becomes the error and the rest becomes the hint.
fn usage(text: &str, code: u8) -> FailureReport {
    let (error, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    FailureReport {
        error: joined(error.trim_start_matches("error: ")),
        kind: ReportedKind::Ours("usage"),
        code,
        hint: Some(joined(rest)).filter(|hint| !hint.is_empty()),
        next: Vec::new(),
    }
}

/// Joins the lines of a paragraph.
fn joined(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn say(failure: &FailureReport, json: bool) -> ExitCode {
    if json {
        tell!("{}", serde_json::to_string(failure).unwrap_or_default());
    } else {
        tell!("error: {}", plain_line(&failure.error));
        if let Some(hint) = &failure.hint {
            tell!("hint: {hint}");
        }
    }
    ExitCode::from(failure.code)
}

/// Returns the error class if a host refused a request.
fn class(error: &anyhow::Error) -> Option<ErrorClass> {
    error.chain().find_map(|cause| {
        if let Some(body) = cause.downcast_ref::<ErrorBody>() {
            return Some(body.class);
        }
        let client = match cause.downcast_ref::<TrainerError>().map(TrainerError::cause) {
            Some(TrainerError::Client(client)) => Some(client),
            _ => cause.downcast_ref::<ClientError>(),
        };
        client.and_then(ClientError::class)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn errors_fit_a_line_and_say_nothing_twice() {
        let error = Err::<(), _>(anyhow::anyhow!("disk\nfull"))
            .context("cannot write: disk full")
            .unwrap_err();
        assert_eq!(one_line(error.as_ref()), "cannot write: disk full");
    }

    #[test]
    fn a_hosts_refusal_keeps_its_class() {
        let refused = ErrorBody {
            class: ErrorClass::NotFound,
            message: "unknown tenant".to_owned(),
        };
        let error = anyhow::Error::from(refused).context("cannot show it");
        assert_eq!(class(&error), Some(ErrorClass::NotFound));
        let kind = serde_json::to_string(&ReportedKind::Hosts(ErrorClass::NotFound)).unwrap();
        assert_eq!(kind, "\"not-found\"");
        assert_eq!(class(&anyhow::anyhow!("other")), None);
    }

    #[test]
    fn what_clap_says_is_an_error_and_a_hint() {
        let text = "error: unexpected argument '--modle' found\n\n  tip: a similar argument exists: '--model'\n\nUsage: frostline train\n";
        let failure = usage(text, 2);
        assert_eq!(failure.error, "unexpected argument '--modle' found");
        assert_eq!(
            failure.hint.unwrap(),
            "tip: a similar argument exists: '--model' Usage: frostline train"
        );
    }
}
