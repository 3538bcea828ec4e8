use crate::ClientError;
use crate::fetch::PatiencePolicy;
use frostline_batching::Backoff;
use frostline_tensor::OpErrorCode;
use frostline_wire::ErrorClass;
use std::time::Duration;

/// How long lost samples are worth asking for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// Attempts in a row that may bring nothing before the job ends.
    pub(crate) attempts: u32,
    /// The shortest wait after one of them; they grow.
    pub(crate) first_wait: Duration,
    /// The longest wait.
    pub(crate) longest_wait: Duration,
    /// How long in all a host may say that it is busy, or stopping, without a single sample coming.
    pub(crate) busy_patience: Duration,
    /// When a request that is still open is given up.
    pub(crate) patience: PatiencePolicy,
}

impl Default for RetryPolicy {
    /// Waits between 0.25 and 15 s span some 80 s over 16 attempts: a host that restarts and compiles its guests anew is back
    /// within that. A busy host is alive and says when to come back, and one that stops for a restart was told to, so they are given
    /// 10 minutes.
    fn default() -> Self {
        Self {
            attempts: 16,
            first_wait: Duration::from_millis(250),
            longest_wait: Duration::from_secs(15),
            busy_patience: Duration::from_secs(600),
            patience: PatiencePolicy::default(),
        }
    }
}

/// What to do after an attempt that left samples missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Ask again after this long.
    Again(Duration),
    /// End the job.
    GiveUp,
}

/// The attempts of one request so far. Holds no clock: it is told what happened and says what to do.
#[derive(Debug, Clone)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    backoff: Backoff,
    fruitless: u32,
    busy: Duration,
}

impl Attempts {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self::with(policy, Backoff::new(policy.first_wait, policy.longest_wait))
    }

    fn with(policy: RetryPolicy, backoff: Backoff) -> Self {
        Self {
            policy,
            backoff,
            fruitless: 0,
            busy: Duration::ZERO,
        }
    }

    /// Attempts in a row that brought nothing.
    pub(crate) fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// An attempt brought something after all.
    pub(crate) fn moved(&mut self) {
        (self.fruitless, self.busy) = (0, Duration::ZERO);
        self.backoff.reset();
    }

    /// What is missing is asked of another host at once, after an attempt that brought `arrived` rows: no attempt in vain yet.
    pub(crate) fn moves(&mut self, arrived: usize) {
        if arrived > 0 {
            self.moved();
        }
    }

    /// Decides after an attempt that brought `arrived` rows and ended with `error`.
    pub(crate) fn after(&mut self, error: &ClientError, arrived: usize) -> Decision {
        self.moves(arrived);
        match kind(error) {
            Kind::Final => Decision::GiveUp,
            Kind::Busy(wait) | Kind::Stopping(wait) => self.busy(wait),
            Kind::Passing => self.passing(),
        }
    }

    /// Decides after an attempt that brought nothing and may go better the next time.
    pub(crate) fn passing(&mut self) -> Decision {
        self.fruitless += 1;
        if self.fruitless >= self.policy.attempts {
            return Decision::GiveUp;
        }
        Decision::Again(self.backoff.wait())
    }

    fn busy(&mut self, wait: Option<Duration>) -> Decision {
        if self.busy >= self.policy.busy_patience {
            return Decision::GiveUp;
        }
        let wait = match wait {
            Some(wait) => self
                .backoff
                .asked(wait.clamp(self.policy.first_wait, self.policy.busy_patience)),
            None => self.backoff.wait(),
        };
        self.busy += wait;
        Decision::Again(wait)
    }
}

impl ClientError {
    /// Whether the same call may bring an answer from the same host some time.
    pub fn may_pass_later(&self) -> bool {
        !matches!(kind(self), Kind::Final)
    }

    /// Whether the same call may bring an answer later, or from another host.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(kind(self), Kind::Passing | Kind::Stopping(_))
    }
}

enum Kind {
    /// Asking again gives the same answer.
    Final,
    /// Alive, but has no room now.
    Busy(Option<Duration>),
    /// On its way out, and back later if it is being restarted. No failure.
    Stopping(Option<Duration>),
    /// May be over the next time.
    Passing,
}

fn kind(error: &ClientError) -> Kind {
    match error {
        ClientError::Address { .. }
        | ClientError::Authorities { .. }
        | ClientError::Token { .. }
        | ClientError::Upload { .. }
        | ClientError::Lost { .. }
        | ClientError::Preprocess { .. }
        | ClientError::Ended { .. } => Kind::Final,
        ClientError::NoHost { source, .. } => kind(source),
        ClientError::Leaving { .. } => Kind::Stopping(None),
        ClientError::Lacking { .. } => Kind::Busy(None),
        ClientError::Unreachable { .. }
        | ClientError::Silent { .. }
        | ClientError::Interrupted { .. }
        | ClientError::Protocol { .. } => Kind::Passing,
        ClientError::Refused {
            class, retry_after, ..
        } => match class {
            ErrorClass::Busy => Kind::Busy(*retry_after),
            ErrorClass::Stopping => Kind::Stopping(*retry_after),
            ErrorClass::Host => Kind::Passing,
            ErrorClass::Request
            | ErrorClass::Unauthorized
            | ErrorClass::NotFound
            | ErrorClass::TooLarge
            | ErrorClass::Guest => Kind::Final,
        },
    }
}

/// Whether a sample that failed like this may work the next time: the store or the host hiccupped, the sample itself was not
/// at fault.
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

    /// The waits of attempts that bring nothing, until the job ends.
    fn waits(policy: RetryPolicy, seed: u64) -> Vec<Duration> {
        let backoff = Backoff::seeded(policy.first_wait, policy.longest_wait, seed);
        let mut attempts = Attempts::with(policy, backoff);
        let next = || match attempts.after(&cut_off(), 0) {
            Decision::Again(wait) => Some(wait),
            Decision::GiveUp => None,
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
        // What the policy's numbers rest on.
        assert!(
            (75..95).contains(&spans[500]) && spans[20] > 50,
            "{} {}",
            spans[500],
            spans[20]
        );
        assert_ne!(waits(policy, 1), waits(policy, 2));
    }

    #[test]
    fn rows_that_came_start_the_count_anew() {
        let mut attempts = Attempts::new(RetryPolicy {
            attempts: 2,
            ..RetryPolicy::default()
        });
        for _ in 0..20 {
            assert!(matches!(attempts.after(&cut_off(), 1), Decision::Again(_)));
        }
        assert_eq!(attempts.after(&cut_off(), 0), Decision::GiveUp);
    }

    #[test]
    fn a_busy_host_is_waited_for_as_it_asks_but_not_for_ever() {
        let mut attempts = Attempts::new(RetryPolicy {
            busy_patience: Duration::from_secs(10),
            ..RetryPolicy::default()
        });
        let busy = refused(ErrorClass::Busy, Some(Duration::from_secs(4)));
        let asked = Duration::from_secs(4)..=Duration::from_secs(5);
        for _ in 0..3 {
            let decision = attempts.after(&busy, 0);
            assert!(
                matches!(decision, Decision::Again(wait) if asked.contains(&wait)),
                "{decision:?}"
            );
        }
        assert_eq!(attempts.after(&busy, 0), Decision::GiveUp);
    }

    #[test]
    fn a_host_that_stops_is_waited_for_as_a_busy_one_and_has_not_failed() {
        let mut attempts = Attempts::new(RetryPolicy {
            attempts: 1,
            ..RetryPolicy::default()
        });
        let stopping = refused(ErrorClass::Stopping, Some(Duration::from_secs(1)));
        let mut waited = Duration::ZERO;
        while let Decision::Again(wait) = attempts.after(&stopping, 0) {
            waited += wait;
        }
        assert!(waited >= Duration::from_secs(600));
        assert_eq!(attempts.fruitless(), 0);
        assert!(stopping.may_pass());
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
                Attempts::new(RetryPolicy::default()).after(&refused(class, None), 0),
                Decision::GiveUp
            );
        }
        let host = refused(ErrorClass::Host, None);
        assert!(matches!(
            Attempts::new(RetryPolicy::default()).after(&host, 0),
            Decision::Again(_)
        ));
    }
}
