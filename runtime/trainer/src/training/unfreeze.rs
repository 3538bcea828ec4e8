//! Gradual unfreezing (Howard and Ruder 2018): later epochs train more layers.

use crate::{Job, TrainerError, Unfreezing};
use frostline_graph::Network;
use std::collections::BTreeMap;

/// Epochs with the same freeze cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Phase {
    /// First epoch, counted from 1.
    pub(crate) first_epoch: u32,
    pub(crate) last_epoch: u32,
    pub(crate) freeze: String,
}

impl Job {
    /// Divides the epochs of the job by freeze cut.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        let begins = [(&1, &self.freeze)].into_iter().chain(&self.spec.unfreeze.0);
        let ends = self.spec.unfreeze.0.keys().map(|epoch| epoch.saturating_sub(1));
        let phases = begins.zip(ends.chain([self.spec.recipe.epochs]));
        phases
            .map(|((first_epoch, freeze), last_epoch)| Phase {
                first_epoch: *first_epoch,
                last_epoch,
                freeze: freeze.clone(),
            })
            .collect()
    }

    /// Returns the job with the freeze cut of `phase`.
    pub(crate) fn in_phase(&self, phase: &Phase) -> Self {
        Self {
            freeze: phase.freeze.clone(),
            ..self.clone()
        }
    }

    /// Returns the earliest freeze cut. All layers after this cut are trained in some phase.
    pub(crate) fn earliest_freeze(&self) -> &str {
        self.spec.unfreeze.0.values().next_back().unwrap_or(&self.freeze)
    }
}

/// Resolves the freeze cuts of a job to tensor names.
///
/// # Errors
/// Returns [`TrainerError::Graph`] if the network does not have a cut, and [`TrainerError::Unfreezing`] if an
/// epoch is out of range or a cut is not before the previous one.
pub(crate) fn resolve_cuts(
    unfreeze: &Unfreezing,
    network: &Network,
    freeze: &str,
    epochs: u32,
) -> Result<Unfreezing, TrainerError> {
    let mut cuts = BTreeMap::new();
    let mut before = freeze.to_owned();
    for (epoch, cut) in &unfreeze.0 {
        if !(2..=epochs).contains(epoch) {
            let why = format!("the epoch must be within 2 to {epochs}; freeze sets the cut of the first");
            return Err(refused(*epoch, cut, why));
        }
        let name = match cut.as_str() {
            "none" => network.input.name.clone(),
            cut if cut == network.input.name => cut.to_owned(),
            cut => network.named(cut)?.name.clone(),
        };
        network.frozen_row(&name)?;
        // The network's input is not a cut and compares less than all cuts.
        if position(network, &name) >= position(network, &before) {
            let why = format!("the cut must be before '{before}', the previous freeze cut");
            return Err(refused(*epoch, cut, why));
        }
        before.clone_from(&name);
        cuts.insert(*epoch, name);
    }
    Ok(Unfreezing(cuts))
}

fn refused(epoch: u32, cut: &str, why: String) -> TrainerError {
    TrainerError::Unfreezing {
        epoch,
        cut: cut.to_owned(),
        why,
    }
}

/// Returns the position of the cut called `name`, or `None` for the network's input.
fn position(network: &Network, name: &str) -> Option<usize> {
    network.cuts.iter().position(|cut| cut.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::network;
    use std::path::PathBuf;

    fn job(unfreeze: &str) -> Job {
        let mut job = Job::new(
            network(),
            String::new(),
            "features".to_owned(),
            String::new(),
            PathBuf::new(),
        );
        (job.spec.recipe.epochs, job.spec.unfreeze) = (8, unfreeze.parse().unwrap());
        job
    }

    #[test]
    fn epochs_are_divided_by_freeze_cuts() {
        let phases = job("6=none,3=r1").phases();
        let told: Vec<_> = phases
            .iter()
            .map(|phase| (phase.first_epoch, phase.last_epoch, phase.freeze.as_str()))
            .collect();
        assert_eq!(told, [(1, 2, "features"), (3, 5, "r1"), (6, 8, "none")]);
        assert_eq!(job("6=none,3=r1").earliest_freeze(), "none");
        let plain = job("");
        assert_eq!((plain.phases().len(), plain.earliest_freeze()), (1, "features"));
    }

    #[test]
    fn later_freeze_cuts_must_be_earlier_in_the_network() {
        let network = network().network().unwrap();
        let within = |text: &str| {
            let unfreeze = text.parse().unwrap();
            super::resolve_cuts(&unfreeze, &network, "features", 8)
        };
        let cuts = within("3=r2,5=r1,8=none").unwrap();
        assert_eq!(cuts.0.into_values().collect::<Vec<_>>(), ["r2", "r1", "image"]);
        for (text, word) in [
            ("1=r1", "the layers after 'r1' in epoch 1"),
            ("9=r1", "2 to 8"),
            ("3=r1,5=r2", "before 'r1'"),
            ("3=features", "before 'features'"),
            ("3=image,4=none", "before 'image'"),
            ("3=layer9", "layer9"),
        ] {
            let error = within(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
