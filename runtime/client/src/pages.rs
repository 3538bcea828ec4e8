//! Lists that a host sends in pages, and what they may come to: no host can make its client read or keep more than this.

use crate::ClientError;
use crate::transport::Transport;
use frostline_wire::{GuestLog, LeftOut, ObjectPage};
use serde::de::DeserializeOwned;

/// The longest text of a page. Hosts send keys of 1,024 bytes at most, the line of a guest as long, and names that are left out of 1,200, a link and its
/// target of twice as many.
const LONGEST_TEXT: usize = 4096;

/// Pages without an item. Hosts send one only where what they were about to list was removed meanwhile.
const BARREN: usize = 64;

/// A page of a list.
pub(crate) trait Page: DeserializeOwned {
    /// The most pages of a whole list, the most items, and the most bytes as they are sent.
    const LIMITS: Limits;

    /// How many items it has.
    fn items(&self) -> usize;

    /// All texts in it.
    fn texts(&self) -> impl Iterator<Item = &str>;
}

/// What a whole list may come to.
pub(crate) struct Limits {
    pub(crate) pages: usize,
    pub(crate) items: usize,
    pub(crate) bytes: u64,
}

/// ImageNet-1k has 1.3 million objects of 120 bytes each; a job with ten times as many keeps all of them in memory. A page has a thousand,
/// or what the host found in the shards it read within seconds.
impl Page for ObjectPage {
    const LIMITS: Limits = Limits {
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
        let LeftOut { names, links, .. } = &self.left_out;
        let left_out = names.iter().chain([&links.first]).map(String::as_str);
        of_objects.flatten().chain(self.next.as_deref()).chain(left_out)
    }
}

/// A host keeps 1 MiB of a tenant's lines, in pages of a thousand.
impl Page for GuestLog {
    const LIMITS: Limits = Limits {
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

/// Asks for the pages of one list.
pub(crate) struct Pages {
    transport: Transport,
    /// What is listed, for people.
    what: String,
    pages: usize,
    items: usize,
    barren: usize,
}

impl Pages {
    /// None yet; their bytes count where those of `transport` do.
    pub(crate) fn new(transport: &Transport, what: String) -> Self {
        Self {
            transport: transport.counting_into(&transport.meter().child()),
            what,
            pages: 0,
            items: 0,
            barren: 0,
        }
    }

    /// The page at `path`.
    ///
    /// # Errors
    /// [`ClientError`]; `Protocol` for a list that is larger than any host's.
    pub(crate) async fn next<P: Page>(
        &mut self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<P, ClientError> {
        let page: P = self.transport.get(path, query).await?;
        self.pages += 1;
        self.items += page.items();
        self.barren += usize::from(page.items() == 0);
        let Limits { pages, items, bytes } = P::LIMITS;
        let over = [
            (self.pages > pages, pages as u64, "pages"),
            (self.items > items, items as u64, "items"),
            (self.transport.meter().bytes() > bytes, bytes, "bytes"),
            (self.barren > BARREN, BARREN as u64, "pages with nothing on them"),
        ];
        if let Some((_, most, what)) = over.into_iter().find(|(over, ..)| *over) {
            return Err(self.refused(&format!("more than {most} {what}")));
        }
        if page.texts().any(|text| text.len() > LONGEST_TEXT) {
            return Err(self.refused(&format!("a text of more than {LONGEST_TEXT} bytes")));
        }
        Ok(page)
    }

    /// A list that no host would send.
    pub(crate) fn refused(&self, reason: &str) -> ClientError {
        let reason = format!("{reason} in {}", self.what);
        self.transport.peer().protocol(reason)
    }
}
