//! Memory measurement of executions on the CPU or a device.

use super::super::batch::RunMemory;
use super::memory::{self, Floor, Meter};
use super::message::MemoryReport;
use crate::gauge::Gauge;
use frostline_walls::ProcessUsage;
use std::sync::Arc;

pub(super) enum RunMeter {
    Process(Meter),
    Device(DeviceMeter),
}

/// Measures an execution by the driver's values at the start and the end. ONNX Runtime's arena retains the
/// memory of an execution, so it is still visible afterwards.
pub(super) struct DeviceMeter {
    gauge: Arc<dyn Gauge>,
    begun: u64,
    opened: Option<u64>,
}

impl RunMeter {
    /// Starts a measurement when a batch of this size is in memory.
    pub(super) fn new(gauge: Option<&Arc<dyn Gauge>>, batch: usize) -> Self {
        match gauge {
            None => Self::Process(Meter::new(batch)),
            Some(gauge) => Self::Device(DeviceMeter {
                gauge: Arc::clone(gauge),
                // Until the first session is opened, the process uses no device memory and the driver does
                // not list the process.
                begun: gauge.used().unwrap_or(0),
                opened: None,
            }),
        }
    }

    /// Like [`Meter::opening`].
    pub(super) fn opening(&self, is_mapped: bool) -> Option<u64> {
        match self {
            Self::Process(meter) => meter.opening(is_mapped),
            Self::Device(meter) => Some(meter.gauge.used()?.saturating_sub(meter.begun)),
        }
    }

    /// Like [`Meter::opened`]. Returns `None` for a device, because device memory has no limit to renew.
    pub(super) fn opened(&mut self, floor: &mut Floor, kept: usize) -> Option<ProcessUsage> {
        match self {
            Self::Process(meter) => meter.opened(floor, kept),
            Self::Device(meter) => {
                meter.opened = meter.gauge.used();
                None
            }
        }
    }

    /// Returns the result after the execution.
    pub(super) fn end(self) -> MemoryReport {
        match self {
            Self::Process(meter) => MemoryReport {
                run: meter.end(),
                host: None,
            },
            Self::Device(meter) => MemoryReport {
                run: meter.gauge.used().map(|held| RunMemory {
                    taken: meter.opened.map(|opened| held.saturating_sub(opened)),
                    spare: 0,
                    held,
                }),
                host: memory::usage().map(|usage| usage.anonymous),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// A device that reports these values in sequence.
    struct Told(Mutex<Vec<Option<u64>>>);

    impl Gauge for Told {
        fn used(&self) -> Option<u64> {
            self.0.lock().remove(0)
        }
    }

    /// Returns the measured memory of opening a session and of an execution.
    fn measured(told: [Option<u64>; 4]) -> (Option<u64>, Option<RunMemory>) {
        let gauge: Arc<dyn Gauge> = Arc::new(Told(Mutex::new(told.to_vec())));
        let mut meter = RunMeter::new(Some(&gauge), 7);
        let opened = meter.opening(false);
        meter.opened(&mut Floor::default(), 0);
        (opened, meter.end().run)
    }

    #[test]
    fn a_device_tells_what_a_session_and_a_run_take_by_what_is_left_of_them() {
        let run = |taken, held| {
            Some(RunMemory {
                taken,
                spare: 0,
                held,
            })
        };
        assert_eq!(
            measured([Some(100), Some(150), Some(150), Some(190)]),
            (Some(50), run(Some(40), 190))
        );
        assert_eq!(
            measured([None, Some(150), Some(150), Some(150)]),
            (Some(150), run(Some(0), 150)),
            "first session in the process"
        );
        assert_eq!(measured([None, None, None, None]), (None, None), "nobody tells");
        assert_eq!(measured([None, None, None, Some(9)]), (None, run(None, 9)));
    }
}
