//! The `frostline` command: train and evaluate on the compute side, serve and look after a storage host.

// A line that cannot be printed ends nothing: say! and tell! in their place.
#![warn(clippy::print_stdout, clippy::print_stderr)]

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
mod headway;
mod host;
mod log;
mod man;
mod model;
mod onnxruntime;
mod outage;
mod plan;
mod plot;
mod predict;
mod profile;
mod program;
mod quantize;
mod reference;
mod report;
mod reporter;
mod results;
mod runs;
mod serve;
mod sweep;
mod team;
mod traces;
mod train;

use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use failure::INTERRUPTED;
use frostline_server::ConfinedLane;
use std::io::Write;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::not_understood(&error),
    };
    let json = arguments.json;
    match &arguments.command {
        // Before anything else is started in a process that is to do only this.
        Command::CompileGuest(flags) => return flags.compiler().run(),
        Command::Lanes => return lane(&arguments),
        Command::Serve(_) => {
            arenas::keep_few();
            if let Err(error) = serve::harden() {
                return failure::ended(
                    &anyhow::Error::new(error).context("cannot hide this process"),
                    false,
                    json,
                );
            }
        }
        _ => {}
    }
    let traces = log::start(&arguments);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure::ended(&anyhow::Error::new(error).context("cannot start"), false, json),
    };
    let stop = CancellationToken::new();
    let result = runtime.block_on(async {
        tokio::spawn(stop_on_signal(stop.clone()));
        if arguments.until_input_ends {
            stop_with_input(stop.clone());
        }
        run(arguments, &stop).await
    });
    if let Some(traces) = traces {
        traces.finish(result.is_err());
    }
    // Whatever still runs has been told to end; nobody waits for it.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::ended(&error, stop.is_cancelled(), json),
    }
}

/// The process of a lane. The host ends it, in its own time, so it listens to no signal.
fn lane(arguments: &Arguments) -> ExitCode {
    log::start(arguments);
    match frostline_server::enter_lane().and_then(ConfinedLane::serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::ended(&error.into(), false, arguments.json),
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
        Command::Admin(flags) => admin::run(flags, json).await,
        Command::CompileGuest(_) | Command::Lanes => Ok(()),
        Command::Completions { shell } => {
            // It panics where a reader that has what it wants goes away.
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

/// Asks everything to end when standard input ends, which it does when whoever holds its other end is gone, however that came.
fn stop_with_input(stop: CancellationToken) {
    std::thread::spawn(move || {
        // What comes is of no matter, and an input that cannot be read has ended.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.cancel();
    });
}

/// The first Ctrl-C or SIGTERM asks everything to end; a second one ends the process at once.
async fn stop_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    // Both are listened to from the start, so that a second one is not missed that follows the first closely.
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        return;
    };
    for again in [false, true] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if again {
            std::process::exit(i32::from(INTERRUPTED));
        }
        stop.cancel();
    }
}
