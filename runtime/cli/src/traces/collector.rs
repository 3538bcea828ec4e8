//! Sends spans to the collector selected by OpenTelemetry's environment variables. See
//! `runtime/server/docs/tracing.md` for the supported variables.

use async_trait::async_trait;
use frostline_client::{Connector, Trust};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The only supported protocol.
const PROTOCOL: &str = "http/protobuf";

/// Default timeout of an export.
const TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP client that sends spans and logs a warning if an export fails, but only once.
#[derive(Debug)]
struct Collector {
    client: HyperClient<Connector>,
    /// The exporter calls from a separate thread without a runtime.
    runtime: Runtime,
    warned: Arc<AtomicBool>,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.block_on(self.client.send_bytes(request));
        // The error and the status do not contain the address or the headers.
        let failure = match &sent {
            Ok(answer) if answer.status().is_success() => return sent,
            Ok(answer) => format!("it responded with {}", answer.status()),
            Err(error) => error.to_string(),
        };
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "cannot send traces to the collector: {failure}; spans are dropped until it is reachable"
            );
        }
        sent
    }
}

/// Creates the exporter, which sets `warned` after logging a warning. Returns `None` if no collector is set
/// or exporting is disabled.
///
/// # Errors
/// Returns a message if a variable is invalid. The message does not contain values, because an address may
/// contain a password.
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
        return Err(format!("{name} must be a URL, such as http://localhost:4318"));
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
            "{name} selects {protocol}, but only {PROTOCOL} is supported; change {name}, and use the collector's HTTP port (by default 4318)"
        ));
    }
    let timeout = variable("TIMEOUT").and_then(|(_, value)| value.parse().ok());
    let timeout = timeout.map_or(TIMEOUT, Duration::from_millis);
    let connector = Trust::default().web_connector(endpoint.starts_with("https://"));
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
        format!("{name} or another OTEL_EXPORTER_OTLP_ variable is invalid; the endpoint must be a URL, and the compression gzip or none")
    })
}

/// Returns the first exporter variable that is set, as name and value. Variables for traces take precedence
/// over variables for all signals.
fn variable(of: &str) -> Option<(String, String)> {
    let named = ["TRACES_", ""].map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}{of}"));
    let mut set = named.into_iter().filter_map(|name| {
        let value = std::env::var(&name).ok()?;
        Some((name, value))
    });
    set.find(|(_, value)| !value.is_empty())
}
