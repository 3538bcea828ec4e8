//! Omits a row and reports a failure for a sample outside of the request.

use frostline_hostile::frostline_guest::{ErrorCode, FailedSample};

frostline_hostile::extracts!("lie_about_failures", |job| {
    let mut answer = frostline_hostile::zeros(&job, job.samples.len() - 1, 4)?;
    answer.failed.push(FailedSample {
        index: 1_000_000,
        error: Error::new(ErrorCode::Failed, "x".repeat(1 << 20)),
    });
    Ok(answer)
});
