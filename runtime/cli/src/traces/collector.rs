//! Sends spans to the collector that OpenTelemetry's variables name; which those are is said in `runtime/server/docs/tracing.md`.

use async_trait::async_trait;
use frostline_client::{Connector, Trust};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The only protocol that is spoken.
const PROTOCOL: &str = "http/protobuf";

/// What an export takes at most, unless a variable says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends spans, and warns once when they do not arrive.
#[derive(Debug)]
struct Collector {
    client: HyperClient<Connector>,
    /// Exports are sent from a thread of their own, where no runtime is.
    runtime: Runtime,
    warned: Arc<AtomicBool>,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.block_on(self.client.send_bytes(request));
        // Neither the error nor the status has the address or the headers in it.
        let failure = match &sent {
            Ok(answer) if answer.status().is_success() => return sent,
            Ok(answer) => format!("it answers {}", answer.status()),
            Err(error) => error.to_string(),
        };
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "traces do not reach the collector: {failure}; spans are dropped until it answers, nothing else is affected"
            );
        }
        sent
    }
}

/// What sends spans to the collector and sets `warned` when it warns; `None` where no collector is named, or exporting is off. Errors show
/// no value: an address may have a password in it.
pub(super) fn exporter(warned: Arc<AtomicBool>) -> Result<Option<SpanExporter>, String> {
    let off = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"))
        || std::env::var("OTEL_TRACES_EXPORTER").is_ok_and(|value| value == "none");
    let Some((name, endpoint)) = variable("ENDPOINT").filter(|_| !off) else {
        return Ok(None);
    };
    if !["http://", "https://"]
        .iter()
        .any(|scheme| endpoint.starts_with(scheme))
    {
        return Err(format!("{name} has to be a URL, such as http://localhost:4318"));
    }
    if endpoint
        .split('/')
        .nth(2)
        .is_some_and(|place| place.contains('@'))
    {
        return Err(format!(
            "{name} must not contain a user or a password; set OTEL_EXPORTER_OTLP_HEADERS instead"
        ));
    }
    if let Some((name, protocol)) = variable("PROTOCOL")
        && protocol != PROTOCOL
    {
        return Err(format!(
            "{name} asks for {protocol}, and only {PROTOCOL} is spoken; set it so, and name the collector's port for HTTP, which is 4318 by default"
        ));
    }
    let timeout = variable("TIMEOUT").and_then(|(_, value)| value.parse().ok());
    let timeout = timeout.map_or(TIMEOUT, Duration::from_millis);
    let connector = Trust::System.web_connector(endpoint.starts_with("https://"));
    let client = HyperClient::new(connector.map_err(|error| error.to_string())?, timeout, None);
    let runtime = Builder::new_current_thread().enable_all().build();
    let collector = Collector {
        client,
        runtime: runtime.map_err(|error| error.to_string())?,
        warned,
    };
    let built = SpanExporter::builder()
        .with_http()
        .with_http_client(collector)
        .build();
    built.map(Some).map_err(|_| {
        format!("{name}, or another OTEL_EXPORTER_OTLP_ variable, cannot be used; the address has to be a URL, the compression gzip or none")
    })
}

/// A variable of the exporter that says something, with its name: that of traces before that of all signals.
fn variable(of: &str) -> Option<(String, String)> {
    let named = ["TRACES_", ""].map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}{of}"));
    let mut set = named.into_iter().filter_map(|name| {
        let value = std::env::var(&name).ok()?;
        Some((name, value))
    });
    set.find(|(_, value)| !value.is_empty())
}
