//! An exporter that says once when it fails.

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Watched<E> {
    exporter: E,
    told: Arc<AtomicBool>,
}

impl<E> Watched<E> {
    pub(super) fn new(exporter: E, told: Arc<AtomicBool>) -> Self {
        Self { exporter, told }
    }
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.exporter.export(batch).await;
        if let Err(error) = &sent
            && !self.told.swap(true, Ordering::Relaxed)
        {
            // The error has neither address nor headers.
            tracing::warn!(
                "traces do not reach the collector ({error}); they are lost while it is so, and nothing else is"
            );
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
