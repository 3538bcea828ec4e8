//! The trace that a job's requests belong to, as W3C's Trace Context has it: hosts put its id into their log lines.
//! <https://www.w3.org/TR/trace-context/#traceparent-header>

use http::HeaderValue;
use std::sync::Arc;

/// The header, and the variable of the environment in which whoever starts a job may name a trace that it belongs to.
pub(crate) const TRACEPARENT: &str = "traceparent";
const VARIABLE: &str = "TRACEPARENT";

/// A trace's id: 32 hexadecimal digits, not all 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace(Arc<str>);

impl Trace {
    /// The one that the environment names, or else a new one; `None` where the system gives no random bytes.
    pub(crate) fn of_job() -> Option<Self> {
        let named = std::env::var(VARIABLE).ok();
        named.and_then(|named| Self::named(&named)).or_else(Self::new)
    }

    fn new() -> Option<Self> {
        Some(Self(hex::encode(random::<16>()?).into()))
    }

    fn named(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, id) = (parts.next()?, parts.next()?);
        let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let valid = version.len() == 2 && hex(version) && version != "ff" && id.len() == 32 && hex(id);
        (valid && id.bytes().any(|byte| byte != b'0')).then(|| Self(id.into()))
    }

    pub(crate) fn id(&self) -> &str {
        &self.0
    }

    /// What a request of its own says.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let request = hex::encode(random::<8>()?);
        HeaderValue::from_str(&format!("00-{}-{request}-01", self.0)).ok()
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

    const NAMED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_named_trace_is_gone_on_with_and_each_request_has_an_id_of_its_own() {
        let trace = Trace::named(NAMED).unwrap();
        assert_eq!(trace.id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let [one, other] = [(); 2].map(|()| trace.header().unwrap());
        assert_ne!(one, other);
        let one = one.to_str().unwrap();
        assert_eq!((Trace::named(one).unwrap(), one.len()), (trace, NAMED.len()));
        assert_ne!(Trace::new(), Trace::new());
        for wrong in [
            "",
            "00",
            "00-xyz-1-1",
            &NAMED.replace("00-4", "ff-4"),
            &format!("00-{}-1-1", "0".repeat(32)),
        ] {
            assert_eq!(Trace::named(wrong), None, "{wrong}");
        }
    }
}
