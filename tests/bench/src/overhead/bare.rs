//! The loop that one would write around ONNX Runtime: threads that each decode a batch and run it, one after the other.

use anyhow::{Result, bail};
use frostline_engine::{Session, SessionOptions};
use frostline_tensor::{PixelFormat, PixelSpec, SampleLoader, SampleRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::runtime::Handle;

/// The photos that are run through, and how they become pixels.
pub(super) struct Batches {
    pub(super) samples: Vec<SampleRef>,
    pub(super) spec: PixelSpec,
    pub(super) loader: Arc<dyn SampleLoader>,
}

/// See the module.
pub(crate) struct Bare {
    /// One for each thread.
    sessions: Vec<Session>,
    input: String,
    batches: Batches,
}

impl Bare {
    pub(super) fn open(
        model: &[u8],
        threads: usize,
        options: &SessionOptions,
        input: String,
        batches: Batches,
    ) -> Result<Self> {
        let sessions = (0..threads).map(|_| Session::open(model, options));
        Ok(Self {
            sessions: sessions.collect::<Result<_, _>>()?,
            input,
            batches,
        })
    }

    /// Images a second in batches of so many rows, within a runtime but on none of its threads.
    pub(crate) fn rate(&mut self, rows: usize) -> Result<f64> {
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        let (input, batches, next) = (&self.input, &self.batches, &next);
        let runtime = &Handle::current();
        std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .sessions
                .iter_mut()
                .map(|session| scope.spawn(move || batches.run(session, input, rows, next, runtime)))
                .collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(_) => bail!("a thread of the bare loop panicked"),
            });
            ended.collect::<Result<Vec<()>>>()
        })?;
        Ok(batches.samples.len() as f64 / started.elapsed().as_secs_f64())
    }
}

impl Batches {
    /// Takes batch after batch until none is left.
    fn run(
        &self,
        session: &mut Session,
        input: &str,
        rows: usize,
        next: &AtomicUsize,
        runtime: &Handle,
    ) -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(samples) = self.samples.chunks(rows).nth(number) else {
                return Ok(());
            };
            let loaded = runtime.block_on(self.loader.load(samples.to_vec(), self.spec, PixelFormat::F32))?;
            session.run(&[(input, &loaded.pixels)])?;
        }
    }
}
