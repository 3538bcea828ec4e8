//! Trace context of requests in the format of W3C Trace Context.
//! <https://www.w3.org/TR/trace-context/#traceparent-header>

use std::fmt;

/// Header name. Started programs receive the same value in the environment variable `TRACEPARENT`.
pub const TRACEPARENT: &str = "traceparent";

/// Parent span of a request. Example: `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Trace id, not 0.
    pub trace: u128,
    /// Span id, not 0.
    pub span: u64,
    /// True if the caller records the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Parses a header. Returns `None` if it is malformed.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = number(parts.next()?, 2)?;
        let trace = parts.next()?;
        let span = parts.next()?;
        let flags = parts.next()?;
        // Later versions may have more parts.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let trace = number(trace, 32)?;
        let span = number(span, 16)?;
        (trace != 0 && span != 0).then_some(Self {
            trace,
            span: span as u64,
            sampled: number(flags, 2)? & 1 == 1,
        })
    }

    /// Returns the trace id in hexadecimal, as in headers and logs.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// Returns the parts of the header after the trace id, which are span id and flags.
    pub fn span_and_flags(&self) -> String {
        format!("{:016x}-{:02x}", self.span, u8::from(self.sampled))
    }
}

/// Formats the header.
impl fmt::Display for TraceParent {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "00-{}-{}", self.trace_id(), self.span_and_flags())
    }
}

/// Parses a hexadecimal number with exactly `digits` digits. W3C only allows lower case.
fn number(text: &str, digits: usize) -> Option<u128> {
    let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (lower && text.len() == digits)
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn headers_survive_a_round_trip() {
        let read = TraceParent::read(HEADER).unwrap();
        assert_eq!((read.to_string().as_str(), read.sampled), (HEADER, true));
        assert_eq!(read.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let unsampled = TraceParent::read(&HEADER.replace("-01", "-00")).unwrap();
        assert_eq!((unsampled.trace, unsampled.sampled), (read.trace, false));
        let later = format!("{}-more", HEADER.replace("00-4", "01-4"));
        assert_eq!(TraceParent::read(&later), Some(read));
    }

    #[test]
    fn only_what_is_well_formed_is_read() {
        for wrong in [
            "",
            "00",
            "00-xyz-1-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736",
            &HEADER.replace("00-4", "ff-4"),
            &HEADER.replace("4bf", "4BF"),
            &HEADER.replace("4bf", "+bf"),
            &HEADER.replace("-01", "-1"),
            &format!("{HEADER}-more"),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16)),
        ] {
            assert_eq!(TraceParent::read(wrong), None, "{wrong}");
        }
    }
}
