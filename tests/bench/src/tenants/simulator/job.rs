//! Progress of a simulated job.

use super::scenario::Job;

/// A job with overlapping extraction and training.
#[derive(Debug)]
pub(super) struct Progress {
    images: u64,
    training_batch: u64,
    request: u64,
    /// Number of requested images.
    asked: u64,
    /// Requests in flight.
    pending: usize,
    /// Number of extracted batches, and of trained ones.
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

    /// Samples of each request to send now. Requests the next batch, unless requests are in flight or two
    /// batches are ready.
    pub(super) fn next_requests(&mut self) -> Vec<usize> {
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

    /// Records a served request.
    pub(super) fn served(&mut self) {
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.extracted += 1;
        }
    }

    /// Starts a training step if possible. Returns true if it started.
    pub(super) fn train(&mut self) -> bool {
        let begins = !self.failed && !self.training && self.extracted > self.trained;
        self.training |= begins;
        begins
    }

    /// Records the end of a training step.
    pub(super) fn trained(&mut self) {
        self.training = false;
        self.trained += 1;
    }

    pub(super) fn fail(&mut self) {
        self.failed = true;
    }

    /// Returns true if all images were used for training.
    pub(super) fn is_done(&self) -> bool {
        !self.failed && self.trained >= self.images.div_ceil(self.training_batch)
    }

    pub(super) fn is_over(&self) -> bool {
        self.failed || self.is_done()
    }
}
