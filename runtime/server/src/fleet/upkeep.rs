//! Background tasks of a host as part of a fleet.

use crate::refusal::Refusal;
use crate::service::Service;
use frostline_state::{ClockCheck, StateError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Interval at which the host follows orders and compares the clocks.
const TICK: Duration = Duration::from_secs(1);

/// Interval of records. The requests of a host to Amazon S3 cost 9 cents per day.
const RECORD: Duration = Duration::from_secs(10);

/// Maximum time to remove the record of a host that stops.
const LEAVE: Duration = Duration::from_millis(500);

/// Interval of attempts to write revocations to the state.
const RETRY: Duration = Duration::from_secs(5);

/// Follows orders, compares the clocks and writes the record of this host until `stop` is cancelled.
pub(crate) async fn keep_fleet(service: Arc<Service>, address: String, stop: CancellationToken) {
    let fleet = &service.fleet;
    // This is the only task that sets the address.
    let _ = fleet.address.set(address);
    let mut next = Instant::now();
    let mut failing = false;
    let mut checked = ClockCheck::Alone;
    loop {
        fleet.follow_order(&service.config.name, &service.scheduling);
        if Instant::now() >= next {
            next = Instant::now() + RECORD;
            let updated = timeout(RECORD, update(&service)).await;
            let updated = updated.unwrap_or(Err(StateError::Late { after: RECORD }));
            if let Some(error) = updated.as_ref().err().filter(|_| !failing) {
                let error = error.to_string();
                tracing::warn!(error, "cannot exchange records with other hosts; retrying later");
            }
            failing = updated.is_err();
        }
        let check = service.clock.check();
        report(checked, check);
        checked = check;
        if timeout(TICK, stop.cancelled()).await.is_ok() {
            break;
        }
    }
    if timeout(LEAVE, fleet.leave()).await.is_err() {
        tracing::debug!("cannot remove the record of this host in time; other hosts remove it later");
    }
}

async fn update(service: &Service) -> Result<(), StateError> {
    let fleet = &service.fleet;
    fleet.write(fleet.own_record(service)).await?;
    fleet.clean().await?;
    // Names of hosts are needed when the state no longer answers.
    fleet.read(|host| host.content.is_none()).await?;
    fleet.cancellations.expire(&service.clock).await
}

/// Logs that the clock of this host differs from others, or agrees again.
fn report(before: ClockCheck, now: ClockCheck) {
    match (before.differs(), now.differs()) {
        (false, true) => tracing::warn!(
            skew_seconds = now.skew(),
            outvoted = matches!(now, ClockCheck::Outvoted(_)),
            "the clock of this host differs from those of the state's store or of other hosts; nothing is deleted because of its age \
             until they agree; synchronize the clocks (NTP)"
        ),
        (true, false) => tracing::info!("the clock of this host agrees with others again"),
        _ => {}
    }
}

/// Writes pending revocations to the state until `stop` is cancelled.
pub(crate) async fn settle_revocations(service: Arc<Service>, stop: CancellationToken) {
    let tenants = &service.tenants;
    let mut failing = false;
    while timeout(RETRY, stop.cancelled()).await.is_err() {
        let failed_before = std::mem::take(&mut failing);
        for revocation in tenants.revocations.pending() {
            let writing = tenants.write_revocation(&revocation);
            let Some(written) = stop.run_until_cancelled(writing).await else {
                return;
            };
            match written {
                // The token or the tenant was removed in the meantime.
                Ok(()) | Err(Refusal::NotFound { .. }) => {
                    tenants.revocations.remove(&revocation).await;
                    tracing::info!(
                        tenant = revocation.tenant,
                        id = revocation.id,
                        "the state contains the revocation of the token now"
                    );
                }
                Err(refusal) => {
                    failing = true;
                    if !failed_before {
                        tracing::warn!(
                            %refusal,
                            tenant = revocation.tenant,
                            id = revocation.id,
                            "cannot write the revocation of a token to the state; only this host refuses the token"
                        );
                    }
                }
            }
        }
    }
}
