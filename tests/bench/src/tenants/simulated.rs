//! Simulates HAPI's jobs under several policies, including the hosts' own scheduling code, in virtual time.

use super::simulator::{Policy, Scenario, simulate};
use crate::report::Report;

/// HAPI's batches without adaptation.
const FIXED: Policy = Policy::Fixed(1000);

pub(super) fn run(report: &mut Report) {
    for (key, policy) in [
        ("simulated_failures_18", Policy::Frostline),
        ("simulated_failures_18_fixed", FIXED),
        ("simulated_failures_18_hapi_lp", Policy::HapiLp),
    ] {
        let failures = simulate(&Scenario::hapi(18), policy).failures;
        println!("18 jobs by {policy}: {failures} failed");
        report.set(key, failures);
    }
    for (key, policy) in [
        ("simulated_makespan_8_vs_1", Policy::Frostline),
        ("simulated_makespan_8_vs_1_hapi_lp", Policy::HapiLp),
    ] {
        let makespan = |jobs| simulate(&Scenario::hapi(jobs), policy).makespan;
        let (all, one) = (makespan(8), makespan(1));
        println!(
            "8 jobs by {policy}: {all:.0} s ({:.2} times the duration of a single job)",
            all / one
        );
        report.set(key, all / one);
    }
}
