//! Work that reads files or computes, beside the threads that serve the network.

use crate::refusal::Refusal;

/// Runs `work` on a thread of its own.
///
/// # Errors
/// [`Refusal::Host`] where it was lost.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|lost| Refusal::host(format!("work for a request was lost: {lost}")))
}
