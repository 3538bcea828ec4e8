//! A second request for a read that stalls.
//!
//! One slow server, lost packet or busy disk among thousands of reads makes the whole batch late. Jeffrey Dean and Luiz André
//! Barroso, The Tail at Scale, Communications of the ACM 56 (2), 2013: send the same request again when the first is late, take
//! whichever answers first and drop the other; ask late enough and that costs a few per cent more requests. Late is counted from
//! the last byte that came, so a large object that flows is never asked for twice.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// No read is asked for twice before this. Half a second is ten times what a store in the same region takes for its first byte,
/// and so short beside the 30 s of a request that a stall costs a batch little.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(500);

/// How many times the usual time is too long. The slowest of a hundred reads commonly takes five times the median.
const PATIENCE: u32 = 8;

/// First answers the usual time is taken from: enough that a few stalled ones do not move the median.
const REMEMBERED: usize = 64;

/// Reads that pay for one second request: at most one in sixteen is asked for twice, 6 per cent more work for a store that is
/// slow because it is busy.
const READS_PER_HEDGE: u32 = 16;

/// Second requests that may be saved up, for a moment in which several reads stall together.
const SAVED: u32 = 8;

/// A read in progress tells here that bytes came.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Notify);

impl Pulse {
    /// The store answered, or went on answering.
    pub(crate) fn beat(&self) {
        self.0.notify_one();
    }
}

/// When to ask a second time, by what was usual lately.
#[derive(Debug)]
pub(crate) struct Hedge {
    state: Mutex<State>,
}

impl Hedge {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                firsts: VecDeque::with_capacity(REMEMBERED),
                credit: SAVED * READS_PER_HEDGE,
            }),
        }
    }

    /// What `ask` gives, asked a second time if the first stalls. An error that is `final` (the store's word on the object, not
    /// a failure on the way) ends the read, any other leaves it to the request that is still under way.
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
        let patience = self.state.lock().start_read();
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
                () = sleep(patience) => break,
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
struct State {
    /// Times to the first answer, oldest first.
    firsts: VecDeque<Duration>,
    /// In reads; [`READS_PER_HEDGE`] of them pay for a second request.
    credit: u32,
}

impl State {
    /// Counts a read in, and says how long it may be silent.
    fn start_read(&mut self) -> Duration {
        self.credit = (self.credit + 1).min(SAVED * READS_PER_HEDGE);
        let mut sorted: Vec<Duration> = self.firsts.iter().copied().collect();
        sorted.sort_unstable();
        let usual = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        (usual * PATIENCE).max(SHORTEST_PATIENCE)
    }

    fn answered(&mut self, after: Duration) {
        if self.firsts.len() == REMEMBERED {
            self.firsts.pop_front();
        }
        self.firsts.push_back(after);
    }

    /// Whether there is credit for a second request, which is then spent.
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

    /// Asks `hedge` for a read whose n-th request does what `request` says; gives the answer and how many requests there were.
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
        assert!(begun.elapsed() < SHORTEST_PATIENCE * 2);
        let slow_second = asked(&hedge, |number, _| {
            after(
                if number == 0 {
                    SHORTEST_PATIENCE * 2
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
                sleep(SHORTEST_PATIENCE / 2).await;
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
            0 => after(SHORTEST_PATIENCE * 3, Ok(0)),
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
            requests += asked(&hedge, |_, _| after(SHORTEST_PATIENCE * 2, Ok(0))).await.1;
        }
        assert!(requests < 410, "{requests} requests for 400 reads");
    }

    #[test]
    fn one_read_in_sixteen_pays_for_a_second_request() {
        let mut state = State {
            firsts: VecDeque::new(),
            credit: SAVED * READS_PER_HEDGE,
        };
        let hedged = (0..1600).filter(|_| {
            state.start_read();
            state.spend()
        });
        // One in sixteen, and what was saved up before.
        let hedged = hedged.count();
        assert!((100..=100 + SAVED as usize).contains(&hedged), "{hedged}");
    }

    #[test]
    fn patience_grows_with_what_is_usual() {
        let mut state = State {
            firsts: VecDeque::new(),
            credit: 0,
        };
        assert_eq!(state.start_read(), SHORTEST_PATIENCE);
        for _ in 0..REMEMBERED {
            state.answered(Duration::from_millis(200));
        }
        // A few stalls among many do not count.
        for _ in 0..REMEMBERED / 4 {
            state.answered(FOR_EVER);
        }
        assert_eq!(state.start_read(), Duration::from_millis(1600));
    }
}
