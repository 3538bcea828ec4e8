//! Trace context of a job's requests (W3C Trace Context). Hosts include the trace ID in log lines.

use frostline_wire::TraceParent;
use http::Request;
use std::sync::OnceLock;
use tracing::{Span, field};

/// Environment variable with the trace context of the parent process.
const VARIABLE: &str = "TRACEPARENT";

static OF_PROCESS: OnceLock<TraceParent> = OnceLock::new();

/// Sets the trace context of all requests that this process sends, in preference to the variable
/// `TRACEPARENT`. Only the first call has an effect.
pub fn set_trace_parent(parent: TraceParent) {
    let _ = OF_PROCESS.set(parent);
}

/// Context of the requests. The span is 0 if they have no parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trace(TraceParent);

impl Trace {
    /// Returns the trace of this process: the one set by [`set_trace_parent`], else the one in the
    /// environment, if any.
    pub(crate) fn of_process() -> Option<Self> {
        OF_PROCESS
            .get()
            .copied()
            .or_else(|| TraceParent::read(&std::env::var(VARIABLE).ok()?))
            .map(Self)
    }

    /// Returns the trace of the process or a new trace, or `None` if the system has no random bytes.
    pub(crate) fn of_job() -> Option<Self> {
        Self::of_process().or_else(Self::new)
    }

    fn new() -> Option<Self> {
        Some(Self(TraceParent {
            trace: u128::from_be_bytes(random()?),
            span: 0,
            sampled: true,
        }))
    }

    pub(crate) fn id(&self) -> String {
        self.0.trace_id()
    }

    /// Returns the trace context of a new request; `None` if the system has no random bytes.
    pub(crate) fn request(&self) -> Option<TraceParent> {
        let span = u64::from_be_bytes(random()?);
        Some(TraceParent { span, ..self.0 })
    }

    /// Opens the span of a request with the trace context `own`. The caller records `status` or `error`
    /// later.
    pub(crate) fn call<B>(&self, own: TraceParent, request: &Request<B>) -> Span {
        let parent = Some(self.0).filter(|parent| parent.span != 0);
        let uri = request.uri();
        tracing::debug_span!(
            "call",
            trace = own.trace_id(),
            parent = parent.map(|parent| parent.span_and_flags()),
            span = format!("{:016x}", own.span),
            method = %request.method(),
            path = uri.path(),
            address = uri.host(),
            port = uri.port_u16(),
            status = field::Empty,
            error = field::Empty,
        )
    }
}

/// Returns random bytes with the lowest bit set, because an all-zero trace or span ID is invalid.
fn random<const BYTES: usize>() -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).ok()?;
    if let Some(last) = bytes.last_mut() {
        *last |= 1;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_trace_is_gone_on_with_and_each_request_has_an_id_of_its_own() {
        let parent = TraceParent::read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").unwrap();
        let trace = Trace(parent);
        assert_eq!(trace.id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let [one, other] = [(); 2].map(|()| trace.request().unwrap());
        assert_ne!(one.span, other.span);
        for request in [one, other] {
            assert_eq!((request.trace, request.sampled), (parent.trace, false));
        }
        assert_ne!(Trace::new(), Trace::new());
        assert!(Trace::new().unwrap().request().unwrap().sampled);
    }
}
