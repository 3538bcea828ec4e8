use crate::TrainerError;

/// Runs graph work on a blocking thread. It can take seconds for large networks and must not delay network
/// I/O.
#[expect(clippy::disallowed_methods, reason = "clients and trainers have no tenants")]
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TrainerError> + Send + 'static,
) -> Result<T, TrainerError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| TrainerError::Ended { part: "graph work" })?
}
