//! Traces, exported with OTLP to the collector that OpenTelemetry's environment variables select
//! (`runtime/server/docs/tracing.md`). Only this module uses OpenTelemetry. Libraries create `tracing` spans.

mod collector;
mod layer;

pub(crate) use layer::ExportLayer;

use crate::arguments::Command;
use frostline_client::set_trace_parent;
use frostline_wire::TraceParent;
use layer::{Ids, context_in};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanContext, Status, Tracer, TracerProvider};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Timeout for sending the last spans at the end of a command. Reachable collectors respond faster.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Trace export of a command.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    /// Span for the command if it is a job.
    job: Option<Span>,
    /// Set after the first warning about the collector.
    warned: Arc<AtomicBool>,
}

impl Traces {
    /// Starts the export of spans for `command` if a collector is configured. Requests of a job become
    /// children of the job's span.
    ///
    /// # Errors
    /// Returns a message that names the invalid setting.
    pub(crate) fn start(command: &Command) -> Result<Option<Self>, String> {
        let Some((service, job)) = exported(command) else {
            return Ok(None);
        };
        let warned = Arc::new(AtomicBool::new(false));
        let Some(exporter) = collector::exporter(Arc::clone(&warned))? else {
            return Ok(None);
        };
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(service))
            .with_id_generator(Ids::default())
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer("frostline");
        let job = job.map(|name| start_job_span(&tracer, name));
        Ok(Some(Self {
            provider,
            tracer,
            job,
            warned,
        }))
    }

    /// Returns the layer that exports `tracing` spans.
    pub(crate) fn layer(&self) -> ExportLayer {
        ExportLayer {
            tracer: self.tracer.clone(),
        }
    }

    /// Ends the job's span and sends the remaining spans, for up to [`SHUTDOWN_TIMEOUT`].
    pub(crate) fn finish(mut self, failed: bool) {
        if let Some(mut job) = self.job.take() {
            if failed {
                job.set_status(Status::error(""));
            }
            job.end();
        }
        let sent = self.provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT);
        if sent.is_err() && !self.warned.swap(true, Ordering::Relaxed) {
            let seconds = SHUTDOWN_TIMEOUT.as_secs();
            tracing::warn!(
                "the collector did not accept the last traces within {seconds} s; these traces are lost"
            );
        }
    }
}

/// Returns the service name of a command, with the span name if the command is a job. Returns `None` if the
/// command is not traced.
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

/// Starts the span of a job. The parent is set by the variable `TRACEPARENT`.
fn start_job_span(tracer: &SdkTracer, name: &'static str) -> Span {
    let starter = std::env::var("TRACEPARENT").ok();
    let starter = starter.and_then(|text| TraceParent::read(&text));
    let span = tracer.build_with_context(SpanBuilder::from_name(name), &context_in(starter));
    set_trace_parent(parent_of(span.span_context()));
    span
}

fn parent_of(span: &SpanContext) -> TraceParent {
    TraceParent {
        trace: u128::from_be_bytes(span.trace_id().to_bytes()),
        span: u64::from_be_bytes(span.span_id().to_bytes()),
        sampled: span.is_sampled(),
    }
}

/// Creates the resource, with the service name unless the environment sets another name.
fn resource(service: &'static str) -> Resource {
    let resource = Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", service),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ])
        .with_detectors(&[
            Box::new(TelemetryResourceDetector),
            Box::new(EnvResourceDetector::new()),
        ]);
    let named = std::env::var("OTEL_SERVICE_NAME");
    match named.ok().filter(|name| !name.is_empty()) {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}
