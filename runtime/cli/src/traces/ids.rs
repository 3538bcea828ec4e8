//! Ids of spans: random ones, but for a request's, which the host was told before its span is exported.

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use std::cell::Cell;

thread_local! {
    static NEXT: Cell<Option<SpanId>> = const { Cell::new(None) };
}

#[derive(Debug, Default)]
pub(super) struct Ids(RandomIdGenerator);

impl Ids {
    /// Has the next span that is made on this thread have this id.
    pub(super) fn give(id: SpanId) {
        NEXT.set(Some(id));
    }
}

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        self.0.new_trace_id()
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.take().unwrap_or_else(|| self.0.new_span_id())
    }
}
