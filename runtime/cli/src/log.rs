//! Logs to standard error and export of traces.

use crate::arguments::{Arguments, Authoring, Command, GuestCommand};
use crate::output;
use crate::traces::{ExportLayer, Traces};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Starts logging and tracing. Logs are written to standard error, as JSON lines with `--json`. The default
/// level is warning.
pub(crate) fn start(arguments: &Arguments) -> Option<Traces> {
    let level = match (arguments.verbose, &arguments.command) {
        (0, Command::Serve(_)) => "warn,frostline_server=info,frostline_state=info",
        // Authors want to see the log of the guest.
        (0, Command::Guest(GuestCommand::Authoring(Authoring::Run(_)))) => "warn,frostline::guest=debug",
        (0, _) => "warn",
        (1, _) => {
            "warn,frostline=info,frostline_server=info,frostline_state=info,frostline_trainer=info,frostline_sandbox=info"
        }
        _ => "debug",
    };
    let named: Option<Targets> = std::env::var("RUST_LOG")
        .ok()
        .and_then(|levels| levels.parse().ok());
    let filter = named
        .or_else(|| level.parse().ok())
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let log = fmt::layer()
        .with_ansi(false)
        .with_writer(output::stderr)
        // Ignore write errors, because reporting these on standard error would panic.
        .log_internal_errors(false);
    let log = match arguments.json {
        true => log.json().boxed(),
        false => log.with_target(false).boxed(),
    };
    let traces = Traces::start(&arguments.command);
    let export = match &traces {
        Ok(Some(traces)) => Some(traces.layer().with_filter(ExportLayer::filter())),
        _ => None,
    };
    tracing_subscriber::registry()
        .with(log.with_filter(filter))
        .with(export)
        .init();
    traces.unwrap_or_else(|why| {
        tracing::warn!("cannot export traces: {why}");
        None
    })
}
