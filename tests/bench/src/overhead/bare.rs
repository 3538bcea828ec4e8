//! A minimal loop around ONNX Runtime. Threads alternate between decoding and running a batch.

use anyhow::{Result, bail};
use frostline_engine::{Session, SessionOptions};
use frostline_tensor::{PixelFormat, PixelSpec, SampleLoader, SampleRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::runtime::Handle;

/// Photos of the loop, and the conversion to pixels.
pub(super) struct Batches {
    pub(super) samples: Vec<SampleRef>,
    pub(super) spec: PixelSpec,
    pub(super) loader: Arc<dyn SampleLoader>,
}

/// State of the loop.
pub(crate) struct Bare {
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

    /// Images per second with batches of `rows` rows. Must be called within a runtime, but not on one of the
    /// runtime's threads.
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
                Err(_) => bail!("bare loop: thread panicked"),
            });
            ended.collect::<Result<Vec<()>>>()
        })?;
        Ok(batches.samples.len() as f64 / started.elapsed().as_secs_f64())
    }
}

impl Batches {
    /// Runs batches until all are done.
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
