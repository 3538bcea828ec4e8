use frostline_tensor::{Augmentation, View};

/// Augmentations of training samples per epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Views {
    pub(crate) augmentation: Augmentation,
    pub(crate) seed: u64,
    /// Number of distinct views. `None` creates a new view for every epoch.
    pub(crate) different: Option<u32>,
}

impl Views {
    /// Returns the view of an epoch, counted from 1. Returns `None` without augmentation.
    pub(crate) fn for_epoch(&self, epoch: u32) -> Option<View> {
        self.for_draw(epoch, 0)
    }

    /// Returns the view of a sample that was drawn `earlier` times before in an epoch. Balanced sampling draws
    /// samples of small classes several times.
    pub(crate) fn for_draw(&self, epoch: u32, earlier: u32) -> Option<View> {
        // Odd and far from any number of epochs, so that draws do not repeat the views of other epochs.
        const APART: u32 = 0x9e37_79b1;
        if self.augmentation.is_none() {
            return None;
        }
        Some(View {
            augmentation: self.augmentation,
            seed: self.seed,
            number: match self.different {
                Some(different) => epoch.wrapping_add(earlier) % different.max(1),
                None => epoch.wrapping_add(earlier.wrapping_mul(APART)),
            },
        })
    }

    /// Returns true if later epochs repeat the same view.
    pub(crate) fn repeat(&self) -> bool {
        self.augmentation.is_none() || self.different.is_some()
    }

    /// Returns the distinct views of all epochs if they repeat. Without augmentation, the list contains
    /// `None`.
    pub(crate) fn cacheable(&self, epochs: u32) -> Vec<Option<View>> {
        match (self.augmentation.is_none(), self.different) {
            (true, _) => vec![None],
            (false, None) => Vec::new(),
            (false, Some(different)) => (1..=different.min(epochs))
                .map(|epoch| self.for_epoch(epoch))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_come_again_where_that_is_asked_for() {
        let views = |different| Views {
            augmentation: Augmentation {
                hflip: 0.5,
                ..Augmentation::default()
            },
            seed: 7,
            different,
        };
        let numbers = |different| (1..=5).map(move |epoch| views(different).for_epoch(epoch).unwrap().number);
        assert!(numbers(None).eq(1..=5));
        assert!(numbers(Some(2)).eq([1, 0, 1, 0, 1]));
        assert!(numbers(Some(1)).eq([0; 5]));
        assert_eq!(views(None).for_epoch(1).unwrap().seed, 7);
        let drawn =
            |different| (0..4).map(move |earlier| views(different).for_draw(3, earlier).unwrap().number);
        assert!(drawn(Some(2)).eq([1, 0, 1, 0]));
        let numbers: std::collections::BTreeSet<u32> = drawn(None).collect();
        assert!(numbers.len() == 4 && numbers.range(..1000).eq([&3]));
        assert_eq!(Views::default().for_epoch(1), None);
        assert_eq!(Views::default().cacheable(9), [None]);
        assert_eq!(views(None).cacheable(9), []);
        assert_eq!(
            views(Some(2)).cacheable(9),
            [views(Some(2)).for_epoch(1), views(Some(2)).for_epoch(2)]
        );
        assert_eq!(views(Some(20)).cacheable(9).len(), 9);
        assert!(views(Some(2)).repeat() && Views::default().repeat() && !views(None).repeat());
    }
}
