//! Budget, requests and reservations.

use super::kind::Kind;
use std::sync::Arc;

/// Memory budget of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Bytes that the host may use in total, including lanes.
    pub bytes: u64,
    /// Bytes kept free for a growing base. Only small requests may use them.
    pub spare: u64,
    /// Bytes for small requests. Each tenant may hold a 16th of them, regardless of other reservations and
    /// waiting requests.
    pub small: u64,
    /// Bytes that requests leave free for one grant: the largest grant of a single sample.
    pub grant: u64,
    /// Bytes that requests and grants leave free for one read: the largest object.
    pub read: u64,
    /// Bytes that earlier kinds leave free for one image while decoding: the image that needs the most.
    pub decode: u64,
    /// Bytes that all other kinds leave free for lanes: the minimum that a lane needs.
    pub lane: u64,
}

/// Number of parts of [`Budget::small`]; a tenant may hold one.
pub(super) const SMALL: u64 = 16;

impl Budget {
    pub(super) fn floor(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Read => self.read,
            Kind::Decode => self.decode,
            Kind::Lane => self.lane,
            Kind::Grant => self.grant,
            Kind::Kept | Kind::Request => 0,
        }
    }
}

/// A request for memory: a fixed part and a number of units. Fewer units may be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Purpose of the memory.
    pub kind: Kind,
    /// Bytes required in addition to the units.
    pub fixed: u64,
    /// Bytes per unit.
    pub each: u64,
    /// Number of units; 0 counts as 1. Fewer are granted only if this number can never fit or exceeds the
    /// tenant's fair share.
    pub units: usize,
}

impl Ask {
    /// Creates a request for `bytes` bytes, all or none.
    pub fn exactly(kind: Kind, bytes: u64) -> Self {
        Self {
            kind,
            fixed: bytes,
            each: 0,
            units: 1,
        }
    }

    /// Returns the bytes of a number of units.
    pub(crate) fn bytes(&self, units: usize) -> u64 {
        self.fixed.saturating_add(self.each.saturating_mul(units as u64))
    }

    /// Returns the number of units within `bytes` bytes, between 1 and the requested number.
    pub(super) fn units_within(&self, bytes: u64) -> usize {
        let room = bytes.saturating_sub(self.fixed);
        let fit = room.checked_div(self.each).unwrap_or(u64::MAX);
        usize::try_from(fit)
            .unwrap_or(usize::MAX)
            .clamp(1, self.units.max(1))
    }
}

/// An entry of the ledger.
#[derive(Debug)]
pub struct Reservation {
    pub(super) tenant: Arc<str>,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// Part of `bytes` in the area for small requests.
    pub(super) small: u64,
    /// Number of granted units.
    pub(super) units: usize,
}

/// Refusal of a request that exceeds the available memory, now or permanently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} bytes of memory are needed, but at most {most} are available for this within the host's memory_budget of {budget}"
)]
pub struct OutOfBudget {
    /// Bytes requested.
    pub needed: u64,
    /// Maximum bytes available.
    pub most: u64,
    /// Total budget in bytes.
    pub budget: u64,
}
