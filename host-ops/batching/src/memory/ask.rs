//! What there is, what is asked of it, and what somebody gets.

use super::kind::Kind;
use std::sync::Arc;

/// What there is to reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Bytes that the host may hold in all, its lanes included.
    pub bytes: u64,
    /// What stays free for a base that grows: nothing but small requests is let in beyond the rest.
    pub spare: u64,
    /// For small requests alone, of which each tenant's may hold a 16th: nobody who holds or waits for anything else keeps these waiting.
    pub small: u64,
    /// The largest grant of one sample, that requests do not take all; what earlier kinds leave untouched.
    pub grant: u64,
    /// See `grant`: the largest object read, the image whose decoding takes most, and the least a lane needs.
    pub read: u64,
    /// See `grant`.
    pub decode: u64,
    /// See `grant`.
    pub lane: u64,
}

/// Of [`Budget::small`], the part of each tenant.
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

/// What is asked for: a fixed part, and so many units of which a smaller number will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// What for.
    pub kind: Kind,
    /// Bytes that come with the first unit.
    pub fixed: u64,
    /// Bytes of a unit.
    pub each: u64,
    /// Units; at least 1 is used. Fewer are granted only where so many can never fit, or are beyond the tenant's share.
    pub units: usize,
}

impl Ask {
    /// So many bytes, all or none.
    pub fn exactly(kind: Kind, bytes: u64) -> Self {
        Self {
            kind,
            fixed: bytes,
            each: 0,
            units: 1,
        }
    }

    /// Bytes of so many units.
    pub(crate) fn bytes(&self, units: usize) -> u64 {
        self.fixed.saturating_add(self.each.saturating_mul(units as u64))
    }

    /// The most units that take no more than `bytes`, of which at least 1.
    pub(super) fn units_within(&self, bytes: u64) -> usize {
        let room = bytes.saturating_sub(self.fixed);
        let fit = room.checked_div(self.each).unwrap_or(u64::MAX);
        usize::try_from(fit)
            .unwrap_or(usize::MAX)
            .clamp(1, self.units.max(1))
    }
}

/// What somebody holds.
#[derive(Debug)]
pub struct Reservation {
    pub(super) tenant: Arc<str>,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// Of these, what is in the part for small requests.
    pub(super) small: u64,
    /// Units of what was asked for.
    pub(super) units: usize,
}

/// More than there can ever be, or now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} bytes of memory are needed, of which this host has at most {most} for it within its memory_budget of {budget}"
)]
pub struct OutOfBudget {
    /// Bytes that were asked for.
    pub needed: u64,
    /// The most that could be had.
    pub most: u64,
    /// The whole budget.
    pub budget: u64,
}
