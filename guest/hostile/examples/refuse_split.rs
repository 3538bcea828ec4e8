//! Serves only the model's last cut, with custom activations. Refuses every model if the parameters are
//! `refuse`.

use frostline_hostile::frostline_guest::{ElementType, TensorInfo};

frostline_hostile::behaves!(
    |model, parameters, description| {
        if parameters == "refuse" {
            return Err(Error::invalid("this guest serves no model on Sundays"));
        }
        description.set_name("refuse_split", "0");
        let last = model.cuts.last().map(|cut| cut.name.as_str()).unwrap_or_default();
        let custom = TensorInfo {
            name: "custom".to_owned(),
            element_type: ElementType::Float32,
            shape: vec![7],
        };
        description.serve_custom(last, &[custom])
    },
    |job| {
        let mut extracted = frostline_hostile::zeros(&job, job.samples.len(), 7)?;
        extracted.tensors[0].0 = "custom".to_owned();
        Ok(extracted)
    }
);
