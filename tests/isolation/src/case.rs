//! A case and its result.

use crate::{Scene, exchange, guests, images, models};
use anyhow::Result;
use frostline_behaviors::Behavior;
use frostline_client::ClientError;
use frostline_hostile::HostileModel;
use std::pin::Pin;
use std::sync::Arc;

/// The kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A guest.
    Guest,
    /// A model.
    Model,
    /// A sample.
    Image,
    /// A request or a client.
    Request,
    /// An attempt to exceed the memory budget.
    Memory,
}

/// An attack and its expected result.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name in reports.
    pub name: String,
    /// What it does.
    pub does: String,
    /// What misbehaves.
    pub class: Class,
    /// How it must end.
    pub expected: Expected,
    pub(crate) act: Act,
}

/// How a case must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// What the tenant sees: an HTTP status, `row` for a row with an error, `closed` for a
    /// connection that ends without an answer, `left` where the tenant left and the host ended what it did for it.
    pub code: &'static str,
    /// Words of the message.
    pub words: Vec<String>,
}

/// What the tenant received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// As in [`Expected::code`].
    pub code: String,
    /// The message.
    pub message: String,
}

#[derive(Debug, Clone)]
pub(crate) enum Act {
    Guest(&'static Behavior),
    Model(Arc<HostileModel>),
    Image(images::Image),
    Request(exchange::Ask),
    Memory(MemoryAct),
}

/// An attempt to exceed the memory budget.
pub(crate) type MemoryAct =
    for<'a> fn(&'a Scene) -> Pin<Box<dyn Future<Output = Result<CaseResult>> + Send + 'a>>;

impl Case {
    /// Runs the case as the hostile tenant of the scene.
    ///
    /// # Errors
    /// If the scene itself fails; refusals of the host are results.
    pub async fn run(&self, scene: &Scene) -> Result<CaseResult> {
        match &self.act {
            Act::Guest(behavior) => guests::run(scene, behavior).await,
            Act::Model(model) => models::run(scene, model).await,
            Act::Image(image) => images::run(scene, *image).await,
            Act::Request(ask) => exchange::run(scene, *ask).await,
            Act::Memory(greed) => greed(scene).await,
        }
    }

    /// Whether it ended as expected.
    pub fn ended_well(&self, seen: &CaseResult) -> bool {
        let Expected { code, words } = &self.expected;
        // Messages from guests are cut to a line or two.
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

    /// The result of a refused request.
    pub(crate) fn refused(error: &ClientError) -> Self {
        match error {
            ClientError::Refused { status, message, .. } => Self::new(status.as_u16(), message),
            other => Self::new("closed", other),
        }
    }
}
