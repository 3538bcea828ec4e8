//! Stops the command on signals.

use crate::failure::INTERRUPTED;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Time after the first signal in which further signals are ignored. A single request can arrive as several
/// signals: `timeout -s INT` sends one to the process and one to its group. Users who press Ctrl-C again
/// because the command has not ended wait longer.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Signal that asks the command to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopSignal {
    /// Ctrl-C or SIGTERM.
    Request,
    /// SIGHUP, sent when the terminal is closed, by the system and by shells.
    Hangup,
}

/// Effect of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Ends the current step and writes results.
    Stop,
    Ignore,
    /// Ends the process immediately.
    Exit,
}

/// Returns the effect of a signal at the time `now`. `stopping` is the time of the first signal, if any.
fn effect(signal: StopSignal, stopping: Option<Instant>, now: Instant) -> Effect {
    match (signal, stopping) {
        (_, None) => Effect::Stop,
        (StopSignal::Request, Some(first)) if now.saturating_duration_since(first) >= SAME_REQUEST => {
            Effect::Exit
        }
        _ => Effect::Ignore,
    }
}

/// Cancels `stop` after the first Ctrl-C or SIGTERM. Exits immediately if another signal arrives at least
/// [`SAME_REQUEST`] later. With `hangs_up`, SIGHUP also cancels `stop`, unless it was ignored when the
/// process started, as under `nohup`.
pub(crate) async fn stop_on_signal(stop: CancellationToken, hangs_up: bool) {
    // Install all handlers first, to catch a second signal that immediately follows the first.
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        return;
    };
    let mut hangup = match hangs_up && !is_hangup_ignored() {
        true => signal(SignalKind::hangup()).ok(),
        false => None,
    };
    let mut stopping = None;
    loop {
        let received = tokio::select! {
            _ = interrupt.recv() => StopSignal::Request,
            _ = terminate.recv() => StopSignal::Request,
            () = hung_up(&mut hangup) => StopSignal::Hangup,
        };
        let now = Instant::now();
        match effect(received, stopping, now) {
            Effect::Stop => {
                stopping = Some(now);
                stop.cancel();
            }
            Effect::Ignore => {}
            Effect::Exit => std::process::exit(i32::from(INTERRUPTED)),
        }
    }
}

/// Waits for the next SIGHUP. Never returns without a handler.
async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            hangup.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Returns true if this process ignores SIGHUP. On systems without `/proc` this is unknown, and the result is
/// true, which keeps the default action.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores_hangup(&status)
}

/// Reads the mask of ignored signals in `/proc/<pid>/status`. The lowest bit is signal 1, SIGHUP.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_request_exits_from_one_second_on() {
        let first = Instant::now();
        let after = |milliseconds| first + Duration::from_millis(milliseconds);
        let of = |signal, stopping, milliseconds| effect(signal, stopping, after(milliseconds));
        for signal in [StopSignal::Request, StopSignal::Hangup] {
            assert_eq!(of(signal, None, 0), Effect::Stop);
            assert_eq!(of(signal, Some(first), 0), Effect::Ignore);
            assert_eq!(of(signal, Some(first), 999), Effect::Ignore);
        }
        assert_eq!(of(StopSignal::Request, Some(first), 1_000), Effect::Exit);
        assert_eq!(of(StopSignal::Request, Some(first), 60_000), Effect::Exit);
        assert_eq!(of(StopSignal::Hangup, Some(first), 60_000), Effect::Ignore);
        // Clocks of two cores can differ slightly.
        assert_eq!(effect(StopSignal::Request, Some(after(5)), first), Effect::Ignore);
    }

    #[test]
    fn an_ignored_hangup_is_read_from_the_mask() {
        let status = |mask: &str| format!("SigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t01\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(ignores_hangup("") && ignores_hangup(&status("x")));
    }
}
