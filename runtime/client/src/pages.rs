//! Paginated lists, with limits on the data that a client reads from a host and keeps.

use crate::ClientError;
use crate::transport::Transport;
use frostline_wire::{GuestLog, ObjectPage, SkippedNames};
use serde::de::DeserializeOwned;

/// Maximum length of a text in bytes. Hosts send keys and log lines of up to 1,024 bytes, invalid names of up
/// to 1,200, and links with targets of up to twice that.
const LONGEST_TEXT: usize = 4096;

/// Maximum number of pages without items. Hosts send such a page only if the objects to list were removed in
/// the meantime.
const BARREN: usize = 64;

/// Page of a paginated list.
pub(crate) trait Page: DeserializeOwned {
    /// Limits of the complete list.
    const LIMITS: ListLimits;

    fn items(&self) -> usize;

    /// Iterates over all texts in the page.
    fn texts(&self) -> impl Iterator<Item = &str>;
}

/// Maximum size of a complete list. `bytes` is the size in transit.
pub(crate) struct ListLimits {
    pub(crate) pages: usize,
    pub(crate) items: usize,
    pub(crate) bytes: u64,
}

/// ImageNet-1k has 1.3 million objects with 120 bytes each. The limits allow seven times as many, which still
/// fit in memory. Pages contain a thousand objects, or the samples found in shards within seconds.
impl Page for ObjectPage {
    const LIMITS: ListLimits = ListLimits {
        pages: 100_000,
        items: 10_000_000,
        bytes: 2 << 30,
    };

    fn items(&self) -> usize {
        self.objects.len()
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let of_objects = self.objects.iter().flat_map(|object| {
            let sample = &object.sample;
            [
                Some(sample.key.as_str()),
                sample.etag.as_deref(),
                object.label.as_deref(),
            ]
        });
        let SkippedNames { names, links, .. } = &self.left_out;
        let left_out = names.iter().chain([&links.first]).map(String::as_str);
        of_objects.flatten().chain(self.next.as_deref()).chain(left_out)
    }
}

/// Hosts keep 1 MiB of log lines per tenant and send a thousand lines per page.
impl Page for GuestLog {
    const LIMITS: ListLimits = ListLimits {
        pages: 64,
        items: 64_000,
        bytes: 16 << 20,
    };

    fn items(&self) -> usize {
        self.lines.len()
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.lines
            .iter()
            .flat_map(|line| [&*line.level, &*line.extraction, &*line.text])
    }
}

/// Requests the pages of a list.
pub(crate) struct Pages {
    transport: Transport,
    /// Description of the list for error messages.
    what: String,
    pages: usize,
    items: usize,
    barren: usize,
}

impl Pages {
    /// Starts a list. Received bytes also count toward `transport`.
    pub(crate) fn new(transport: &Transport, what: String) -> Self {
        Self {
            transport: transport.counting_into(&transport.meter().child()),
            what,
            pages: 0,
            items: 0,
            barren: 0,
        }
    }

    /// Requests the page at `path`.
    ///
    /// # Errors
    /// Returns [`ClientError`]. The error is [`ClientError::Protocol`] if the list exceeds the limits.
    pub(crate) async fn next<P: Page>(
        &mut self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<P, ClientError> {
        let page: P = self.transport.get(path, query).await?;
        self.pages += 1;
        self.items += page.items();
        self.barren += usize::from(page.items() == 0);
        let ListLimits { pages, items, bytes } = P::LIMITS;
        let over = [
            (self.pages > pages, pages as u64, "pages"),
            (self.items > items, items as u64, "items"),
            (self.transport.meter().bytes() > bytes, bytes, "bytes"),
            (self.barren > BARREN, BARREN as u64, "empty pages"),
        ];
        if let Some((_, most, what)) = over.into_iter().find(|(over, ..)| *over) {
            return Err(self.refused(&format!("more than {most} {what}")));
        }
        if page.texts().any(|text| text.len() > LONGEST_TEXT) {
            return Err(self.refused(&format!("a text longer than {LONGEST_TEXT} bytes")));
        }
        Ok(page)
    }

    /// Returns the error for an invalid list.
    pub(crate) fn refused(&self, reason: &str) -> ClientError {
        let reason = format!("{reason} in {}", self.what);
        self.transport.peer().protocol(reason)
    }
}
