//! Metrics for lanes under load: completed work and queued work.

use super::load::Job;
use super::{Fleet, Metrics, Tenant};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// Warm-up until requests are in flight.
const BEGIN: Duration = Duration::from_millis(500);

/// Sampling interval.
const EVERY: Duration = Duration::from_millis(50);

/// Longer than any measurement.
const FOREVER: Duration = Duration::from_secs(3600);

/// Device time of tenants that should always have queued work.
#[derive(Debug, Default)]
pub(crate) struct DeviceShares {
    /// Device seconds by tenant.
    pub(crate) seconds: Vec<f64>,
    /// Share of samples without queued work by tenant (0 to 1).
    pub(crate) unqueued_share: Vec<f64>,
}

/// Completed work of the lanes so far.
struct LaneWork {
    rows: f64,
    runs: f64,
    /// Device seconds for finished engine batches.
    ended: f64,
    /// Busy lane seconds, including engine batches in flight.
    busy: f64,
    at: Instant,
}

impl LaneWork {
    fn read(fleet: &Fleet) -> Result<Self> {
        let metrics = fleet.metrics()?;
        let value = |name: &str| {
            metrics
                .value(name)
                .with_context(|| format!("host reports no metric {name}"))
        };
        Ok(Self {
            rows: value("lane_rows_total")?,
            runs: value("lane_runs_total")?,
            ended: metrics.sum("tenant_device_seconds_total"),
            busy: value("lane_busy_seconds_total")?,
            at: Instant::now(),
        })
    }

    /// Images per second since `before`: the rate of finished engine batches multiplied by the mean number of
    /// busy lanes. Counting only the rows or only the time of an engine batch that crosses a boundary would
    /// distort the rate.
    fn rate(&self, before: &Self) -> f64 {
        let of_runs = (self.rows - before.rows) / (self.ended - before.ended).max(1e-9);
        of_runs * (self.busy - before.busy) / self.at.duration_since(before.at).as_secs_f64()
    }
}

impl Fleet {
    /// Images per second of the lanes under continuous load from all jobs, for at least `span` and until
    /// `runs` engine batches have finished.
    pub(crate) async fn rate(&self, jobs: &[Job<'_>], span: Duration, runs: usize) -> Result<f64> {
        let looking = async {
            tokio::time::sleep(BEGIN).await;
            let before = LaneWork::read(self)?;
            tokio::time::sleep(span).await;
            loop {
                let now = LaneWork::read(self)?;
                if now.runs - before.runs >= runs as f64 {
                    return anyhow::Ok(now.rate(&before));
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        self.under_load(jobs, looking).await
    }

    /// Measures the device time per tenant. Starts when all tenants have queued work, and ends when each has
    /// received `least` seconds or after `longest`.
    pub(crate) async fn shares(
        &self,
        jobs: &[Job<'_>],
        least: f64,
        longest: Duration,
    ) -> Result<DeviceShares> {
        let tenants: Vec<&Tenant> = jobs.iter().map(|job| job.tenant).collect();
        let looking = async {
            tokio::time::sleep(BEGIN).await;
            let all = async {
                while waiting(&self.metrics()?, &tenants).contains(&0.0) {
                    tokio::time::sleep(EVERY).await;
                }
                anyhow::Ok(())
            };
            let late = "timed out while waiting for all tenants to have queued work";
            tokio::time::timeout(longest, all).await.context(late)??;
            let (before, started) = (seconds(&self.metrics()?, &tenants), Instant::now());
            let (mut looks, mut without) = (0.0, vec![0.0; tenants.len()]);
            loop {
                tokio::time::sleep(EVERY).await;
                let metrics = self.metrics()?;
                looks += 1.0;
                for (without, rows) in without.iter_mut().zip(waiting(&metrics, &tenants)) {
                    *without += f64::from(u8::from(rows == 0.0));
                }
                let now = seconds(&metrics, &tenants);
                let had: Vec<f64> = now
                    .iter()
                    .zip(&before)
                    .map(|(now, before)| now - before)
                    .collect();
                if had.iter().all(|seconds| *seconds >= least) || started.elapsed() >= longest {
                    return anyhow::Ok(DeviceShares {
                        seconds: had,
                        unqueued_share: without.iter().map(|number| number / looks).collect(),
                    });
                }
            }
        };
        self.under_load(jobs, looking).await
    }

    /// Runs `looking` under continuous load from all jobs, after a warm-up.
    async fn under_load<T>(&self, jobs: &[Job<'_>], looking: impl Future<Output = Result<T>>) -> Result<T> {
        self.warm(jobs).await?;
        tokio::select! {
            served = self.load(jobs, FOREVER) => {
                served?;
                bail!("the load ended early")
            }
            seen = looking => seen,
        }
    }
}

fn seconds(metrics: &Metrics, tenants: &[&Tenant]) -> Vec<f64> {
    each(metrics, "tenant_device_seconds_total", tenants)
}

fn waiting(metrics: &Metrics, tenants: &[&Tenant]) -> Vec<f64> {
    each(metrics, "tenant_lane_rows", tenants)
}

fn each(metrics: &Metrics, name: &str, tenants: &[&Tenant]) -> Vec<f64> {
    let values = tenants
        .iter()
        .map(|tenant| metrics.of_tenant(name, &tenant.name).unwrap_or(0.0));
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_whole_runs_times_the_lanes_at_work() {
        let at = Instant::now();
        let before = LaneWork {
            rows: 100.0,
            runs: 10.0,
            ended: 50.0,
            busy: 52.0,
            at,
        };
        let after = LaneWork {
            rows: 140.0,
            runs: 14.0,
            ended: 54.0,
            busy: 56.5,
            at: at + Duration::from_secs(3),
        };
        assert_eq!(after.rate(&before), 15.0);
    }
}
