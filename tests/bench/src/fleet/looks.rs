//! Metrics of a host's lanes under load: their work, and whether they had queued work at all times.

use super::load::Job;
use super::{Fleet, Metrics, Tenant};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// Warm-up until requests are in flight.
const BEGIN: Duration = Duration::from_millis(500);

/// Sampling interval.
const EVERY: Duration = Duration::from_millis(50);

/// The duration of a job that outlasts every measurement.
const FOREVER: Duration = Duration::from_secs(3600);

/// Device time of tenants that always have queued work.
#[derive(Debug, Default)]
pub(crate) struct Had {
    /// Device seconds by tenant.
    pub(crate) seconds: Vec<f64>,
    /// Samples at which a tenant had nothing queued, by tenant.
    pub(crate) without: Vec<f64>,
}

/// The work of lanes so far.
struct Done {
    rows: f64,
    runs: f64,
    /// Device time of finished engine batches, and including those in flight.
    ended: f64,
    busy: f64,
    at: Instant,
}

impl Done {
    fn read(fleet: &Fleet) -> Result<Self> {
        let metrics = fleet.metrics()?;
        let value = |name: &str| {
            metrics
                .value(name)
                .with_context(|| format!("the host has no metric {name}"))
        };
        Ok(Self {
            rows: value("lane_rows_total")?,
            runs: value("lane_runs_total")?,
            ended: metrics.sum("tenant_device_seconds_total"),
            busy: value("lane_busy_seconds_total")?,
            at: Instant::now(),
        })
    }

    /// Images a second since `before`: of the runs that ended, times how many lanes worked. So a run across an end of the time counts with
    /// neither its rows alone nor its time alone.
    fn rate(&self, before: &Self) -> f64 {
        let of_runs = (self.rows - before.rows) / (self.ended - before.ended).max(1e-9);
        of_runs * (self.busy - before.busy) / self.at.duration_since(before.at).as_secs_f64()
    }
}

impl Fleet {
    /// Images that lanes do in a second while all these jobs ask for more and more: for `span`, and until `runs` of them ended.
    pub(crate) async fn rate(&self, jobs: &[Job<'_>], span: Duration, runs: usize) -> Result<f64> {
        let looking = async {
            tokio::time::sleep(BEGIN).await;
            let before = Done::read(self)?;
            tokio::time::sleep(span).await;
            loop {
                let now = Done::read(self)?;
                if now.runs - before.runs >= runs as f64 {
                    return anyhow::Ok(now.rate(&before));
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        self.during(jobs, looking).await
    }

    /// What each job's tenant has of the device from when work of all waits, until the one that has least had `least` seconds of it, or for
    /// `longest`.
    pub(crate) async fn shares(&self, jobs: &[Job<'_>], least: f64, longest: Duration) -> Result<Had> {
        let tenants: Vec<&Tenant> = jobs.iter().map(|job| job.tenant).collect();
        let looking = async {
            tokio::time::sleep(BEGIN).await;
            let all = async {
                while waiting(&self.metrics()?, &tenants).contains(&0.0) {
                    tokio::time::sleep(EVERY).await;
                }
                anyhow::Ok(())
            };
            let late = "there was always a tenant of which nothing waited for a lane";
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
                    return anyhow::Ok(Had {
                        seconds: had,
                        without: without.iter().map(|number| number / looks).collect(),
                    });
                }
            }
        };
        self.during(jobs, looking).await
    }

    /// Looks while all jobs ask for more and more, each of which has had its first request answered.
    async fn during<T>(&self, jobs: &[Job<'_>], looking: impl Future<Output = Result<T>>) -> Result<T> {
        self.warm(jobs).await?;
        tokio::select! {
            served = self.load(jobs, FOREVER) => {
                served?;
                bail!("all jobs ended before the first sample was taken")
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
        let before = Done {
            rows: 100.0,
            runs: 10.0,
            ended: 50.0,
            busy: 52.0,
            at,
        };
        let after = Done {
            rows: 140.0,
            runs: 14.0,
            ended: 54.0,
            busy: 56.5,
            at: at + Duration::from_secs(3),
        };
        assert_eq!(after.rate(&before), 15.0);
    }
}
