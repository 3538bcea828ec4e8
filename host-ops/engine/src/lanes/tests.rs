//! Tests of deadlines and blame, without lanes and clocks.

use super::batch::{RunEnd, RunError};
use super::job::RowJob;
use super::order::{Loss, LossCause, OrderResult};
use super::overdue::CONTENDED_GRACE;
use super::run::Submitter;
use super::state::LanesState;
use super::{ChildLanes, LanesConfig, LanesPlace};
use crate::InterruptCause;
use frostline_batching::device::MemoryEstimate;
use frostline_tensor::{OpError, Precision, Stage, Tensor};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const SECOND: Duration = Duration::from_secs(1);

/// State of a single lane at a time that the test controls.
struct Rig {
    config: LanesConfig,
    state: LanesState,
    now: Instant,
}

impl Rig {
    fn new(preparations: usize) -> Self {
        let config = LanesConfig {
            lanes: 1,
            place: LanesPlace::Child(ChildLanes::new("none", ["lanes"])),
            ..LanesConfig::default()
        };
        let now = Instant::now();
        let mut state = LanesState::new(&config, preparations, now);
        state.started(0, Some(1), 0);
        Self { config, state, now }
    }

    /// Submits a row of `model` and starts what can start. Returns the submission's id.
    fn submit(&mut self, tenant: &str, model: &str) -> u64 {
        let stage = Stage {
            model: model.to_owned(),
            from: "x".to_owned(),
            to: "y".to_owned(),
            pixels: None,
            precision: Precision::Full,
        };
        let batch = Tensor::f32([1, 4], vec![0.0; 4]).unwrap();
        let job = RowJob::new(Submitter::new(tenant), stage, batch, None).unwrap();
        let until = self.now + self.config.queue_deadline;
        let guess = MemoryEstimate::default();
        let id = self.state.push(job, oneshot::channel().0, guess, self.now, until);
        self.decide();
        id.unwrap()
    }

    fn decide(&mut self) {
        self.state.decide(self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.state.take_overdue(self.now);
    }

    /// Ends the batch on the lane, whose process was lost if the host gave it up.
    fn end(&mut self) {
        let running = self.state.lanes[0].running.as_ref().unwrap();
        let ended = match running.order.interrupt.is_given_up() {
            true => OrderResult::Lost(Loss {
                how: "given up".to_owned(),
                by: LossCause::Run,
            }),
            false => OrderResult::Ran(RunEnd {
                outcome: Err(RunError::Failed(OpError::runtime("stopped"))),
                memory: None,
                opened: None,
                time: Duration::ZERO,
            }),
        };
        self.state.finish(0, ended, self.now);
        self.state.started(0, Some(1), 0);
        self.decide();
    }

    fn cause(&self) -> Option<InterruptCause> {
        self.state.lanes[0].running.as_ref()?.order.interrupt.cause()
    }

    fn is_given_up(&self) -> bool {
        let running = self.state.lanes[0].running.as_ref().unwrap();
        running.order.interrupt.is_given_up()
    }

    fn is_paused(&mut self, tenant: &str) -> bool {
        self.state.quarantine.pause(self.now, tenant).is_some()
    }

    /// Device time of a tenant in seconds.
    fn used(&self, tenant: &str) -> u64 {
        let mut used = self.state.device.used();
        used.find(|(name, _)| *name == tenant)
            .map_or(0, |(_, time)| time.as_secs())
    }
}

#[test]
fn batches_of_clients_that_leave_are_ended_after_a_second_and_counted() {
    let mut rig = Rig::new(0);
    for round in 0..2 {
        let left = rig.submit("hostile", &format!("slow-{round}"));
        let neighbor = rig.submit("neighbor", "short");
        rig.pass(4 * SECOND);
        rig.state.cancel(left, rig.now);
        assert!(!rig.is_given_up() && !rig.is_paused("hostile"));
        rig.pass(CONTENDED_GRACE);
        assert!(rig.is_given_up());
        rig.end();
        rig.state.cancel(neighbor, rig.now);
        rig.end();
    }
    assert!(rig.is_paused("hostile") && !rig.is_paused("neighbor"));
    assert_eq!((rig.used("hostile"), rig.used("neighbor")), (10, 0));
    assert_eq!(rig.state.counts.held_up, 2);
}

#[test]
fn clients_that_leave_batches_that_stop_or_that_nobody_waits_for_are_not_blamed() {
    let mut rig = Rig::new(0);
    for round in 0..8 {
        let left = rig.submit("honest", "network");
        let neighbor = rig.submit("neighbor", "short");
        rig.state.cancel(left, rig.now);
        rig.pass(SECOND / 2);
        rig.end();
        rig.state.cancel(neighbor, rig.now);
        rig.end();
        let left = rig.submit("honest", &format!("slow-{round}"));
        rig.submit("honest", "another");
        rig.state.cancel(left, rig.now);
        rig.pass(9 * SECOND);
        assert!(!rig.is_given_up(), "no other tenant waits");
        rig.pass(SECOND);
        assert!(rig.is_given_up(), "the lane is still occupied");
        rig.end();
        assert_eq!(rig.cause(), None);
        rig.end();
    }
    assert!(!rig.is_paused("honest"));
    assert_eq!((rig.state.counts.crashes, rig.state.counts.held_up), (0, 0));
}

#[test]
fn a_session_that_opens_slowly_is_held_up_and_counted() {
    let mut rig = Rig::new(0);
    for round in 0..2 {
        rig.submit("hostile", &format!("slow-{round}"));
        let neighbor = rig.submit("neighbor", "short");
        rig.pass(rig.config.hold_up);
        assert!(matches!(rig.cause(), Some(InterruptCause::HeldUp { .. })));
        rig.pass(CONTENDED_GRACE);
        rig.end();
        rig.state.cancel(neighbor, rig.now);
        rig.end();
    }
    assert!(rig.is_paused("hostile"));
    assert_eq!(rig.used("hostile"), 12);
}

#[test]
fn a_preparation_that_others_wait_for_is_ended_charged_and_counted() {
    let mut rig = Rig::new(1);
    for round in 0..2 {
        rig.submit("hostile", &format!("slow-{round}"));
        let interrupt = rig.state.preparations.take_task(0).unwrap().interrupt;
        let neighbor = rig.submit("neighbor", &format!("new-{round}"));
        rig.pass(rig.config.hold_up - SECOND);
        assert_eq!(interrupt.cause(), None);
        rig.pass(SECOND);
        assert!(interrupt.is_given_up());
        rig.state.finish_preparation(0, rig.now);
        rig.decide();
        assert!(
            rig.state.preparations.take_task(0).is_some(),
            "the neighbor's network is next"
        );
        rig.state.cancel(neighbor, rig.now);
        rig.state.finish_preparation(0, rig.now);
        if rig.cause().is_none() && round == 0 {
            rig.end();
        }
    }
    assert!(rig.is_paused("hostile") && !rig.is_paused("neighbor"));
    assert_eq!(rig.used("hostile"), 10);
}

#[test]
fn a_preparation_alone_has_the_time_to_open_a_session_and_is_not_blamed() {
    let mut rig = Rig::new(1);
    rig.submit("t", "slow");
    let interrupt = rig.state.preparations.take_task(0).unwrap().interrupt;
    rig.pass(rig.config.open_deadline - SECOND);
    assert_eq!(interrupt.cause(), None);
    rig.pass(SECOND);
    assert!(matches!(
        interrupt.cause(),
        Some(InterruptCause::OpenDeadline { .. })
    ));
    rig.state.finish_preparation(0, rig.now);
    rig.decide();
    assert!(
        rig.state.lanes[0].running.is_some(),
        "the stage runs from its bytes"
    );
    assert!(!rig.is_paused("t"));
    assert_eq!(rig.used("t"), 60);
}
