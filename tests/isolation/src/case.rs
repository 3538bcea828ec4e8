//! Attacks and their results.

use crate::behavior::{self, Behavior as RouteBehavior};
use crate::{Scene, exchange, guests, images, models};
use anyhow::Result;
use frostline_behaviors::Behavior;
use frostline_client::ClientError;
use frostline_hostile::HostileModel;
use std::pin::Pin;
use std::sync::Arc;

/// Kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttackKind {
    /// A guest.
    Guest,
    /// A model.
    Model,
    /// A sample.
    Image,
    /// A request, or its client.
    Request,
    /// An attempt to exceed the memory budget.
    Memory,
}

/// Attack with the expected result.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name in reports.
    pub name: String,
    /// Description that begins with a verb.
    pub description: String,
    /// Kind of attack.
    pub class: AttackKind,
    /// Expected result.
    pub expected: Expected,
    pub(crate) act: Action,
}

/// Expected result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Result for the tenant: an HTTP status, `row` for a row with an error, `closed` if the connection ends
    /// without an answer, `left` if the tenant disconnected and the host ended the work, or `reserved` if
    /// memory for unread answers was reserved.
    pub code: &'static str,
    /// Words contained in the message.
    pub words: Vec<String>,
}

/// Result for the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// Actual value of [`Expected::code`].
    pub code: String,
    /// Error message or body.
    pub message: String,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Guest(&'static Behavior),
    Model(Arc<HostileModel>),
    Image(images::Image),
    Request(exchange::BuildRequest),
    Behavior(RouteBehavior),
    Memory(MemoryAct),
}

/// An attempt to exceed the memory budget.
pub(crate) type MemoryAct =
    for<'a> fn(&'a Scene) -> Pin<Box<dyn Future<Output = Result<CaseResult>> + Send + 'a>>;

impl Case {
    /// Runs the case as the hostile tenant of the scene.
    ///
    /// # Errors
    /// Returns an error if the scene itself fails. A refusal by the host is a result.
    pub async fn run(&self, scene: &Scene) -> Result<CaseResult> {
        match &self.act {
            Action::Guest(behavior) => guests::run(scene, behavior).await,
            Action::Model(model) => models::run(scene, model).await,
            Action::Image(image) => images::run(scene, *image).await,
            Action::Request(ask) => exchange::run(scene, *ask).await,
            Action::Behavior(behavior) => behavior::run(scene, *behavior).await,
            Action::Memory(greed) => greed(scene).await,
        }
    }

    /// True if the case ended as expected.
    pub fn is_expected(&self, seen: &CaseResult) -> bool {
        let Expected { code, words } = &self.expected;
        // Messages from guests are limited to a few lines.
        seen.code == *code
            && seen.message.len() < 4000
            && words.iter().all(|word| seen.message.contains(word))
    }
}

impl Expected {
    pub(crate) fn new(code: &'static str, words: &[&str]) -> Self {
        Self {
            code,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        }
    }
}

impl CaseResult {
    pub(crate) fn new(code: impl ToString, message: impl ToString) -> Self {
        Self {
            code: code.to_string(),
            message: message.to_string(),
        }
    }

    /// Converts an error of the client. Errors other than refusals count as closed connections.
    pub(crate) fn refused(error: &ClientError) -> Self {
        match error {
            ClientError::Refused { status, message, .. } => Self::new(status.as_u16(), message),
            other => Self::new("closed", other),
        }
    }
}
