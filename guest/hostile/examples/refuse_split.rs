//! Serves only the model's last cut, with custom activations. Refuses every model if the parameters are
//! `refuse`.

use frostline_guest::{
    Activation, Activations, Description, Failure, FrozenPrefix, Job, ModelView, Sample, ServedCut,
};

struct Hostile;

impl FrozenPrefix for Hostile {
    fn describe(model: ModelView, parameters: String) -> Result<Description, Failure> {
        if parameters == "refuse" {
            return Err(Failure::invalid("this guest serves no model on Sundays"));
        }
        let mut description = frostline_hostile::describe("refuse_split", model)?;
        let last = description.cuts.pop().map(|cut| cut.name).unwrap_or_default();
        description.cuts = vec![ServedCut {
            name: last,
            activation: Activation::Own(vec![7]),
        }];
        Ok(description)
    }

    fn extract(samples: Vec<Sample>, _: Job) -> Result<Activations, Failure> {
        Ok(frostline_hostile::zeros(samples.len(), 7))
    }
}

frostline_guest::export!(Hostile);
