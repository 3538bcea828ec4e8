//! Shows job events as JSON lines, or as text with a progress bar.

use crate::event_text::text;
use crate::outage::Outages;
use crate::output::{is_terminal, is_watched, print_json, stdout};
use crate::progress::JobProgress;
use frostline_client::Notice;
use frostline_job::{Events, plain_line};
use frostline_trainer::{Event, TrainedStep};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prints important events to standard error, for commands that show no other events.
pub(crate) fn warn(event: &Event, json: bool) {
    let matters = matches!(
        event,
        Event::Notice(Notice::Host { .. })
            | Event::Notice(Notice::NoKeys { .. } | Notice::OutwardLinks { .. } | Notice::Precision { .. })
            | Event::Features { .. }
            | Event::LeftOut(_)
            | Event::Pixels { .. }
            | Event::Warning { .. }
            | Event::BadSample { .. }
    );
    if !matters {
        return;
    }
    if json {
        tell!("{}", serde_json::to_string(event).unwrap_or_default());
    } else if let Some(line) = text(event) {
        tell!("{line}");
    }
}

/// Shows the events of a job as JSON lines, or as text with a progress bar if standard error is a terminal.
pub(crate) struct Reporter {
    json: bool,
    /// True if standard output is reserved for the result of the command.
    beside: bool,
    bar: Mutex<Bar>,
    outages: Mutex<Outages>,
}

/// Refresh interval of spinners.
const TICK: Duration = Duration::from_millis(120);

/// Progress bar for uploads, measurements and training steps.
struct Bar {
    shown: ProgressBar,
    progress: JobProgress,
    /// True if the bar shows training steps.
    stepping: bool,
    ends: Arc<Mutex<Ends>>,
}

/// Texts at the start and the end of the line, which stay visible if a narrow terminal truncates the middle.
#[derive(Default)]
struct Ends {
    epoch: String,
    eta: String,
}

impl Bar {
    fn follow(&mut self, event: &Event) {
        let shown = &self.shown;
        match event {
            Event::Dataset(data) => {
                let [steps, train, validation] =
                    [data.steps_per_epoch, data.train, data.validation].map(|count| count as u64);
                self.progress = JobProgress::new(data.epochs, steps, train, validation);
                self.show_steps();
            }
            Event::Features { kept, rows, .. } => self.progress.keeps(*kept, *rows),
            Event::Baseline { seconds, .. } => self.progress.validated(*seconds),
            Event::Unfreeze { epoch, .. } => self.progress.unfreeze(*epoch),
            Event::Notice(Notice::Uploading {
                what, sent, bytes, ..
            }) => {
                self.stepping = false;
                shown.set_style(style("{bar:30} {bytes}/{total_bytes}  {msg}  {bytes_per_sec}"));
                shown.set_length(*bytes);
                shown.set_position(*sent);
                shown.set_message(what.to_string());
            }
            Event::Measuring { what } => {
                self.stepping = false;
                shown.set_style(style("{spinner} measuring {msg}  {elapsed}"));
                shown.set_message(what.to_string());
                shown.reset();
                shown.enable_steady_tick(TICK);
            }
            Event::Progress { images, total } => {
                self.stepping = false;
                shown.set_style(style("{bar:30} {pos}/{len} images  {eta}"));
                shown.set_length(*total);
                shown.set_position(*images);
            }
            Event::Upload { .. } | Event::Split { .. } | Event::Int8 { .. } => self.show_steps(),
            Event::Step(step) => self.step(step),
            Event::Epoch(epoch) => self.progress.ended(epoch.seconds),
            _ => {}
        }
    }

    /// Advances by one step.
    fn step(&mut self, step: &TrainedStep) {
        self.progress.step(step);
        if !self.stepping {
            self.show_steps();
        }
        self.show_position();
        // Escape the text here, because the bar does not write through [`stdout`].
        let words = self.progress.description(step.loss, &step.split);
        self.shown.set_message(plain_line(&words).into_owned());
    }

    fn show_steps(&mut self) {
        self.stepping = true;
        self.shown.disable_steady_tick();
        self.shown.set_message("");
        let template = "{job_epoch} [{bar:12}] {pos}/{len}  {wide_msg}  {job_eta}";
        let style = style(template)
            .with_key("job_epoch", self.writer(|ends| &ends.epoch))
            .with_key("job_eta", self.writer(|ends| &ends.eta));
        self.shown.set_style(style.progress_chars("=> "));
        self.show_position();
    }

    /// Returns a writer for the start or the end of the line.
    fn writer(
        &self,
        end: fn(&Ends) -> &str,
    ) -> impl Fn(&ProgressState, &mut dyn std::fmt::Write) + Clone + use<> {
        let ends = Arc::clone(&self.ends);
        move |_, to| {
            let _ = to.write_str(end(&ends.lock()));
        }
    }

    /// Updates everything before the bar is drawn, to avoid outdated parts.
    fn show_position(&self) {
        *self.ends.lock() = Ends {
            epoch: self.progress.epoch(),
            eta: self.progress.eta(),
        };
        let (done, steps) = self.progress.position();
        self.shown.update(|state| {
            state.set_len(steps);
            state.set_pos(done);
        });
    }
}

impl Reporter {
    pub(crate) fn new(json: bool) -> Self {
        // The bar is drawn at the first update.
        let bar = ProgressBar::new(0).with_style(style("{msg}"));
        if json || !is_watched() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self {
            json,
            beside: false,
            bar: Mutex::new(Bar {
                shown: bar,
                progress: JobProgress::default(),
                stepping: false,
                ends: Arc::default(),
            }),
            outages: Mutex::default(),
        }
    }

    /// Creates a reporter for a command with other output. Only progress and important events are shown, on
    /// standard error.
    pub(crate) fn beside(json: bool) -> Self {
        Self {
            beside: true,
            ..Self::new(json)
        }
    }

    /// Returns a callback that shows events.
    pub(crate) fn events(self: &Arc<Self>) -> Events {
        let reporter = Arc::clone(self);
        Arc::new(move |event| reporter.show(&event))
    }

    /// Shows an event. Write errors are ignored, because they must not affect the job.
    pub(crate) fn show(&self, event: &Event) {
        if self.json && self.beside {
            return warn(event, true);
        }
        if self.json {
            if !event.is_progress() {
                let _ = print_json(event);
            }
            return;
        }
        let mut bar = self.bar.lock();
        if !self.beside || event.is_progress() || matches!(event, Event::Measuring { .. }) {
            bar.follow(event);
        }
        for line in self.outage_lines(event) {
            bar.shown.suspend(|| {
                if self.beside {
                    tell!("{line}")
                } else {
                    say!("{line}")
                }
            });
        }
        if self.beside {
            bar.shown.suspend(|| warn(event, false));
        } else if let Some(line) = text(event) {
            bar.shown.suspend(|| writeln!(stdout(), "{line}").ok());
        }
        if let Event::Measuring { what } = event
            && bar.shown.is_hidden()
        {
            tell!("measuring  {what}");
        }
    }

    /// Shows a warning.
    pub(crate) fn warning(&self, message: String) {
        self.show(&Event::Warning { message });
    }

    /// Returns lines about failing or recovered hosts.
    fn outage_lines(&self, event: &Event) -> Vec<String> {
        let mut outages = self.outages.lock();
        let now = Instant::now();
        match event {
            Event::Notice(notice) => outages.retried(notice, now).into_iter().collect(),
            Event::Step { .. } | Event::Progress { .. } => outages.arrived(now),
            _ => Vec::new(),
        }
    }

    /// Removes the progress bar.
    pub(crate) fn finish(&self) {
        self.bar.lock().shown.finish_and_clear();
    }
}

/// Creates a counter of images on standard error for an unknown total. It is hidden if standard output is
/// also a terminal.
pub(crate) fn image_counter() -> ProgressBar {
    if !is_watched() || is_terminal() {
        return ProgressBar::hidden();
    }
    ProgressBar::no_length().with_style(style("{spinner} {pos} images  {per_sec}"))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
