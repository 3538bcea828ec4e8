//! Consequences of finished engine batches and preparations for the device, the callers and the quarantine.

use super::batch::{RunEnd, RunError};
use super::job::Outcome;
use super::lane::Stop;
use super::order::{LossCause, Order, OrderResult};
use super::quarantine::Quarantined;
use super::run::describe;
use super::state::{LanesState, Outcomes, Phase, never_fits, refusal, shutting_down};
use crate::InterruptCause;
use frostline_batching::device::{BatchEnd, MemoryUsage, PartOutcome, Verdict};
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::sync::Arc;
use std::time::Instant;

/// Cause of the end of an engine batch or a preparation. It determines the consequences for the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndCause {
    /// The work ended without a request, successfully or with an error.
    Finished,
    /// The work was asked to stop and did not block other tenants.
    Stopped,
    /// Another tenant waited longer than `hold_up`, or the process was ended while another tenant waited.
    HeldUp,
    /// The process was ended because a batch beyond its deadline did not stop.
    Stuck,
    Crashed,
    /// The process aborted, maybe for lack of memory.
    Aborted,
    /// An external signal ended the process.
    Killed,
}

/// Consequence for the tenant of ended work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    None,
    /// A lane is counted, and the tenant's pause grows.
    Lane,
    /// Like [`Blame::Lane`], and the model is quarantined if this repeats.
    Model,
}

impl EndCause {
    /// Determines the cause from the request to stop, the cause of a lost process, and whether memory may
    /// have been too small.
    fn classify(stop: Option<&Stop>, lost: Option<LossCause>, may_lack: bool) -> Self {
        let given_up = stop.is_some_and(|stop| stop.given_up);
        match (stop.map(|stop| &stop.cause), lost) {
            (Some(InterruptCause::Shutdown), _) => Self::Stopped,
            (_, Some(LossCause::Other)) => Self::Killed,
            (_, Some(LossCause::Itself)) if may_lack => Self::Aborted,
            (_, Some(_)) if !given_up => Self::Crashed,
            (Some(InterruptCause::HeldUp { .. }), _) => Self::HeldUp,
            (Some(InterruptCause::Cancelled), Some(_)) if stop.is_some_and(|stop| stop.contended) => {
                Self::HeldUp
            }
            (Some(InterruptCause::Deadline { .. } | InterruptCause::OpenDeadline { .. }), Some(_)) => {
                Self::Stuck
            }
            (Some(_), _) => Self::Stopped,
            (None, _) => Self::Finished,
        }
    }

    fn blame(self) -> Blame {
        match self {
            Self::Finished | Self::Stopped | Self::Killed => Blame::None,
            Self::HeldUp | Self::Aborted => Blame::Lane,
            Self::Stuck | Self::Crashed => Blame::Model,
        }
    }
}

/// Result for the device, with the errors of all rows or individual parts.
struct Account {
    end: BatchEnd,
    error: Option<OpError>,
    of_parts: Vec<Option<OpError>>,
}

impl Account {
    fn new(end: BatchEnd, error: Option<OpError>) -> Self {
        Self {
            end,
            error,
            of_parts: Vec::new(),
        }
    }
}

impl LanesState {
    /// Records that lane `index` finished its task. Returns the outcomes for callers.
    pub(super) fn finish(&mut self, index: usize, ended: OrderResult, now: Instant) -> Outcomes {
        let lane = self.lanes.get_mut(index);
        let Some((lane, running)) = lane.and_then(|lane| lane.running.take().map(|running| (lane, running)))
        else {
            return Outcomes::new();
        };
        lane.busy += now.saturating_duration_since(running.since);
        let order = running.order;
        let lost = ended.loss().map(|loss| loss.by);
        let how = ended.loss().map(|loss| loss.how.clone()).unwrap_or_default();
        let may_lack = self.memory.is_some() && self.device.may_lack(index);
        let cause = EndCause::classify(running.stop.as_ref(), lost, may_lack);
        let account = match ended {
            OrderResult::Ran(run) => self.ran(index, &order, run),
            OrderResult::OutOfBudget => Account::new(BatchEnd::OutOfBudget, None),
            OrderResult::Lost(_) => self.lost(index, &order, cause, &how),
        };
        // Submissions of several tenants are not joined. A model is only blamed if a submission ran alone;
        // otherwise, the submissions are retried separately.
        let tenant = order
            .tenant()
            .filter(|_| cause.blame() != Blame::Model || !order.is_joined());
        let put_away = tenant.and_then(|tenant| self.blame(cause, &tenant, &order.stage, &how, now));
        let error = put_away
            .as_ref()
            .map(|case| refusal(&order.stage, case))
            .or(account.error);
        let mut told: Outcomes = Outcomes::new();
        for (part, error) in order.parts.iter().zip(account.of_parts) {
            told.extend(error.and_then(|error| self.fail(part.id, now, |_| error)));
        }
        for verdict in self.device.ended(self.time(now), index, account.end) {
            told.extend(self.settle(&verdict, error.as_ref(), now));
        }
        if let Some(tenant) = order.tenant().filter(|_| cause.blame() != Blame::None) {
            told.extend(self.refuse_put_away(&tenant, &order.stage, now));
        }
        if self.phase == Phase::Ended {
            told.extend(self.end(now));
        }
        told
    }

    /// Records that the preparation `slot` ended, for any reason.
    pub(super) fn finish_preparation(&mut self, slot: usize, now: Instant) -> Outcomes {
        let Some(ended) = self.preparations.end(slot) else {
            return Outcomes::new();
        };
        let interrupted = ended.interrupt.cause();
        let ready = interrupted != Some(InterruptCause::Cancelled);
        self.device.prepared(self.time(now), slot, ready);
        // The time for which the submissions wait for a lane begins now.
        for entry in self.entries.values_mut() {
            if entry.job.stage == ended.stage {
                entry.until = now + self.config.queue_deadline;
            }
        }
        let cause = match interrupted {
            Some(InterruptCause::HeldUp { .. }) => EndCause::HeldUp,
            Some(_) => EndCause::Stopped,
            None => EndCause::Finished,
        };
        self.blame(cause, &ended.tenant, &ended.stage, "", now);
        self.refuse_put_away(&ended.tenant, &ended.stage, now)
    }

    /// Records the blame for work on a stage, with a description of the end. Returns the quarantine of the model,
    /// if any.
    fn blame(
        &mut self,
        cause: EndCause,
        tenant: &str,
        stage: &Stage,
        how: &str,
        now: Instant,
    ) -> Option<Quarantined> {
        self.counts.held_up += u64::from(cause == EndCause::HeldUp);
        match cause.blame() {
            Blame::None => return None,
            Blame::Lane => {
                self.quarantine.count_loss(now, tenant);
                return None;
            }
            Blame::Model => self.quarantine.record_crash(now, tenant, &stage.model, how),
        }
        let put_away = self.quarantine.check(now, tenant, &stage.model);
        self.counts.quarantines += u64::from(put_away.is_some());
        put_away
    }

    /// Records that lane `index` does not have a process. Unfinished rows return to the queue.
    pub(super) fn absent(&mut self, index: usize, now: Instant) -> Outcomes {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.task = None;
            lane.process = None;
        }
        let told = self.finish(index, OrderResult::OutOfBudget, now);
        self.device.ended(self.time(now), index, BatchEnd::Killed);
        told
    }

    /// Evaluates a batch after which the lane still works.
    fn ran(&mut self, index: usize, order: &Order, run: RunEnd<Vec<Option<OpError>>>) -> Account {
        let before = self.lanes.get(index).map_or(0, |lane| lane.held);
        let held = run.memory.map(|memory| memory.held);
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.held = held.unwrap_or(before);
        }
        let mut base = before;
        if let Some(opened) = run.opened {
            let peak = opened.taken.map(|taken| before.saturating_add(taken));
            // On a device, the memory of the batch is still held as well, so the size of the session is the
            // peak while it was opened.
            let held = if self.config.device_memory.is_some() {
                peak
            } else {
                held
            };
            base = held.unwrap_or(before);
            self.counts.sessions_opened += 1;
            self.device
                .opened(index, opened.time, MemoryUsage { peak, held, spare: 0 });
            if !opened.prepared {
                self.device.opened_unprepared(index);
            }
        }
        let peak = run
            .memory
            .and_then(|memory| Some(base.saturating_add(memory.taken?)));
        let spare = run.memory.map_or(0, |memory| memory.spare);
        match run.outcome {
            Ok(of_parts) => {
                self.counts.runs += 1;
                self.counts.rows += order.parts.iter().map(|part| part.rows.len() as u64).sum::<u64>();
                self.counts.runs_joined += u64::from(order.is_joined());
                let time = run.time;
                let taken = MemoryUsage { peak, held, spare };
                Account {
                    end: BatchEnd::Done { time, taken },
                    error: None,
                    of_parts,
                }
            }
            // Memory is not bounded here, so waiting for memory would not help.
            Err(RunError::OutOfMemory(error)) if self.memory.is_none() && order.is_indivisible() => {
                Account::new(BatchEnd::Failed, Some(error))
            }
            Err(RunError::OutOfMemory(error)) => {
                self.counts.out_of_memory += 1;
                let stage = describe(&order.stage);
                tracing::debug!(lane = index, stage, rows = order.rows, reserved = order.bytes, %error, "out of memory; retrying with fewer rows");
                Account::new(BatchEnd::OutOfMemory { held }, Some(error))
            }
            Err(RunError::Failed(error)) => {
                let wanted = order.parts.iter().any(|part| self.entries.contains_key(&part.id));
                let end = if wanted {
                    BatchEnd::Failed
                } else {
                    BatchEnd::Cancelled
                };
                Account::new(end, Some(error))
            }
        }
    }

    /// Evaluates a batch that ended with the lane's process.
    fn lost(&mut self, index: usize, order: &Order, cause: EndCause, how: &str) -> Account {
        let stage = describe(&order.stage);
        let end = match cause {
            EndCause::Killed => BatchEnd::Killed,
            EndCause::Aborted => BatchEnd::Aborted,
            _ => BatchEnd::Lost,
        };
        self.counts.out_of_memory += u64::from(end == BatchEnd::Aborted);
        if cause != EndCause::Stopped {
            self.counts.crashes += 1;
            let tenant = order.parts.first().map(|part| &*part.job.customer.tenant);
            tracing::error!(lane = index, tenant, stage, how, ?cause, "lane process lost");
        }
        let again = format!("cannot run {stage}: lane processes crashed repeatedly ({how}); retry");
        Account::new(end, Some(OpError::from_host(OpErrorCode::RuntimeError, again)))
    }

    fn settle(
        &mut self,
        verdict: &Verdict,
        error: Option<&OpError>,
        now: Instant,
    ) -> Option<(super::job::Reply, Outcome)> {
        let id = verdict.work;
        match verdict.outcome {
            PartOutcome::Done { last: true } => {
                let entry = self.entries.remove(&id)?;
                self.counts.jobs_done += 1;
                self.counts.samples_done += entry.job.rows() as u64;
                let output = entry.job.take_output();
                Some((
                    entry.reply,
                    output.ok_or_else(|| OpError::runtime("the batch did not produce an output")),
                ))
            }
            PartOutcome::Done { last: false } | PartOutcome::Again => {
                let entry = self.entries.get_mut(&id)?;
                entry.until = now + self.config.queue_deadline;
                None
            }
            PartOutcome::Failed => {
                let error = error.cloned();
                self.fail(id, now, |_| error.unwrap_or_else(shutting_down))
            }
            PartOutcome::Refused { needs, most } => {
                let key = self.config.budget_key();
                self.fail(id, now, |job| never_fits(job, needs, most, key))
            }
            PartOutcome::Dropped => None,
        }
    }

    /// Refuses the tenant's waiting submissions with a quarantined model, or all of them if the tenant is
    /// paused.
    fn refuse_put_away(&mut self, tenant: &Arc<str>, stage: &Stage, now: Instant) -> Outcomes {
        let put_away = self.quarantine.check(now, tenant, &stage.model).is_some();
        let paused = self.quarantine.pause(now, tenant).is_some();
        let same = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.job.customer.tenant == *tenant)
            .filter(|(_, entry)| paused || put_away && entry.job.stage.model == stage.model);
        let same: Vec<(u64, Stage)> = same.map(|(id, entry)| (*id, entry.job.stage.clone())).collect();
        same.into_iter()
            .filter_map(|(id, stage)| {
                let refused = self.refused(now, tenant, &stage)?;
                self.fail(id, now, |_| refused)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(5);

    fn stop(cause: InterruptCause, given_up: bool, contended: bool) -> Stop {
        Stop {
            cause,
            at: Instant::now(),
            given_up,
            contended,
        }
    }

    #[test]
    fn only_work_that_harmed_others_or_a_lane_is_blamed() {
        let cancelled = |given_up, contended| stop(InterruptCause::Cancelled, given_up, contended);
        let held_up = |given_up| stop(InterruptCause::HeldUp { limit: LIMIT }, given_up, given_up);
        let late = |given_up| stop(InterruptCause::Deadline { limit: LIMIT }, given_up, false);
        let ended = Some(LossCause::Run);
        let cases = [
            (None, None, Blame::None),
            (Some(cancelled(false, false)), None, Blame::None),
            (Some(cancelled(true, true)), None, Blame::None),
            (Some(cancelled(true, false)), ended, Blame::None),
            (Some(cancelled(true, true)), ended, Blame::Lane),
            (Some(held_up(false)), None, Blame::Lane),
            (Some(held_up(true)), ended, Blame::Lane),
            (Some(late(false)), None, Blame::None),
            (Some(late(true)), ended, Blame::Model),
            (
                Some(stop(InterruptCause::Shutdown, true, false)),
                ended,
                Blame::None,
            ),
            (None, ended, Blame::Model),
            (Some(cancelled(false, false)), ended, Blame::Model),
            (None, Some(LossCause::Other), Blame::None),
            (None, Some(LossCause::Itself), Blame::Model),
        ];
        for (stop, lost, blame) in cases {
            let cause = EndCause::classify(stop.as_ref(), lost, false);
            assert_eq!(cause.blame(), blame, "{cause:?}");
        }
        let aborted = EndCause::classify(None, Some(LossCause::Itself), true);
        assert_eq!(aborted.blame(), Blame::Lane);
    }
}
