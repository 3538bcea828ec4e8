//! Jobs that run until a test interrupts them.

use crate::harness::series;
use frostline_e2e::finish;
use parking_lot::Mutex;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

/// See the module documentation.
pub(crate) struct RunningJob {
    child: Mutex<Child>,
    log: PathBuf,
    events: Arc<Mutex<Vec<Value>>>,
    reader: Option<JoinHandle<()>>,
}

impl RunningJob {
    /// Starts `frostline train`, which must have enough epochs. Standard error is written to `log`.
    pub(crate) fn start(mut train: Command, log: PathBuf) -> Self {
        let mut child = train
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let events: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&events);
        let reader = std::thread::spawn(move || {
            for line in lines {
                kept.lock().push(serde_json::from_str(&line.unwrap()).unwrap());
            }
        });
        Self {
            child: Mutex::new(child),
            log,
            events,
            reader: Some(reader),
        }
    }

    /// Returns the number of finished steps.
    ///
    /// # Panics
    /// Panics if the job has ended.
    pub(crate) fn steps(&self) -> usize {
        let ended = self.child.lock().try_wait().unwrap();
        assert!(ended.is_none(), "the job ended: {}", self.errors());
        let events = self.events.lock();
        events.iter().filter(|event| event["event"] == "step").count()
    }

    /// Returns the number of rows received in finished epochs.
    pub(crate) fn rows(&self) -> u64 {
        rows(&self.events.lock())
    }

    /// Interrupts the job and returns its events.
    fn interrupt(mut self) -> Vec<Value> {
        let child = self.child.get_mut();
        finish(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
        let code = child.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        let events = std::mem::take(&mut *self.events.lock());
        assert_eq!(code, Some(130), "the job failed: {}", self.errors());
        events
    }

    fn errors(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Ends a job whose test failed, and prints what it reported.
impl Drop for RunningJob {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("a job reported {:?}\n{}", self.events.lock(), self.errors());
        }
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Interrupts jobs with equal data, checks that all received the same rows and skipped none, and returns their
/// events.
pub(crate) fn end_all(jobs: Vec<RunningJob>) -> Vec<Value> {
    let ended: Vec<Vec<Value>> = jobs.into_iter().map(RunningJob::interrupt).collect();
    let losses: Vec<Vec<f64>> = ended
        .iter()
        .map(|events| series(events, "step", "loss"))
        .collect();
    let common = losses.iter().map(Vec::len).min().unwrap();
    for of_job in &losses {
        assert_eq!(of_job[..common], losses[0][..common]);
    }
    let events: Vec<Value> = ended.into_iter().flatten().collect();
    let skipped = series(&events, "epoch", "skipped");
    assert!(skipped.iter().all(|count| *count == 0.0), "{skipped:?}");
    events
}

/// Returns the number of rows received in finished epochs.
pub(crate) fn rows(events: &[Value]) -> u64 {
    let epochs = events.iter().filter(|event| event["event"] == "epoch");
    epochs.map(|event| event["fetched_rows"].as_u64().unwrap()).sum()
}
