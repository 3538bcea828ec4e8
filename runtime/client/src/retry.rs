use crate::ClientError;
use crate::fetch::PatiencePolicy;
use frostline_batching::Backoff;
use frostline_tensor::OpErrorCode;
use frostline_wire::ErrorClass;
use std::time::Duration;
use tokio::time::Instant;

/// How long lost samples are worth asking for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// Attempts in a row that may bring nothing, although a host answers, before the job ends.
    pub(crate) attempts: u32,
    /// The shortest wait after one of them; they grow.
    pub(crate) first_wait: Duration,
    /// The longest wait.
    pub(crate) longest_wait: Duration,
    /// How long no host at all may answer before the job ends.
    pub(crate) absence: Duration,
    /// How long in all a host may say that it is busy, or stopping, without a single sample coming.
    pub(crate) busy_patience: Duration,
    /// When a request that is still open is given up.
    pub(crate) patience: PatiencePolicy,
}

impl Default for RetryPolicy {
    /// Waits between 0.25 and 15 s span some 80 s over 16 attempts: what a host that answers does not do within that it will not do. A
    /// machine that starts anew, or a network that is mended, takes two minutes; half a minute more is for the wait and the
    /// connection after that. A busy host is alive and says when to come back, and one that stops for a restart was told to, so they
    /// are given 10 minutes.
    fn default() -> Self {
        Self {
            attempts: 16,
            first_wait: Duration::from_millis(250),
            longest_wait: Duration::from_secs(15),
            absence: Duration::from_secs(150),
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

/// What hosts have shown of themselves until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Answers of any of them, refusals too.
    pub(crate) answers: u64,
    pub(crate) now: Instant,
}

/// The attempts of one request so far. Holds no clock: it is told what happened and says what to do.
#[derive(Debug, Clone)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    backoff: Backoff,
    fruitless: u32,
    /// Those of the fruitless ones at which a host answered.
    answered: u32,
    busy: Duration,
    /// Answers of all hosts when it was decided last.
    answers: u64,
    /// Since when no host answers.
    gone: Option<Instant>,
}

impl Attempts {
    /// No attempt yet, of hosts that were `seen` like this.
    pub(crate) fn new(policy: RetryPolicy, seen: Seen) -> Self {
        Self::with(policy, Backoff::new(policy.first_wait, policy.longest_wait), seen)
    }

    fn with(policy: RetryPolicy, backoff: Backoff, seen: Seen) -> Self {
        Self {
            policy,
            backoff,
            fruitless: 0,
            answered: 0,
            busy: Duration::ZERO,
            answers: seen.answers,
            gone: None,
        }
    }

    /// Attempts in a row that brought nothing.
    pub(crate) fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// How much longer hosts are waited for of which none answers; `None` while one does.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let until = self.gone? + self.policy.absence;
        Some(until.saturating_duration_since(now))
    }

    /// An attempt brought something after all.
    pub(crate) fn moved(&mut self) {
        (self.fruitless, self.answered, self.busy) = (0, 0, Duration::ZERO);
        self.gone = None;
        self.backoff.reset();
    }

    /// What is missing is asked of another host at once, after an attempt that brought `arrived` rows: no attempt in vain yet.
    pub(crate) fn moves(&mut self, arrived: usize) {
        if arrived > 0 {
            self.moved();
        }
    }

    /// Decides after an attempt that brought `arrived` rows and ended with `error`, hosts being `seen` like this.
    pub(crate) fn after(&mut self, error: &ClientError, arrived: usize, seen: Seen) -> Decision {
        self.moves(arrived);
        match kind(error) {
            Kind::Final => Decision::GiveUp,
            Kind::Busy(wait) | Kind::Stopping(wait) => {
                (self.answers, self.gone) = (seen.answers, None);
                self.busy(wait)
            }
            Kind::Passing if error.is_absence() && seen.answers == self.answers => self.absent(seen),
            Kind::Passing => self.passing(seen),
        }
    }

    /// Decides after an attempt that brought nothing but an answer, and may go better the next time.
    pub(crate) fn passing(&mut self, seen: Seen) -> Decision {
        (self.answers, self.gone) = (seen.answers, None);
        self.fruitless = self.fruitless.saturating_add(1);
        self.answered = self.answered.saturating_add(1);
        if self.answered >= self.policy.attempts {
            return Decision::GiveUp;
        }
        Decision::Again(self.backoff.wait())
    }

    /// Decides after an attempt at which no host was there.
    fn absent(&mut self, seen: Seen) -> Decision {
        self.fruitless = self.fruitless.saturating_add(1);
        self.gone.get_or_insert(seen.now);
        match self.left(seen.now) {
            Some(left) if !left.is_zero() => Decision::Again(self.backoff.wait().min(left)),
            _ => Decision::GiveUp,
        }
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

    /// Whether it is what a host looks like that is not there, unless it answered. One that is silent on a connection that lives is.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Interrupted { .. } => true,
            Self::NoHost { source, .. } => source.is_absence(),
            _ => false,
        }
    }

    /// Whether the same call may bring an answer later, or from another host.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            // It says something of the host that it went to, not of the others.
            Self::Upload { source, .. } => source.may_pass(),
            error => matches!(kind(error), Kind::Passing | Kind::Stopping(_)),
        }
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
        // The operator may mend it, and some stores refuse for seconds what they allow.
        ClientError::Lacking { .. } | ClientError::DataAccessDenied { .. } => Kind::Busy(None),
        ClientError::Unreachable { .. }
        | ClientError::Silent { .. }
        | ClientError::Interrupted { .. }
        | ClientError::Altered { .. }
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

    /// Hosts that have answered so often.
    fn seen(answers: u64) -> Seen {
        let now = Instant::now();
        Seen { answers, now }
    }

    fn attempts(policy: RetryPolicy) -> Attempts {
        Attempts::new(policy, seen(0))
    }

    /// The waits of attempts that bring nothing but an answer, until the job ends.
    fn waits(policy: RetryPolicy, seed: u64) -> Vec<Duration> {
        let backoff = Backoff::seeded(policy.first_wait, policy.longest_wait, seed);
        let mut attempts = Attempts::with(policy, backoff, seen(0));
        let mut answers = 0..;
        let next = || match attempts.after(&cut_off(), 0, seen(answers.next()? + 1)) {
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

    /// How long hosts are waited for of which none answers.
    fn absence(attempts: &mut Attempts, mut seen: Seen) -> Duration {
        let started = seen.now;
        while let Decision::Again(wait) = attempts.after(&cut_off(), 0, seen) {
            let left = attempts.left(seen.now).unwrap();
            assert!(!wait.is_zero() && wait <= left);
            assert_eq!(left, RetryPolicy::default().absence - (seen.now - started));
            seen.now += wait;
        }
        seen.now - started
    }

    #[test]
    fn hosts_that_are_all_gone_are_waited_for_until_a_deadline_however_the_waits_fall() {
        let policy = RetryPolicy::default();
        assert!(policy.absence >= Duration::from_secs(120));
        for seed in 0..1000 {
            let backoff = Backoff::seeded(policy.first_wait, policy.longest_wait, seed);
            let mut attempts = Attempts::with(policy, backoff, seen(7));
            assert_eq!(absence(&mut attempts, seen(7)), policy.absence);
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
            assert!(matches!(decision, Decision::Again(_)));
            assert_eq!(attempts.left(Instant::now()), None);
            // None answers for all the time but its end.
            absence(&mut attempts, seen(answers));
        }
        assert_eq!(attempts.after(&refused, 0, seen(3)), Decision::GiveUp);
    }

    #[test]
    fn a_host_that_is_silent_on_a_connection_that_lives_is_not_gone() {
        let silent = ClientError::Silent {
            host: "http://h".to_owned(),
            doing: "answering",
            seconds: 180,
        };
        let mut attempts = attempts(RetryPolicy::default());
        assert!(matches!(attempts.after(&silent, 0, seen(0)), Decision::Again(_)));
        assert_eq!(attempts.left(Instant::now()), None);
    }

    #[test]
    fn rows_that_came_start_the_count_anew() {
        let mut attempts = attempts(RetryPolicy {
            attempts: 2,
            ..RetryPolicy::default()
        });
        for answers in 1..20 {
            let decision = attempts.after(&cut_off(), 1, seen(answers));
            assert!(matches!(decision, Decision::Again(_)));
        }
        assert_eq!(attempts.after(&cut_off(), 0, seen(20)), Decision::GiveUp);
    }

    #[test]
    fn a_busy_host_is_waited_for_as_it_asks_but_not_for_ever() {
        let mut attempts = attempts(RetryPolicy {
            busy_patience: Duration::from_secs(10),
            ..RetryPolicy::default()
        });
        let busy = refused(ErrorClass::Busy, Some(Duration::from_secs(4)));
        let asked = Duration::from_secs(4)..=Duration::from_secs(5);
        for _ in 0..3 {
            let decision = attempts.after(&busy, 0, seen(0));
            assert!(
                matches!(decision, Decision::Again(wait) if asked.contains(&wait)),
                "{decision:?}"
            );
        }
        assert_eq!(attempts.after(&busy, 0, seen(0)), Decision::GiveUp);
    }

    #[test]
    fn a_host_that_stops_is_waited_for_as_a_busy_one_and_has_not_failed() {
        let mut attempts = attempts(RetryPolicy {
            attempts: 1,
            ..RetryPolicy::default()
        });
        let stopping = refused(ErrorClass::Stopping, Some(Duration::from_secs(1)));
        let mut waited = Duration::ZERO;
        while let Decision::Again(wait) = attempts.after(&stopping, 0, seen(0)) {
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
                attempts(RetryPolicy::default()).after(&refused(class, None), 0, seen(1)),
                Decision::GiveUp
            );
        }
        let host = refused(ErrorClass::Host, None);
        assert!(matches!(
            attempts(RetryPolicy::default()).after(&host, 0, seen(1)),
            Decision::Again(_)
        ));
    }
}
