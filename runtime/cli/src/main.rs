//! The `frostline` command, for training, evaluation and serving, and for administration of storage hosts.

// Use say! and tell! instead, which do not panic if a line cannot be written.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

#[macro_use]
mod output;

mod admin;
mod arenas;
mod arguments;
mod authoring;
mod cache;
mod doctor;
mod eval;
mod event_text;
mod extract;
mod failure;
mod figures;
mod guest;
mod guest_log;
mod hints;
mod host;
mod host_folder;
mod log;
mod man;
mod model;
mod onnxruntime;
mod outage;
mod plan;
mod predict;
mod profile;
mod program;
mod progress;
mod quantize;
mod reference;
mod report;
mod reporter;
mod results;
mod runs;
mod serve;
mod signals;
mod sweep;
mod sweep_definition;
mod systemd;
mod traces;
mod train;
mod training;

use arguments::{Arguments, Command};
use clap::CommandFactory;
use frostline_server::ConfinedLane;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time after which idle threads for blocking work exit. A host reads its state several times per second, and each
/// read wakes another idle thread. With Tokio's default of 10 s, all of them therefore stay.
const IDLE_THREADS: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let arguments = match Arguments::from_words(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return failure::report_usage_error(&error),
    };
    let json = arguments.json;
    match &arguments.command {
        // Must run before other threads, files or signal handlers exist in this process.
        Command::CompileGuest(flags) => return flags.compiler().run(),
        Command::Lanes => return lane(&arguments),
        Command::Serve(_) => {
            arenas::restart_with_few_arenas();
            if let Err(error) = serve::harden() {
                return failure::report_failure(
                    &anyhow::Error::new(error).context("cannot hide this process"),
                    false,
                    json,
                );
            }
        }
        _ => {}
    }
    let traces = log::start(&arguments);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_keep_alive(IDLE_THREADS)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return failure::report_failure(&anyhow::Error::new(error).context("cannot start"), false, json);
        }
    };
    let stop = CancellationToken::new();
    let result = runtime.block_on(async {
        // On SIGHUP, a host reloads the configuration instead of stopping.
        let hangs_up = !matches!(arguments.command, Command::Serve(_));
        tokio::spawn(signals::stop_on_signal(stop.clone(), hangs_up));
        if arguments.until_input_ends {
            stop_with_input(stop.clone());
        }
        run(arguments, &stop).await
    });
    if let Some(traces) = traces {
        traces.finish(result.is_err());
    }
    // Remaining tasks have been cancelled, so do not wait for these.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report_failure(&error, stop.is_cancelled(), json),
    }
}

/// Runs the process of a lane. Signal handlers are not needed, because the host stops the process.
fn lane(arguments: &Arguments) -> ExitCode {
    log::start(arguments);
    match frostline_server::enter_lane().and_then(ConfinedLane::serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report_failure(&error.into(), false, arguments.json),
    }
}

async fn run(arguments: Arguments, stop: &CancellationToken) -> anyhow::Result<()> {
    let json = arguments.json;
    tracing::debug!(version = env!("CARGO_PKG_VERSION"), "started");
    match arguments.command {
        Command::Train(flags) => train::run(flags, json, stop).await,
        Command::Plan(flags) => plan::run(flags, json, stop).await,
        Command::Eval(flags) => eval::run(flags, json, stop).await,
        Command::Predict(flags) => predict::run(flags, json, stop).await,
        Command::Profile(flags) => profile::run(flags, json, stop).await,
        Command::Extract(flags) => extract::run(flags, json, stop).await,
        Command::Report(flags) => report::run(&flags, json),
        Command::Runs(flags) => runs::run(&flags, json),
        Command::Serve(flags) => serve::run(flags, json, stop).await,
        Command::Guest(command) => guest::run(command, json, stop).await,
        Command::Model(command) => model::run(command, json, stop).await,
        Command::Cache(command) => cache::run(&command, json),
        Command::Doctor(flags) => doctor::run(flags, json).await,
        Command::OnnxRuntime(command) => onnxruntime::run(command, json),
        Command::Admin(flags) => admin::run(flags, json, stop).await,
        Command::CompileGuest(_) | Command::Lanes => Ok(()),
        Command::Completions { shell } => {
            // Write to memory first, because the generator panics on a closed pipe.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "frostline", &mut script);
            Ok(output::stdout().write_all(&script)?)
        }
        Command::Reference { part } => reference::print(part),
        Command::Man { directory: None } => man::print(),
        Command::Man {
            directory: Some(directory),
        } => man::write_all(&directory),
    }
}

/// Cancels `stop` at the end of standard input, which happens if the process with the other end exits in any
/// way.
#[expect(clippy::disallowed_methods, reason = "a process starts this thread once")]
fn stop_with_input(stop: CancellationToken) {
    std::thread::spawn(move || {
        // Ignore the contents, and treat a read error as the end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.cancel();
    });
}
