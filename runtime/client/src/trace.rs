//! The trace that a job's requests belong to, as W3C's Trace Context has it: hosts put its id into their log lines.

use frostline_wire::TraceParent;
use http::Request;
use std::sync::OnceLock;
use tracing::{Span, field};

/// The variable of the environment in which whoever starts this process may name what it belongs to.
const VARIABLE: &str = "TRACEPARENT";

static OF_PROCESS: OnceLock<TraceParent> = OnceLock::new();

/// Says what all that this process asks of hosts belongs to from now on, in place of the variable `TRACEPARENT`. The first to say so is
/// believed.
pub fn belong_to(parent: TraceParent) {
    let _ = OF_PROCESS.set(parent);
}

/// A trace, and what requests are parts of in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trace {
    id: u128,
    parent: Option<u64>,
    sampled: bool,
}

impl Trace {
    /// The one that this process belongs to, if it was told, or the environment names one.
    pub(crate) fn of_process() -> Option<Self> {
        let named = || TraceParent::read(&std::env::var(VARIABLE).ok()?);
        OF_PROCESS.get().copied().or_else(named).map(Self::below)
    }

    /// That of the process, or else a new one; `None` where the system gives no random bytes.
    pub(crate) fn of_job() -> Option<Self> {
        Self::of_process().or_else(Self::new)
    }

    fn new() -> Option<Self> {
        Some(Self {
            id: u128::from_be_bytes(random()?),
            parent: None,
            sampled: true,
        })
    }

    fn below(parent: TraceParent) -> Self {
        Self {
            id: parent.trace,
            parent: Some(parent.span),
            sampled: parent.sampled,
        }
    }

    pub(crate) fn id(&self) -> String {
        format!("{:032x}", self.id)
    }

    /// What a request of its own says; `None` where the system gives no random bytes.
    pub(crate) fn request(&self) -> Option<TraceParent> {
        Some(TraceParent {
            trace: self.id,
            span: u64::from_be_bytes(random()?),
            sampled: self.sampled,
        })
    }

    /// The span of a request that says `own`, for whoever exports it; what comes of it is recorded later.
    pub(crate) fn call<B>(&self, own: TraceParent, request: &Request<B>) -> Span {
        let parent = self.parent.map(|span| TraceParent { span, ..own });
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

/// Random bytes, the last of them not 0.
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
        let trace = Trace::below(parent);
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
