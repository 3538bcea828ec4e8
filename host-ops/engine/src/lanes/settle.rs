//! Consequences of a finished engine batch for the device, the callers and the quarantine.

use super::batch::{RunEnd, RunError};
use super::job::Outcome;
use super::order::{Loss, LossCause, Order, OrderResult};
use super::run::describe;
use super::state::{Outcomes, Phase, State, never_fits, refusal, shutting_down};
use crate::InterruptCause;
use frostline_batching::device::{BatchEnd, MemoryUsage, PartOutcome, Verdict};
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::time::Instant;

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

impl State {
    /// Records that lane `index` finished its task. Returns the outcomes for callers.
    pub(super) fn finish(&mut self, index: usize, ended: OrderResult, now: Instant) -> Outcomes {
        let lane = self.lanes.get_mut(index);
        let Some((lane, running)) = lane.and_then(|lane| lane.running.take().map(|running| (lane, running)))
        else {
            return Outcomes::new();
        };
        lane.busy += now.saturating_duration_since(running.since);
        let order = running.order;
        let lost = matches!(ended, OrderResult::Lost(_));
        let account = match ended {
            OrderResult::Ran(run) => self.ran(index, &order, run),
            OrderResult::OutOfBudget => Account::new(BatchEnd::OutOfBudget, None),
            OrderResult::Lost(loss) => self.lost(index, &order, &loss, now),
        };
        let mut told: Outcomes = Outcomes::new();
        for (part, error) in order.parts.iter().zip(account.of_parts) {
            told.extend(error.and_then(|error| self.fail(part.id, |_| error)));
        }
        for verdict in self.device.ended(self.time(now), index, account.end) {
            told.extend(self.settle(&verdict, account.error.as_ref(), now));
        }
        if lost {
            told.extend(self.refuse_put_away(&order, now));
        }
        if self.phase == Phase::Ended {
            told.extend(self.end());
        }
        told
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
            let held = if self.on_device { peak } else { held };
            base = held.unwrap_or(before);
            self.counts.sessions_opened += 1;
            self.device.opened(index, MemoryUsage { peak, held, spare: 0 });
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
                let (time, taken) = (run.time, MemoryUsage { peak, held, spare });
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

    /// Evaluates a batch that ended with the lane's process. A submission that ran alone is blamed, unless
    /// the batch was interrupted, the process was killed from outside, or memory may have been too small.
    fn lost(&mut self, index: usize, order: &Order, loss: &Loss, now: Instant) -> Account {
        let cause = order.interrupt.cause();
        let (how, stage) = (&loss.how, describe(&order.stage));
        let end = match loss.by {
            LossCause::Other => BatchEnd::Killed,
            LossCause::Itself if self.memory.is_some() && self.device.may_lack(index) => BatchEnd::Aborted,
            _ => BatchEnd::Lost,
        };
        self.counts.out_of_memory += u64::from(end == BatchEnd::Aborted);
        let mut put_away = None;
        // Cancellation and shutdown do not indicate a faulty model. Blocking other tenants was already
        // counted at the interrupt.
        let counted = matches!(cause, Some(InterruptCause::HeldUp { .. }));
        if !matches!(cause, Some(InterruptCause::Cancelled | InterruptCause::Shutdown)) {
            self.counts.crashes += 1;
            let tenant = order.parts.first().map(|part| &*part.job.customer.tenant);
            tracing::error!(lane = index, tenant, stage, how, "lane process lost");
            let alone = order.parts.first().filter(|_| !order.is_joined() && !counted);
            if let (BatchEnd::Aborted, Some(part)) = (end, alone) {
                self.quarantine.count_loss(now, &part.job.customer.tenant);
            }
            if let (BatchEnd::Lost, Some(part)) = (end, alone) {
                let tenant = &part.job.customer.tenant;
                self.quarantine.record_crash(now, tenant, &order.stage.model, how);
                put_away = self.quarantine.check(now, tenant, &order.stage.model);
                self.counts.quarantines += u64::from(put_away.is_some());
            }
        }
        let again = || {
            OpError::from_host(
                OpErrorCode::RuntimeError,
                format!("{stage}: the engine's process was lost repeatedly ({how}); try again"),
            )
        };
        let error = put_away.map_or_else(again, |case| refusal(&order.stage, &case));
        Account::new(end, Some(error))
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
                entry.until = now + self.queue_deadline;
                None
            }
            PartOutcome::Failed => {
                let error = error.cloned();
                self.fail(id, |_| error.unwrap_or_else(shutting_down))
            }
            PartOutcome::Refused { needs, most } => {
                let key = self.budget_key;
                self.fail(id, |job| never_fits(job, needs, most, key))
            }
            PartOutcome::Dropped => None,
        }
    }

    /// After a model was quarantined, refuses the tenant's waiting submissions with that model, or all of
    /// them if the tenant is paused.
    fn refuse_put_away(&mut self, order: &Order, now: Instant) -> Outcomes {
        let Some(part) = order.parts.first().filter(|_| !order.is_joined()) else {
            return Outcomes::new();
        };
        let (tenant, model) = (&part.job.customer.tenant, &order.stage.model);
        let put_away = self.quarantine.check(now, tenant, model).is_some();
        let paused = self.quarantine.pause(now, tenant).is_some();
        let same = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.job.customer.tenant == *tenant)
            .filter(|(_, entry)| paused || put_away && entry.job.stage.model == *model);
        let same: Vec<(u64, Stage)> = same.map(|(id, entry)| (*id, entry.job.stage.clone())).collect();
        let refuse = |(id, stage)| {
            let refused = self.refused(now, tenant, &stage)?;
            self.fail(id, |_| refused)
        };
        same.into_iter().filter_map(refuse).collect()
    }
}
