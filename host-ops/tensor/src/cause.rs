use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Cause of an error, either another error that callers can downcast or plain text. Two causes are equal if
/// their messages are equal.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

/// A cause with an additional message.
#[derive(Debug, thiserror::Error)]
#[error("{text}: {source}")]
struct Explained {
    text: String,
    source: Cause,
}

impl Cause {
    /// Wraps `error` in a message: `<text>: <error>`.
    pub fn with_message(text: impl Into<String>, error: impl Into<Self>) -> Self {
        let explained = Explained {
            text: text.into(),
            source: error.into(),
        };
        explained.into()
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Cause {
    fn from(error: E) -> Self {
        Self(error.into().into())
    }
}

impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}

/// Formats an error and its causes in one line, without repeating a message that an outer error already
/// contains.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for cause in std::iter::successors(Some(error), |&error| Error::source(error)) {
        let text = cause.to_string().replace('\n', " ");
        if line.contains(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShapeError;

    #[derive(Debug, Clone, PartialEq, thiserror::Error)]
    #[error("cannot {doing}: {cause}")]
    struct Failed {
        doing: &'static str,
        #[source]
        cause: Cause,
    }

    #[test]
    fn a_cause_is_kept_and_said_once() {
        let shape = ShapeError::Scalar;
        let failed = Failed {
            doing: "add\nup",
            cause: shape.clone().into(),
        };
        let source = failed.source().unwrap();
        assert_eq!(source.downcast_ref::<ShapeError>(), Some(&shape));
        assert_eq!(one_line(&failed), format!("cannot add up: {shape}"));
        assert_eq!(failed.cause, Cause::from(shape.to_string()));
        let explained = Cause::with_message("the sum", shape.clone());
        assert_eq!(explained.to_string(), format!("the sum: {shape}"));
        assert!(
            explained
                .source()
                .is_some_and(|cause| cause.to_string() == shape.to_string())
        );
    }
}
