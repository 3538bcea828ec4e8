//! Hedged requests for stalled reads.
//!
//! A slow server, lost packet or busy disk can delay a batch of thousands of reads. Jeffrey Dean and Luiz
//! André Barroso, The Tail at Scale, Communications of the ACM 56 (2), 2013: repeat a request that is late,
//! use the first answer and drop the other. With a sufficient delay, this adds only a few percent of
//! requests. The delay is counted from the last byte received, so a large object that keeps arriving is never
//! requested twice.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Minimum silence before a read is hedged. A store in the same region needs a tenth of this for the first
/// byte. Compared with the request timeout of 30 s, the delay of the batch is small.
const MIN_HEDGE_DELAY: Duration = Duration::from_millis(500);

/// Multiple of the usual latency before hedging. The slowest read in a hundred commonly needs five times the
/// median.
const HEDGE_DELAY_FACTOR: u32 = 8;

/// Number of recent latencies for computing the median. The number is large enough to ignore a few stalls.
const LATENCY_SAMPLES: usize = 64;

/// Reads per hedged request. Limits the extra load to 6 %, because a slow store may be busy.
const READS_PER_HEDGE: u32 = 16;

/// Maximum number of saved hedged requests, for simultaneous stalls.
const SAVED: u32 = 8;

/// Signals the arrival of bytes.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Notify);

impl Pulse {
    /// Reports that the store answered or sent more bytes.
    pub(crate) fn beat(&self) {
        self.0.notify_one();
    }
}

/// Decides when to send a second request, based on recent latencies.
#[derive(Debug)]
pub(crate) struct Hedge {
    state: Mutex<HedgeState>,
}

impl Hedge {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(HedgeState {
                latencies: VecDeque::with_capacity(LATENCY_SAMPLES),
                credit: SAVED * READS_PER_HEDGE,
            }),
        }
    }

    /// Runs `ask`, and a second time if the first request stalls. Once both are in flight, an error for which
    /// `is_final` returns true (an answer about the object, not a connection failure) ends the read. After
    /// any other error, the result is that of the other request.
    pub(crate) async fn read<'a, T, E, F>(
        &self,
        ask: impl Fn(Arc<Pulse>) -> F + 'a,
        is_final: impl Fn(&E) -> bool,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + 'a,
    {
        let pulse: Arc<Pulse> = Arc::default();
        let mut first = pin!(ask(pulse.clone()));
        let limit = self.state.lock().start_read();
        let begun = Instant::now();
        let mut answered = false;
        let mut counted = |since: Instant| {
            if !mem::replace(&mut answered, true) {
                self.state.lock().answered(since.elapsed());
            }
        };
        loop {
            tokio::select! {
                biased;
                done = &mut first => {
                    counted(begun);
                    return done;
                }
                () = pulse.0.notified() => counted(begun),
                () = sleep(limit) => break,
            }
        }
        if !self.state.lock().spend() {
            let done = first.await;
            counted(begun);
            return done;
        }
        let asked_again = Instant::now();
        let mut second = pin!(ask(Arc::default()));
        tokio::select! {
            done = &mut first => match done {
                Err(error) if !is_final(&error) => second.await,
                done => {
                    counted(begun);
                    done
                }
            },
            done = &mut second => match done {
                Err(error) if !is_final(&error) => first.await,
                done => {
                    counted(asked_again);
                    done
                }
            },
        }
    }
}

#[derive(Debug)]
struct HedgeState {
    /// Latencies of first answers, oldest first.
    latencies: VecDeque<Duration>,
    /// Credit in reads. A hedged request costs [`READS_PER_HEDGE`].
    credit: u32,
}

impl HedgeState {
    /// Adds the credit for a read and returns the maximum silence.
    fn start_read(&mut self) -> Duration {
        self.credit = (self.credit + 1).min(SAVED * READS_PER_HEDGE);
        let mut sorted: Vec<Duration> = self.latencies.iter().copied().collect();
        sorted.sort_unstable();
        let usual = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        (usual * HEDGE_DELAY_FACTOR).max(MIN_HEDGE_DELAY)
    }

    fn answered(&mut self, after: Duration) {
        if self.latencies.len() == LATENCY_SAMPLES {
            self.latencies.pop_front();
        }
        self.latencies.push_back(after);
    }

    /// Spends credit for a second request. Returns false if the credit is insufficient.
    fn spend(&mut self) -> bool {
        let left = self.credit.checked_sub(READS_PER_HEDGE);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// Reads through `hedge`, with `request(n)` as the n-th request. Returns the answer and the number of
    /// requests.
    async fn asked<F>(
        hedge: &Hedge,
        request: impl Fn(usize, Arc<Pulse>) -> F,
    ) -> (Result<usize, &'static str>, usize)
    where
        F: Future<Output = Result<usize, &'static str>>,
    {
        let requests = AtomicUsize::new(0);
        let ask = |pulse| request(requests.fetch_add(1, Ordering::Relaxed), pulse);
        let answer = hedge.read(ask, |error| *error == "final").await;
        (answer, requests.load(Ordering::Relaxed))
    }

    async fn after(time: Duration, answer: Result<usize, &'static str>) -> Result<usize, &'static str> {
        sleep(time).await;
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_read_is_asked_for_again_and_the_first_answer_wins() {
        let hedge = Hedge::new();
        let begun = Instant::now();
        let answer = asked(&hedge, |number, _| {
            after(
                if number == 0 {
                    FOR_EVER
                } else {
                    Duration::from_millis(20)
                },
                Ok(number),
            )
        });
        assert_eq!(answer.await, (Ok(1), 2));
        assert!(begun.elapsed() < MIN_HEDGE_DELAY * 2);
        let slow_second = asked(&hedge, |number, _| {
            after(
                if number == 0 {
                    MIN_HEDGE_DELAY * 2
                } else {
                    FOR_EVER
                },
                Ok(number),
            )
        });
        assert_eq!(slow_second.await, (Ok(0), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_flows_is_asked_for_once_however_long_it_takes() {
        let hedge = Hedge::new();
        let answer = asked(&hedge, |number, pulse| async move {
            for _ in 0..100 {
                sleep(MIN_HEDGE_DELAY / 2).await;
                pulse.beat();
            }
            Ok(number)
        });
        assert_eq!(answer.await, (Ok(0), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_on_the_way_leaves_it_to_the_other_request() {
        let hedge = Hedge::new();
        let answer = asked(&hedge, |number, _| match number {
            0 => after(MIN_HEDGE_DELAY * 3, Ok(0)),
            _ => after(Duration::from_millis(10), Err("reset")),
        });
        assert_eq!(answer.await, (Ok(0), 2));
        let told = asked(&hedge, |number, _| match number {
            0 => after(FOR_EVER, Ok(0)),
            _ => after(Duration::from_millis(10), Err("final")),
        });
        assert_eq!(told.await, (Err("final"), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_always_slow_is_hardly_ever_asked_twice() {
        let hedge = Hedge::new();
        let mut requests = 0;
        for _ in 0..400 {
            requests += asked(&hedge, |_, _| after(MIN_HEDGE_DELAY * 2, Ok(0))).await.1;
        }
        assert!(requests < 410, "{requests} requests for 400 reads");
    }

    #[test]
    fn one_read_in_sixteen_pays_for_a_second_request() {
        let mut state = HedgeState {
            latencies: VecDeque::new(),
            credit: SAVED * READS_PER_HEDGE,
        };
        let hedged = (0..1600).filter(|_| {
            state.start_read();
            state.spend()
        });
        // One in sixteen, plus the initial credit.
        let hedged = hedged.count();
        assert!((100..=100 + SAVED as usize).contains(&hedged), "{hedged}");
    }

    #[test]
    fn the_hedge_delay_grows_with_the_median_latency() {
        let mut state = HedgeState {
            latencies: VecDeque::new(),
            credit: 0,
        };
        assert_eq!(state.start_read(), MIN_HEDGE_DELAY);
        for _ in 0..LATENCY_SAMPLES {
            state.answered(Duration::from_millis(200));
        }
        // The median ignores a few stalls.
        for _ in 0..LATENCY_SAMPLES / 4 {
            state.answered(FOR_EVER);
        }
        assert_eq!(state.start_read(), Duration::from_millis(1600));
    }
}
