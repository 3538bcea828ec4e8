//! Victims and times of a trial's kills, drawn from a seed so that runs of the benchmark are reproducible.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    Trainer,
    Host,
}

impl Victim {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Trainer => "trainer",
            Self::Host => "host",
        }
    }
}

/// A planned kill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kill {
    pub(super) victim: Victim,
    /// Seconds that the job's trainer processes have run in total by then.
    pub(super) at: f64,
}

/// Maximum number of kills per victim in a trial.
const MOST: u64 = 3;

/// Kills happen within this part of the reference's duration. Trials may be somewhat faster than the
/// reference and must not end before the kills.
const WITHIN: f64 = 0.9;

pub(super) struct Moments {
    state: u64,
}

impl Moments {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Draws the kills of trial number `trial` for a job of this duration, sorted by time. Trials kill the
    /// trainer, the host, and both, in turn.
    pub(super) fn draw(&mut self, trial: usize, seconds: f64) -> Vec<Kill> {
        let victims: &[Victim] = match trial % 3 {
            0 => &[Victim::Trainer],
            1 => &[Victim::Host],
            _ => &[Victim::Trainer, Victim::Host],
        };
        let mut kills = Vec::new();
        for victim in victims {
            let count = 1 + self.next() % MOST;
            for _ in 0..count {
                let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
                kills.push(Kill {
                    victim: *victim,
                    at: share * WITHIN * seconds,
                });
            }
        }
        kills.sort_by(|one, other| one.at.total_cmp(&other.at));
        kills
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_kill_the_trainer_the_host_and_both_in_turns() {
        let mut moments = Moments::new(1);
        for trial in 0..60 {
            let kills = moments.draw(trial, 10.0);
            let has = |victim| kills.iter().any(|kill| kill.victim == victim);
            let expected = [(true, false), (false, true), (true, true)][trial % 3];
            assert_eq!((has(Victim::Trainer), has(Victim::Host)), expected);
            assert!(kills.len() <= 6 && kills.is_sorted_by(|one, other| one.at <= other.at));
            assert!(kills.iter().all(|kill| (0.0..9.0).contains(&kill.at)));
        }
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let [one, other, another] = [1, 1, 2].map(|seed| Moments::new(seed).draw(2, 10.0));
        assert_eq!(one, other);
        assert_ne!(one, another);
    }
}
