//! Exports `tracing` spans of requests when they end, both requests handled by a host and requests sent by a
//! job.

use frostline_wire::TraceParent;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer;
use tracing_subscriber::registry::LookupSpan;

/// Fields and the exported attributes. Other fields are not exported.
const ATTRIBUTES: [(&str, &str); 11] = [
    ("method", "http.request.method"),
    ("path", "url.path"),
    ("route", "http.route"),
    ("address", "server.address"),
    ("port", "server.port"),
    ("status", "http.response.status_code"),
    ("tenant", "frostline.tenant"),
    ("guest", "frostline.guest"),
    ("extraction", "frostline.extraction"),
    ("outcome", "frostline.outcome"),
    ("seconds", "frostline.image_seconds"),
];

thread_local! {
    /// Id for the next exported span on this thread.
    static NEXT_ID: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// Id generator that uses random ids, except for requests. The id of a request is known earlier, because it
/// was sent to the host or is the parent of stages.
#[derive(Debug, Default)]
pub(super) struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        self.0.new_trace_id()
    }

    fn new_span_id(&self) -> SpanId {
        NEXT_ID.take().unwrap_or_else(|| self.0.new_span_id())
    }
}

pub(crate) struct ExportLayer {
    pub(super) tracer: SdkTracer,
}

/// Recorded values of an open span.
struct SpanRecord {
    start: SystemTime,
    /// Span id of a request on a host.
    id: SpanId,
    fields: BTreeMap<&'static str, Value>,
}

impl ExportLayer {
    /// Returns a filter that accepts only exported spans.
    pub(crate) fn filter() -> FilterFn {
        let exported: fn(&Metadata<'_>) -> bool = |metadata| kind(metadata).is_some();
        filter_fn(exported).with_max_level_hint(LevelFilter::DEBUG)
    }

    fn export(&self, kind: SpanKind, recorded: &SpanRecord) {
        let parent = recorded.parent();
        let id = match kind {
            // Skip requests without a valid token and probes, which could displace other spans in the queue.
            SpanKind::Server => (!recorded.text("tenant").is_empty()).then_some(recorded.id),
            _ => SpanId::from_hex(&recorded.text("span"))
                .ok()
                .filter(|_| parent.is_some()),
        };
        if id.is_none() {
            return;
        }
        NEXT_ID.set(id);
        let failure = recorded.failure(&kind);
        let span = SpanBuilder::from_name(recorded.name())
            .with_kind(kind)
            .with_start_time(recorded.start)
            .with_attributes(recorded.attributes());
        let mut span = self.tracer.build_with_context(span, &context_in(parent));
        if let Some(why) = failure {
            span.set_status(Status::error(why));
        }
    }

    /// Exports a stage of the work for `request`, if the request belongs to a trace.
    fn export_stage(&self, stage: &SpanRecord, request: &SpanRecord) {
        let Some(caller) = request.parent() else { return };
        let parent = TraceParent {
            span: u64::from_be_bytes(request.id.to_bytes()),
            ..caller
        };
        let span = SpanBuilder::from_name(stage.text("stage"))
            .with_kind(SpanKind::Internal)
            .with_start_time(stage.ago("begin_micros_ago"))
            .with_attributes(stage.attributes());
        let mut span = self.tracer.build_with_context(span, &context_in(Some(parent)));
        span.end_with_timestamp(stage.ago("end_micros_ago"));
    }
}

/// Returns the kind of a span, or `None` for spans that are not exported.
fn kind(metadata: &Metadata<'_>) -> Option<SpanKind> {
    match metadata.name() {
        _ if !metadata.is_span() => None,
        "request" if metadata.target().starts_with("frostline_server") => Some(SpanKind::Server),
        "stage" if metadata.target().starts_with("frostline_server") => Some(SpanKind::Internal),
        "call" if metadata.target().starts_with("frostline_client") => Some(SpanKind::Client),
        _ => None,
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ExportLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: layer::Context<'_, S>) {
        let mut recorded = SpanRecord {
            start: SystemTime::now(),
            id: RandomIdGenerator::default().new_span_id(),
            fields: BTreeMap::new(),
        };
        attributes.record(&mut recorded);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(recorded);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: layer::Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(recorded) = span.extensions_mut().get_mut::<SpanRecord>()
        {
            values.record(recorded);
        }
    }

    fn on_close(&self, id: Id, context: layer::Context<'_, S>) {
        if let Some(span) = context.span(&id)
            && let Some(kind) = kind(span.metadata())
            && let Some(recorded) = span.extensions_mut().remove::<SpanRecord>()
        {
            if kind != SpanKind::Internal {
                return self.export(kind, &recorded);
            }
            let mut above = span.scope().skip(1);
            let request = above.find(|span| self::kind(span.metadata()) == Some(SpanKind::Server));
            if let Some(request) = request
                && let Some(request) = request.extensions().get::<SpanRecord>()
            {
                self.export_stage(&recorded, request);
            }
        }
    }
}

impl SpanRecord {
    fn text(&self, field: &str) -> String {
        let value = self.fields.get(field).map(Value::as_str);
        value.unwrap_or_default().into_owned()
    }

    /// Returns the time that is recorded as microseconds before the creation of the span.
    fn ago(&self, field: &str) -> SystemTime {
        let Some(Value::I64(micros)) = self.fields.get(field) else {
            return self.start;
        };
        let micros = Duration::from_micros(u64::try_from(*micros).unwrap_or(0));
        self.start.checked_sub(micros).unwrap_or(self.start)
    }

    fn parent(&self) -> Option<TraceParent> {
        TraceParent::read(&format!("00-{}-{}", self.text("trace"), self.text("parent")))
    }

    /// Returns the method with the route or with the start of the path, which does not contain names of
    /// tenants or objects.
    fn name(&self) -> String {
        let method = self.text("method");
        let mut route = self.text("route");
        if route.is_empty() {
            let path = self.text("path");
            route = path.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        }
        format!("{method} {route}")
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let found = ATTRIBUTES
            .iter()
            .filter_map(|(field, key)| Some(KeyValue::new(*key, self.fields.get(field)?.clone())));
        found.collect()
    }

    /// Returns the error if the request failed. On a host, a refused request (status below 500) is not a
    /// failure.
    fn failure(&self, kind: &SpanKind) -> Option<String> {
        let least = if *kind == SpanKind::Server { 500 } else { 400 };
        match (self.fields.get("error"), self.fields.get("status")) {
            (Some(error), _) => Some(error.as_str().into_owned()),
            (_, Some(Value::I64(status))) if *status >= least => Some(String::new()),
            _ => Some(self.text("outcome"))
                .filter(|outcome| ["failed", "deadline"].contains(&outcome.as_str())),
        }
    }
}

impl Visit for SpanRecord {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned().into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.insert(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.fields.insert(field.name(), value.into());
    }
}

/// Returns a context for spans with this parent.
pub(super) fn context_in(parent: Option<TraceParent>) -> Context {
    let Some(TraceParent { trace, span, sampled }) = parent else {
        return Context::new();
    };
    let flags = TraceFlags::default().with_sampled(sampled);
    let trace = TraceId::from(trace);
    let span = SpanId::from(span);
    let parent = SpanContext::new(trace, span, flags, true, TraceState::default());
    Context::new().with_remote_span_context(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tracing::field;
    use tracing_subscriber::layer::SubscriberExt;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7-01";

    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().extend(batch);
            Ok(())
        }
    }

    /// Returns the exported spans created by `make`.
    fn exported(make: impl FnOnce()) -> Vec<SpanData> {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder()
            .with_id_generator(Ids::default())
            .with_simple_exporter(kept.clone())
            .build();
        let layer = ExportLayer {
            tracer: provider.tracer("test"),
        };
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(ExportLayer::filter()));
        tracing::subscriber::with_default(subscriber, make);
        kept.0.lock().clone()
    }

    fn request(parent: &str, tenant: Option<&str>) -> tracing::Span {
        tracing::error_span!(
            target: "frostline_server::http",
            "request",
            method = %"GET",
            route = "/v1/guests/{name}",
            trace = TRACE,
            parent,
            tenant,
            token = "hush",
            status = field::Empty,
        )
    }

    fn attribute(span: &SpanData, key: &str) -> Option<Value> {
        let found = span.attributes.iter().find(|pair| pair.key.as_str() == key)?;
        Some(found.value.clone())
    }

    #[test]
    fn a_request_of_a_tenant_is_a_part_of_what_its_caller_says() {
        let spans = exported(|| {
            let span = request(PARENT, Some("acme"));
            span.record("status", 503_u16);
            drop(request("00f067aa0ba902b7-00", Some("acme")));
            drop(request(PARENT, None));
            drop(tracing::error_span!(target: "frostline_server", "other", tenant = "acme"));
            drop(tracing::error_span!(target: "elsewhere", "request", tenant = "acme"));
        });
        let [span] = spans.as_slice() else {
            panic!("{spans:?}")
        };
        assert_eq!(span.span_context.trace_id().to_string(), TRACE);
        assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert_eq!(
            (span.name.as_ref(), &span.span_kind),
            ("GET /v1/guests/{name}", &SpanKind::Server)
        );
        assert_eq!(attribute(span, "http.response.status_code"), Some(503.into()));
        assert_eq!(attribute(span, "frostline.tenant"), Some("acme".into()));
        assert!(matches!(span.status, Status::Error { .. }));
        assert!(!format!("{span:?}").contains("hush"), "{span:?}");
    }

    #[test]
    fn stages_are_parts_of_their_request() {
        let stage = || {
            tracing::debug_span!(
                target: "frostline_server::jobs",
                "stage",
                stage = "decode",
                begin_micros_ago = 3_000_000_u64,
                end_micros_ago = 1_000_000_u64,
                seconds = 4.5,
            )
        };
        let spans = exported(|| {
            request(PARENT, Some("acme")).in_scope(|| drop(stage()));
            drop(stage());
        });
        let [stage, request] = spans.as_slice() else {
            panic!("{spans:?}")
        };
        assert_eq!(stage.name.as_ref(), "decode");
        assert_eq!(stage.parent_span_id, request.span_context.span_id());
        assert_eq!(stage.span_context.trace_id().to_string(), TRACE);
        let took = stage.end_time.duration_since(stage.start_time).unwrap();
        assert_eq!(took, Duration::from_secs(2));
        assert_eq!(attribute(stage, "frostline.image_seconds"), Some(4.5.into()));
    }

    #[test]
    fn a_call_has_the_id_that_its_host_was_told() {
        let call = |parent: Option<&str>| {
            tracing::debug_span!(
                target: "frostline_client::trace",
                "call",
                trace = TRACE,
                parent,
                span = "1111111111111111",
                method = "PUT",
                path = "/v1/models/resnet/part",
                error = field::Empty,
            )
        };
        let spans = exported(|| {
            drop(call(None));
            drop(call(Some(PARENT)));
            call(Some(PARENT)).record("error", "gone");
        });
        let failed: Vec<bool> = spans
            .iter()
            .map(|span| span.status == Status::error("gone"))
            .collect();
        assert_eq!(failed, [false, true]);
        for span in spans {
            assert_eq!(span.span_context.span_id().to_string(), "1111111111111111");
            assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
            assert_eq!(
                (span.name.as_ref(), &span.span_kind),
                ("PUT /v1/models", &SpanKind::Client)
            );
        }
    }
}
