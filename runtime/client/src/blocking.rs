use crate::ClientError;

/// Runs work on a blocking thread if it would delay network tasks. `part` names the work in errors.
#[expect(clippy::disallowed_methods, reason = "clients and trainers have no tenants")]
pub(crate) async fn blocking<T: Send + 'static>(
    part: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ClientError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| ClientError::Ended { part })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::{Attempts, HostActivity, Retry, RetryPolicy};

    #[tokio::test]
    async fn work_that_ends_here_is_no_hosts_fault() {
        let fails = || -> () { panic!("on purpose") };
        let error = blocking("hashing", fails).await.unwrap_err();
        assert_eq!(error, ClientError::Ended { part: "hashing" });
        let text = error.to_string();
        assert!(text.contains("hashing") && !text.contains("host"), "{text}");
        // Other hosts would not help.
        let seen = HostActivity {
            answers: 0,
            observed: tokio::time::Instant::now(),
        };
        let decision = Attempts::new(RetryPolicy::default(), seen).after(&error, 0, seen);
        assert_eq!(decision, Retry::GiveUp);
    }
}
