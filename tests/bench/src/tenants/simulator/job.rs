//! How far a job is.

use super::scenario::Job;

/// A job that has one batch extracted while it trains with the one before.
#[derive(Debug)]
pub(super) struct Progress {
    images: u64,
    training_batch: u64,
    request: u64,
    /// Images that were asked for.
    asked: u64,
    /// Requests on their way.
    pending: usize,
    /// Batches that were extracted, and trained with.
    extracted: u64,
    trained: u64,
    training: bool,
    failed: bool,
}

impl Progress {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            images: job.images,
            training_batch: job.training_batch,
            request: job.request,
            asked: 0,
            pending: 0,
            extracted: 0,
            trained: 0,
            training: false,
            failed: false,
        }
    }

    /// Samples of the requests to send now: those of the next batch, unless one waits already.
    pub(super) fn ask(&mut self) -> Vec<usize> {
        let ahead = self.extracted.saturating_sub(self.trained);
        if self.failed || self.pending > 0 || ahead > 1 || self.asked >= self.images {
            return Vec::new();
        }
        let mut batch = self.training_batch.min(self.images - self.asked);
        self.asked += batch;
        let mut requests = Vec::new();
        while batch > 0 {
            let samples = self.request.min(batch);
            requests.push(usize::try_from(samples).unwrap_or(usize::MAX));
            batch -= samples;
        }
        self.pending = requests.len();
        requests
    }

    /// A request was served.
    pub(super) fn served(&mut self) {
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.extracted += 1;
        }
    }

    /// Whether a training step begins now.
    pub(super) fn train(&mut self) -> bool {
        let begins = !self.failed && !self.training && self.extracted > self.trained;
        self.training |= begins;
        begins
    }

    /// A training step is over.
    pub(super) fn trained(&mut self) {
        self.training = false;
        self.trained += 1;
    }

    pub(super) fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether all of it is trained.
    pub(super) fn is_done(&self) -> bool {
        !self.failed && self.trained >= self.images.div_ceil(self.training_batch)
    }

    pub(super) fn is_over(&self) -> bool {
        self.failed || self.is_done()
    }
}
