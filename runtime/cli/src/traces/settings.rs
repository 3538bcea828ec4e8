//! OpenTelemetry's variables, as far as its crates leave them to us: whether to export at all, and whether what is asked for can be had.

use opentelemetry::KeyValue;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};

const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const PROTOCOLS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];

/// The only one that is spoken.
const PROTOCOL: &str = "http/protobuf";

/// What sends spans to the collector; `None` where none is named, or exporting is switched off. Errors show no value: an address may have a
/// password in it.
pub(super) fn exporter() -> Result<Option<SpanExporter>, String> {
    let off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    let Some((name, endpoint)) = first(ENDPOINTS).filter(|_| !off) else {
        return Ok(None);
    };
    if !["http://", "https://"]
        .iter()
        .any(|scheme| endpoint.starts_with(scheme))
    {
        return Err(format!("{name} has to be a URL, such as http://localhost:4318"));
    }
    if let Some((name, protocol)) = first(PROTOCOLS)
        && protocol != PROTOCOL
    {
        return Err(format!(
            "{name} asks for {protocol}, and only {PROTOCOL} is spoken; set it so, and name the collector's port for HTTP, which is 4318 by default"
        ));
    }
    let built = SpanExporter::builder().with_http().build();
    built.map(Some).map_err(|_| {
        format!("{name}, or another OTEL_EXPORTER_OTLP_ variable, cannot be used; the address has to be a URL, the compression gzip or none")
    })
}

/// What exports: a service of this name, unless the variables name it otherwise.
pub(super) fn resource(service: &'static str) -> Resource {
    let ours = Resource::builder_empty().with_attributes([
        KeyValue::new("service.name", service),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ]);
    let found = ours.with_detectors(&[
        Box::new(TelemetryResourceDetector),
        Box::new(EnvResourceDetector::new()),
    ]);
    match variable("OTEL_SERVICE_NAME") {
        Some(name) => found.with_service_name(name).build(),
        None => found.build(),
    }
}

/// The first of them that says something.
fn first(names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, variable(name)?)))
}

/// An empty variable is none.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
