//! Behaviors of hostile clients, generated for every route of the tenants' port. A new route is covered
//! without a change here: without a typical request in `request.rs`, it receives a generic one.

mod conduct;
mod request;
mod routes;

pub(crate) use conduct::Conduct;

use crate::case::{Action, AttackKind, Case, CaseResult, Expected};
use crate::memory::wait_until_released;
use crate::scene::Scene;
use anyhow::Result;
use routes::Route;
use std::sync::atomic::{AtomicU64, Ordering};

/// A conduct on a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behavior {
    route: Route,
    conduct: Conduct,
}

/// Returns every conduct on every route. Each case ends by itself within seconds.
pub fn behavior_cases() -> Vec<Case> {
    let routes = routes::all();
    let behaviors = routes
        .iter()
        .flat_map(|route| Conduct::ALL.map(|conduct| (*route, conduct)));
    behaviors
        .map(|(route, conduct)| Case {
            name: format!("{} {}: {}", route.method, route.path, conduct.description()),
            description: format!("{} on {} {}", conduct.description(), route.method, route.path),
            class: AttackKind::Request,
            expected: Expected::new("left", &[]),
            act: Action::Behavior(Behavior { route, conduct }),
        })
        .collect()
}

/// Number of routes of the tenants' port.
pub fn routes() -> usize {
    routes::all().len()
}

/// Behaves as the acting tenant, and waits until the host works for the tenant no longer.
pub(crate) async fn run(scene: &Scene, behavior: Behavior) -> Result<CaseResult> {
    // Every act has another seed, in the same order in every run of the program.
    static ACTS: AtomicU64 = AtomicU64::new(0);
    let seed = ACTS.fetch_add(1, Ordering::Relaxed);
    behavior.conduct.act(scene, behavior.route, seed).await?;
    wait_until_released(scene).await?;
    Ok(CaseResult::new("left", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_conduct_is_tried_on_every_route() {
        let cases = behavior_cases();
        assert_eq!(cases.len(), routes() * Conduct::ALL.len());
        for (method, path) in [
            ("GET", "/metrics"),
            ("PUT", "/v1/models/{name}"),
            ("POST", "/v1/extractions"),
        ] {
            let begin = format!("{method} {path}: ");
            let tried = cases.iter().filter(|case| case.name.starts_with(&begin));
            assert_eq!(tried.count(), Conduct::ALL.len(), "{begin}");
        }
    }
}
