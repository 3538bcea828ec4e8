use crate::ClientError;
use crate::fetch::StragglerPolicy;
use frostline_primitives::Backoff;
use frostline_tensor::OpErrorCode;
use frostline_wire::ErrorClass;
use std::time::Duration;
use tokio::time::Instant;

/// Limits for retries of lost samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// Maximum number of consecutive attempts without samples, if a host answers.
    pub(crate) attempts: u32,
    /// Minimum wait between attempts. Waits grow with each failure.
    pub(crate) first_wait: Duration,
    /// Maximum wait between attempts.
    pub(crate) longest_wait: Duration,
    /// Maximum duration of an outage.
    pub(crate) max_outage: Duration,
    /// Maximum total wait for a busy or draining host while no sample arrives.
    pub(crate) max_busy_wait: Duration,
    /// When to give up an open request.
    pub(crate) stragglers: StragglerPolicy,
}

impl Default for RetryPolicy {
    /// Waits between 0.25 and 15 s add up to about 80 s over 16 attempts. A host that answers but does not
    /// deliver within this time is not expected to recover. A reboot or a network repair needs about two
    /// minutes, and another half minute covers the wait and the connection setup after that. A busy host is
    /// alive and announces a retry time, and a draining host is probably being restarted, so the limit for
    /// both is 10 minutes.
    fn default() -> Self {
        Self {
            attempts: 16,
            first_wait: Duration::from_millis(250),
            longest_wait: Duration::from_secs(15),
            max_outage: Duration::from_secs(150),
            max_busy_wait: Duration::from_secs(600),
            stragglers: StragglerPolicy::default(),
        }
    }
}

/// Next step if samples are missing after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Retry after this duration.
    Again(Duration),
    /// Fail the job.
    GiveUp,
}

/// Snapshot of host activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostActivity {
    /// Total number of answers, including refusals.
    pub(crate) answers: u64,
    pub(crate) observed: Instant,
}

/// Retry state of one request. This type does not read a clock: the caller reports events and receives
/// decisions.
#[derive(Debug, Clone)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    backoff: Backoff,
    fruitless: u32,
    /// Number of fruitless attempts to which a host answered.
    answered: u32,
    busy: Duration,
    /// Total number of answers at the last decision.
    answers: u64,
    /// Start of the current outage.
    outage_since: Option<Instant>,
}

impl Attempts {
    /// Creates the state before the first attempt.
    pub(crate) fn new(policy: RetryPolicy, seen: HostActivity) -> Self {
        Self::with(policy, Backoff::new(policy.first_wait, policy.longest_wait), seen)
    }

    fn with(policy: RetryPolicy, backoff: Backoff, seen: HostActivity) -> Self {
        Self {
            policy,
            backoff,
            fruitless: 0,
            answered: 0,
            busy: Duration::ZERO,
            answers: seen.answers,
            outage_since: None,
        }
    }

    /// Number of consecutive attempts without samples.
    pub(crate) fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// Returns the remaining time until an outage fails the job, or `None` if a host answers.
    pub(crate) fn outage_time_left(&self, now: Instant) -> Option<Duration> {
        let until = self.outage_since? + self.policy.max_outage;
        Some(until.saturating_duration_since(now))
    }

    /// Resets the state after an attempt with progress.
    pub(crate) fn reset(&mut self) {
        (self.fruitless, self.answered, self.busy) = (0, 0, Duration::ZERO);
        self.outage_since = None;
        self.backoff.reset();
    }

    /// Records that missing samples move to another host immediately after an attempt that delivered
    /// `arrived` rows. This does not count as a failed attempt.
    pub(crate) fn moves(&mut self, arrived: usize) {
        if arrived > 0 {
            self.reset();
        }
    }

    /// Decides after an attempt that delivered `arrived` rows and ended with `error`. `seen` is the host
    /// activity after the attempt.
    pub(crate) fn after(&mut self, error: &ClientError, arrived: usize, seen: HostActivity) -> Retry {
        self.moves(arrived);
        match kind(error) {
            FailureKind::Final => Retry::GiveUp,
            FailureKind::Busy(wait) | FailureKind::Stopping(wait) => {
                (self.answers, self.outage_since) = (seen.answers, None);
                self.busy(wait)
            }
            FailureKind::Passing if error.indicates_outage() && seen.answers == self.answers => {
                self.absent(seen)
            }
            FailureKind::Passing => self.passing(seen),
        }
    }

    /// Decides after an attempt that was answered, but delivered no samples due to a transient problem.
    pub(crate) fn passing(&mut self, seen: HostActivity) -> Retry {
        (self.answers, self.outage_since) = (seen.answers, None);
        self.fruitless = self.fruitless.saturating_add(1);
        self.answered = self.answered.saturating_add(1);
        if self.answered >= self.policy.attempts {
            return Retry::GiveUp;
        }
        Retry::Again(self.backoff.wait())
    }

    /// Decides after an attempt without an answer from any host.
    fn absent(&mut self, seen: HostActivity) -> Retry {
        self.fruitless = self.fruitless.saturating_add(1);
        self.outage_since.get_or_insert(seen.observed);
        match self.outage_time_left(seen.observed) {
            Some(left) if !left.is_zero() => Retry::Again(self.backoff.wait().min(left)),
            _ => Retry::GiveUp,
        }
    }

    fn busy(&mut self, wait: Option<Duration>) -> Retry {
        if self.busy >= self.policy.max_busy_wait {
            return Retry::GiveUp;
        }
        let wait = match wait {
            Some(wait) => self
                .backoff
                .asked(wait.clamp(self.policy.first_wait, self.policy.max_busy_wait)),
            None => self.backoff.wait(),
        };
        self.busy += wait;
        Retry::Again(wait)
    }
}

impl ClientError {
    /// Returns true if the same call to the same host may succeed later.
    pub fn may_pass_later(&self) -> bool {
        !matches!(kind(self), FailureKind::Final)
    }

    /// Returns true if the error indicates an unavailable host, unless the host answered in the meantime.
    /// Silence on a live connection does not count.
    pub(crate) fn indicates_outage(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Interrupted { .. } => true,
            Self::NoHost { source, .. } => source.indicates_outage(),
            _ => false,
        }
    }

    /// Returns true if the same call may succeed at another host. Busy hosts are excluded, because a busy
    /// host is retried after a wait.
    pub(crate) fn may_succeed_elsewhere(&self) -> bool {
        match self {
            // The error concerns this host only. Others may accept the upload.
            Self::Upload { source, .. } => source.may_succeed_elsewhere(),
            error => matches!(kind(error), FailureKind::Passing | FailureKind::Stopping(_)),
        }
    }
}

enum FailureKind {
    /// Retrying cannot help.
    Final,
    /// The host is alive but has no capacity now.
    Busy(Option<Duration>),
    /// The host is draining and returns later if it is being restarted. This is not a failure.
    Stopping(Option<Duration>),
    /// The failure may be transient.
    Passing,
}

fn kind(error: &ClientError) -> FailureKind {
    match error {
        ClientError::Address { .. }
        | ClientError::Authorities { .. }
        | ClientError::Token { .. }
        | ClientError::Upload { .. }
        | ClientError::SlowUpload { .. }
        | ClientError::Lost { .. }
        | ClientError::Preprocess { .. }
        | ClientError::Ended { .. } => FailureKind::Final,
        ClientError::NoHost { source, .. } => kind(source),
        ClientError::Leaving { .. } => FailureKind::Stopping(None),
        // The operator may fix the access, and some stores temporarily refuse valid credentials.
        ClientError::RowsUnavailable { .. } | ClientError::DataAccessDenied { .. } => FailureKind::Busy(None),
        ClientError::Unreachable { .. }
        | ClientError::Silent { .. }
        | ClientError::Interrupted { .. }
        | ClientError::CorruptRows { .. }
        | ClientError::Protocol { .. } => FailureKind::Passing,
        ClientError::Refused {
            class, retry_after, ..
        } => match class {
            ErrorClass::Busy => FailureKind::Busy(*retry_after),
            ErrorClass::Stopping => FailureKind::Stopping(*retry_after),
            ErrorClass::Host => FailureKind::Passing,
            ErrorClass::Request
            | ErrorClass::Unauthorized
            | ErrorClass::NotFound
            | ErrorClass::TooLarge
            | ErrorClass::Guest => FailureKind::Final,
        },
    }
}

/// Returns true if a sample that failed with this code may succeed on the next attempt, because the store or
/// the host had a temporary problem and the sample itself is not the cause.
pub(crate) fn sample_may_recover(code: OpErrorCode) -> bool {
    match code {
        OpErrorCode::Timeout | OpErrorCode::RuntimeError | OpErrorCode::Unknown => true,
        OpErrorCode::InvalidArgument
        | OpErrorCode::InvalidEncoding
        | OpErrorCode::UnsupportedOperation
        | OpErrorCode::TooLarge
        | OpErrorCode::NotFound
        | OpErrorCode::Security => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    fn cut_off() -> ClientError {
        ClientError::Interrupted {
            host: "http://h".to_owned(),
            reason: "reset".into(),
        }
    }

    fn refused(class: ErrorClass, retry_after: Option<Duration>) -> ClientError {
        let status = StatusCode::BAD_REQUEST;
        ClientError::Refused {
            host: "http://h".to_owned(),
            status,
            class,
            message: String::new(),
            retry_after,
        }
    }

    /// Host activity with `answers` answers.
    fn seen(answers: u64) -> HostActivity {
        let observed = Instant::now();
        HostActivity { answers, observed }
    }

    fn attempts(policy: RetryPolicy) -> Attempts {
        Attempts::new(policy, seen(0))
    }

    /// Simulates answers without samples and returns the waits until the job fails.
    fn waits(policy: RetryPolicy, seed: u64) -> Vec<Duration> {
        let backoff = Backoff::seeded(policy.first_wait, policy.longest_wait, seed);
        let mut attempts = Attempts::with(policy, backoff, seen(0));
        let mut answers = 0..;
        let next = || match attempts.after(&cut_off(), 0, seen(answers.next()? + 1)) {
            Retry::Again(wait) => Some(wait),
            Retry::GiveUp => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn waits_grow_differently_for_everybody_and_end() {
        let policy = RetryPolicy::default();
        let all: Vec<Vec<Duration>> = (0..1000).map(|seed| waits(policy, seed)).collect();
        let bounds = policy.first_wait..=policy.longest_wait;
        assert!(
            all.iter()
                .all(|waits| waits.len() == 15 && waits.iter().all(|wait| bounds.contains(wait)))
        );
        let mut spans: Vec<u64> = all
            .iter()
            .map(|waits| waits.iter().sum::<Duration>().as_secs())
            .collect();
        spans.sort_unstable();
        // The default policy is based on these numbers.
        assert!(
            (75..95).contains(&spans[500]) && spans[20] > 50,
            "{} {}",
            spans[500],
            spans[20]
        );
        assert_ne!(waits(policy, 1), waits(policy, 2));
    }

    /// Duration of an outage until the job fails.
    fn absence(attempts: &mut Attempts, mut seen: HostActivity) -> Duration {
        let started = seen.observed;
        while let Retry::Again(wait) = attempts.after(&cut_off(), 0, seen) {
            let left = attempts.outage_time_left(seen.observed).unwrap();
            assert!(!wait.is_zero() && wait <= left);
            assert_eq!(
                left,
                RetryPolicy::default().max_outage - (seen.observed - started)
            );
            seen.observed += wait;
        }
        seen.observed - started
    }

    #[test]
    fn hosts_that_are_all_gone_are_waited_for_until_a_deadline_however_the_waits_fall() {
        let policy = RetryPolicy::default();
        assert!(policy.max_outage >= Duration::from_secs(120));
        for seed in 0..1000 {
            let backoff = Backoff::seeded(policy.first_wait, policy.longest_wait, seed);
            let mut attempts = Attempts::with(policy, backoff, seen(7));
            assert_eq!(absence(&mut attempts, seen(7)), policy.max_outage);
        }
    }

    #[test]
    fn an_answer_ends_an_absence_and_counts_as_an_attempt() {
        let mut attempts = attempts(RetryPolicy {
            attempts: 3,
            ..RetryPolicy::default()
        });
        let refused = refused(ErrorClass::Host, None);
        for answers in 1..3 {
            let decision = attempts.after(&refused, 0, seen(answers));
            assert!(matches!(decision, Retry::Again(_)));
            assert_eq!(attempts.outage_time_left(Instant::now()), None);
            // No host answers until the outage is about to end.
            absence(&mut attempts, seen(answers));
        }
        assert_eq!(attempts.after(&refused, 0, seen(3)), Retry::GiveUp);
    }

    #[test]
    fn a_host_that_is_silent_on_a_connection_that_lives_is_not_gone() {
        let silent = ClientError::Silent {
            host: "http://h".to_owned(),
            doing: "answering",
            seconds: 180,
        };
        let mut attempts = attempts(RetryPolicy::default());
        assert!(matches!(attempts.after(&silent, 0, seen(0)), Retry::Again(_)));
        assert_eq!(attempts.outage_time_left(Instant::now()), None);
    }

    #[test]
    fn rows_that_came_start_the_count_anew() {
        let mut attempts = attempts(RetryPolicy {
            attempts: 2,
            ..RetryPolicy::default()
        });
        for answers in 1..20 {
            let decision = attempts.after(&cut_off(), 1, seen(answers));
            assert!(matches!(decision, Retry::Again(_)));
        }
        assert_eq!(attempts.after(&cut_off(), 0, seen(20)), Retry::GiveUp);
    }

    #[test]
    fn a_busy_host_is_waited_for_as_it_asks_but_not_for_ever() {
        let mut attempts = attempts(RetryPolicy {
            max_busy_wait: Duration::from_secs(10),
            ..RetryPolicy::default()
        });
        let busy = refused(ErrorClass::Busy, Some(Duration::from_secs(4)));
        let asked = Duration::from_secs(4)..=Duration::from_secs(5);
        for _ in 0..3 {
            let decision = attempts.after(&busy, 0, seen(0));
            assert!(
                matches!(decision, Retry::Again(wait) if asked.contains(&wait)),
                "{decision:?}"
            );
        }
        assert_eq!(attempts.after(&busy, 0, seen(0)), Retry::GiveUp);
    }

    #[test]
    fn a_host_that_stops_is_waited_for_as_a_busy_one_and_has_not_failed() {
        let mut attempts = attempts(RetryPolicy {
            attempts: 1,
            ..RetryPolicy::default()
        });
        let stopping = refused(ErrorClass::Stopping, Some(Duration::from_secs(1)));
        let mut waited = Duration::ZERO;
        while let Retry::Again(wait) = attempts.after(&stopping, 0, seen(0)) {
            waited += wait;
        }
        assert!(waited >= Duration::from_secs(600));
        assert_eq!(attempts.fruitless(), 0);
        assert!(stopping.may_succeed_elsewhere());
    }

    #[test]
    fn what_cannot_change_is_not_asked_again() {
        for class in [
            ErrorClass::Request,
            ErrorClass::Unauthorized,
            ErrorClass::Guest,
            ErrorClass::NotFound,
        ] {
            assert_eq!(
                attempts(RetryPolicy::default()).after(&refused(class, None), 0, seen(1)),
                Retry::GiveUp
            );
        }
        let host = refused(ErrorClass::Host, None);
        assert!(matches!(
            attempts(RetryPolicy::default()).after(&host, 0, seen(1)),
            Retry::Again(_)
        ));
    }
}
