use std::collections::HashMap;

/// Maximum number of recorded actions per tenant and minute. A script that uploads a model for each of its
/// jobs stays below; a client that uploads and removes in a loop must not fill the audit log.
pub(super) const MAX_PER_MINUTE: u32 = 60;

/// Number of tenants being counted. If it is reached, tenants without an action in the current minute are
/// removed.
const COUNTED: usize = 1024;

/// Actions of each tenant in the current minute.
#[derive(Default)]
pub(super) struct Rates(HashMap<String, Rate>);

struct Rate {
    minute: u64,
    acts: u32,
}

/// Result of counting an action.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// Actions in the tenant's previous active minute that were not recorded.
    pub(super) left_out: u32,
    /// Actions in this minute beyond [`MAX_PER_MINUTE`], including this one.
    pub(super) beyond: u32,
}

impl Rates {
    pub(super) fn count(&mut self, tenant: &str, minute: u64) -> Counted {
        if self.0.len() >= COUNTED {
            self.0.retain(|_, rate| rate.minute == minute);
        }
        let fresh = Rate { minute, acts: 0 };
        let rate = self.0.entry(tenant.to_owned()).or_insert(fresh);
        let mut left_out = 0;
        if rate.minute != minute {
            left_out = rate.acts.saturating_sub(MAX_PER_MINUTE);
            *rate = Rate { minute, acts: 0 };
        }
        rate.acts = rate.acts.saturating_add(1);
        Counted {
            left_out,
            beyond: rate.acts.saturating_sub(MAX_PER_MINUTE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_beyond_a_minutes_are_counted() {
        let mut rates = Rates::default();
        let mut count = |tenant: &str, minute| rates.count(tenant, minute);
        let counted = |left_out, beyond| Counted { left_out, beyond };
        for _ in 0..MAX_PER_MINUTE {
            assert_eq!(count("acme", 7), counted(0, 0));
        }
        assert_eq!(count("acme", 7), counted(0, 1));
        assert_eq!(count("acme", 7), counted(0, 2));
        assert_eq!(count("other", 7), counted(0, 0));
        assert_eq!(count("acme", 8), counted(2, 0));
        assert_eq!(count("acme", 9), counted(0, 0));
    }
}
