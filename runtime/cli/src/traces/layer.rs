//! Spans of `tracing` that are requests, handed on when they end: those that a host answered, and those that a job asked.

use super::ids::Ids;
use frostline_wire::TraceParent;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::SdkTracer;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer;
use tracing_subscriber::registry::LookupSpan;

/// Fields that become attributes; nothing else is exported.
const ATTRIBUTES: [(&str, &str); 10] = [
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
];

pub(crate) struct ExportLayer {
    tracer: SdkTracer,
}

/// A span that has not ended.
struct Begun {
    at: SystemTime,
    fields: Fields,
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, Value>);

impl ExportLayer {
    pub(super) fn new(tracer: SdkTracer) -> Self {
        Self { tracer }
    }

    /// Lets through what is exported.
    pub(crate) fn filter() -> FilterFn {
        let exported: fn(&Metadata<'_>) -> bool = |metadata| kind(metadata).is_some();
        filter_fn(exported).with_max_level_hint(LevelFilter::DEBUG)
    }

    fn export(&self, kind: &SpanKind, begun: Begun) {
        let Begun { at, fields } = begun;
        let parent = fields.parent();
        let own = fields.id();
        match kind {
            // Strangers' requests, and probes, would take the room of others.
            SpanKind::Server if fields.text("tenant").is_empty() => return,
            SpanKind::Client => match (parent, own) {
                (Some(_), Some(own)) => Ids::give(own),
                _ => return,
            },
            _ => {}
        }
        let span = SpanBuilder::from_name(fields.name())
            .with_kind(kind.clone())
            .with_start_time(at)
            .with_attributes(fields.attributes());
        let mut span = self.tracer.build_with_context(span, &context_in(parent));
        if let Some(why) = fields.failure(kind) {
            span.set_status(Status::error(why));
        }
        span.end();
    }
}

/// What a span of ours is in a trace; none for those that are not exported.
fn kind(metadata: &Metadata<'_>) -> Option<SpanKind> {
    match metadata.name() {
        _ if !metadata.is_span() => None,
        "request" if metadata.target().starts_with("frostline_server") => Some(SpanKind::Server),
        "call" if metadata.target().starts_with("frostline_client") => Some(SpanKind::Client),
        _ => None,
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ExportLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: layer::Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            let at = SystemTime::now();
            span.extensions_mut().insert(Begun { at, fields });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: layer::Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(begun) = span.extensions_mut().get_mut::<Begun>()
        {
            values.record(&mut begun.fields);
        }
    }

    fn on_close(&self, id: Id, context: layer::Context<'_, S>) {
        let ended = context.span(&id).and_then(|span| {
            let begun = span.extensions_mut().remove::<Begun>()?;
            Some((kind(span.metadata())?, begun))
        });
        if let Some((kind, begun)) = ended {
            self.export(&kind, begun);
        }
    }
}

impl Fields {
    fn text(&self, name: &str) -> String {
        self.0
            .get(name)
            .map(|value| value.as_str().into_owned())
            .unwrap_or_default()
    }

    /// The span it is a part of.
    fn parent(&self) -> Option<TraceParent> {
        let (trace, rest) = (self.text("trace"), self.text("parent"));
        TraceParent::read(&format!("00-{trace}-{rest}"))
    }

    /// The id that its host was told.
    fn id(&self) -> Option<SpanId> {
        SpanId::from_hex(&self.text("span")).ok()
    }

    /// What is done to what; whose it is has no place there.
    fn name(&self) -> String {
        let (method, route, path) = (self.text("method"), self.text("route"), self.text("path"));
        if !route.is_empty() {
            return format!("{method} {route}");
        }
        let kind: Vec<&str> = path.splitn(4, '/').take(3).collect();
        format!("{method} {}", kind.join("/"))
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let found = ATTRIBUTES
            .iter()
            .filter_map(|(field, key)| Some(KeyValue::new(*key, self.0.get(field)?.clone())));
        found.collect()
    }

    /// Why it counts as failed, in a word or more; a host does not fail where it refuses.
    fn failure(&self, kind: &SpanKind) -> Option<String> {
        let least = if *kind == SpanKind::Server { 500 } else { 400 };
        if let Some(error) = self.0.get("error") {
            return Some(error.as_str().into_owned());
        }
        if let Some(Value::I64(status)) = self.0.get("status")
            && *status >= least
        {
            return Some(String::new());
        }
        let outcome = self.text("outcome");
        ["failed", "deadline"]
            .contains(&outcome.as_str())
            .then_some(outcome)
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned().into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.0.insert(field.name(), value.into());
    }
}

/// In what a span begins that is a part of `parent`.
pub(super) fn context_in(parent: Option<TraceParent>) -> Context {
    let Some(TraceParent { trace, span, sampled }) = parent else {
        return Context::new();
    };
    let flags = TraceFlags::default().with_sampled(sampled);
    let (trace, span) = (TraceId::from(trace), SpanId::from(span));
    let parent = SpanContext::new(trace, span, flags, true, TraceState::default());
    Context::new().with_remote_span_context(parent)
}

/// What says of others that they are parts of a span.
pub(super) fn parent_of(span: &SpanContext) -> TraceParent {
    TraceParent {
        trace: u128::from_be_bytes(span.trace_id().to_bytes()),
        span: u64::from_be_bytes(span.span_id().to_bytes()),
        sampled: span.is_sampled(),
    }
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

    /// What is exported of the spans that `make` makes.
    fn exported(make: impl FnOnce()) -> Vec<SpanData> {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder()
            .with_id_generator(Ids::default())
            .with_simple_exporter(kept.clone())
            .build();
        let layer = ExportLayer::new(provider.tracer("test"));
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
