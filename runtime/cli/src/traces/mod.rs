//! Traces, exported by OTLP to the collector that OpenTelemetry's own variables name (`runtime/server/docs/tracing.md`). All that knows of
//! OpenTelemetry stands here: libraries make spans of `tracing`.

mod exporter;
mod ids;
mod layer;
mod settings;

pub(crate) use layer::ExportLayer;

use crate::arguments::Command;
use exporter::Watched;
use frostline_client::belong_to;
use frostline_wire::TraceParent;
use ids::Ids;
use layer::{context_in, parent_of};
use opentelemetry::trace::{Span as _, SpanBuilder, Status, Tracer, TracerProvider};
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracer, SdkTracerProvider, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the end of a command waits for the last of them: a collector that answers needs less, one that does not is not worth more.
const FAREWELL: Duration = Duration::from_secs(3);

/// What exports traces while the command runs.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    /// The command's own span, where it is a job.
    job: Option<Span>,
    /// Whether somebody was told that the collector cannot be reached.
    told: Arc<AtomicBool>,
}

impl Traces {
    /// Begins to export what `command` does, if a collector is named; a job asks hosts for whatever it asks as a part of its own span.
    ///
    /// # Errors
    /// A sentence that says which setting cannot be used.
    pub(crate) fn start(command: &Command) -> Result<Option<Self>, String> {
        let Some((service, job)) = exported(command) else {
            return Ok(None);
        };
        let Some(exporter) = settings::exporter()? else {
            return Ok(None);
        };
        let told = Arc::new(AtomicBool::new(false));
        let watched = Watched::new(exporter, Arc::clone(&told));
        let provider = SdkTracerProvider::builder()
            .with_resource(settings::resource(service))
            .with_id_generator(Ids::default())
            .with_span_processor(BatchSpanProcessor::builder(watched).build())
            .build();
        let tracer = provider.tracer("frostline");
        let job = job.map(|name| begin(&tracer, name));
        Ok(Some(Self {
            provider,
            tracer,
            job,
            told,
        }))
    }

    /// What hands spans of `tracing` on to be exported.
    pub(crate) fn layer(&self) -> ExportLayer {
        ExportLayer::new(self.tracer.clone())
    }

    /// Ends the job's span and sends what has not been sent, for some seconds at most.
    pub(crate) fn finish(mut self, failed: bool) {
        if let Some(mut job) = self.job.take() {
            if failed {
                job.set_status(Status::error(""));
            }
            job.end();
        }
        let sent = self.provider.shutdown_with_timeout(FAREWELL);
        if sent.is_err() && !self.told.swap(true, Ordering::Relaxed) {
            let seconds = FAREWELL.as_secs();
            tracing::warn!("the collector did not take the last traces within {seconds} s; they are lost");
        }
    }
}

/// The service a command is, and its span's name where it is a job; none where nothing of it is exported.
fn exported(command: &Command) -> Option<(&'static str, Option<&'static str>)> {
    let job = match command {
        Command::Serve(_) => return Some(("frostline-host", None)),
        Command::Train(_) => "frostline train",
        Command::Plan(_) => "frostline plan",
        Command::Eval(_) => "frostline eval",
        Command::Profile(_) => "frostline profile",
        Command::Extract(_) => "frostline extract",
        _ => return None,
    };
    Some(("frostline-trainer", Some(job)))
}

/// Begins a job's span, below the one that the variable `TRACEPARENT` names, if it does.
fn begin(tracer: &SdkTracer, name: &'static str) -> Span {
    let starter = std::env::var("TRACEPARENT").ok();
    let starter = starter.and_then(|text| TraceParent::read(&text));
    let span = tracer.build_with_context(SpanBuilder::from_name(name), &context_in(starter));
    belong_to(parent_of(span.span_context()));
    span
}
