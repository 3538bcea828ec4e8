//! Budget, requests and reservations.

use super::kind::Kind;
use std::sync::Arc;

/// Memory budget of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Bytes that the host may use in total, including lanes.
    pub bytes: u64,
    /// Bytes kept free for a growing base. Only small requests can use this part.
    pub spare: u64,
    /// Bytes for small requests. A tenant can hold up to a 16th. Other reservations and waiting requests do
    /// not delay small requests.
    pub small: u64,
    /// Bytes for requests and grants that only tenants with little memory can use: up to a quarter of this
    /// part each. When memory is short, the tenants that hold the most are refused first.
    pub modest: u64,
    /// Bytes that requests leave free for grants. Should be the largest grant with a single sample.
    pub grant: u64,
    /// Bytes that earlier kinds leave free for reads. Should be the size of the largest object.
    pub read: u64,
    /// Bytes that earlier kinds leave free for decoding. Should be the largest requirement of a single image.
    pub decode: u64,
    /// Bytes that other kinds leave free for lanes. Should be the minimum required by a lane.
    pub lane: u64,
}

/// Divisor of [`Budget::small`] for the limit per tenant.
pub(super) const SMALL: u64 = 16;

/// Divisor of [`Budget::modest`] for the memory of a tenant with little memory.
pub(super) const MODEST: u64 = 4;

impl Budget {
    /// Bytes that lanes leave free if nothing is reserved. The sum of [`Budget::modest`], [`Budget::read`] and
    /// [`Budget::decode`].
    pub fn left_by_lanes(&self) -> u64 {
        self.modest.saturating_add(self.read).saturating_add(self.decode)
    }

    pub(super) fn floor(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Read => self.read,
            Kind::Decode => self.decode,
            Kind::Lane => self.lane,
            Kind::Grant => self.grant,
            Kind::Cache | Kind::Request => 0,
        }
    }
}

/// A request for memory, consisting of a fixed part and units. Fewer units may be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Purpose of the memory.
    pub kind: Kind,
    /// Bytes required in addition to the units.
    pub fixed: u64,
    /// Bytes per unit.
    pub each: u64,
    /// Number of units; 0 is treated as 1. Fewer are granted only if this number can never fit or exceeds the
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

/// Refusal because a request exceeds the available memory.
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
