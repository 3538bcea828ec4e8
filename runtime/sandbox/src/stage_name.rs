use crate::call::ModelView;
use frostline_tensor::{OpError, Precision, Stage};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Characters that need no escape in stage names. Dots are escaped because `..` is the separator.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// Returns the name of the stage from the model's input to `cut`.
pub(crate) fn stage_to(cut: &str) -> String {
    utf8_percent_encode(cut, PLAIN).to_string()
}

/// Parses the name of a stage of `model`, either `to` or `from..to` with percent-encoded tensor names.
///
/// # Errors
/// Returns `not-found` if this model has no such stage. Names cannot refer to other models.
pub(crate) fn resolve(name: &str, model: &ModelView) -> Result<Stage, OpError> {
    let (from, to) = match name.split_once("..") {
        Some((from, to)) => (decode(from)?, decode(to)?),
        None => (model.input.clone(), decode(name)?),
    };
    let Some((end, _)) = model.cut(&to) else {
        return Err(no_stage(name, &format!("the model has no cut {to:?}")));
    };
    let begins_before = match model.cut(&from) {
        Some((start, _)) => start < end,
        None if from == model.input => true,
        None => {
            return Err(no_stage(
                name,
                &format!("{from:?} is neither the model's input nor a cut"),
            ));
        }
    };
    if !begins_before {
        return Err(no_stage(name, &format!("{from:?} does not precede {to:?}")));
    }
    Ok(Stage {
        model: model.sha256.clone(),
        from,
        to,
        pixels: None,
        precision: Precision::Full,
    })
}

fn decode(part: &str) -> Result<String, OpError> {
    let decoded = percent_decode_str(part).decode_utf8();
    decoded
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| no_stage(part, "invalid UTF-8 after decoding"))
}

fn no_stage(name: &str, why: &str) -> OpError {
    OpError::not_found(format!(
        "invalid stage {name:?}: {why}; use a cut or \"from..to\", percent-encoded"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CutView;

    fn model() -> ModelView {
        let cut = |name: &str| CutView {
            name: name.to_owned(),
            shape: vec![4],
        };
        ModelView {
            sha256: "ab".to_owned(),
            input: "data".to_owned(),
            input_shape: vec![3, 8, 8],
            joined_inputs: Vec::new(),
            cuts: vec![cut("/layer1/Relu_output_0"), cut("a..b"), cut("50%")],
        }
    }

    #[test]
    fn every_cut_is_found_under_its_name() {
        for cut in model().cuts {
            let stage = resolve(&stage_to(&cut.name), &model()).unwrap();
            assert_eq!((stage.from.as_str(), stage.to), ("data", cut.name));
        }
    }

    #[test]
    fn a_middle_stage_runs_forward() {
        let stage = resolve("%2Flayer1%2FRelu_output_0..a%2E%2Eb", &model()).unwrap();
        assert_eq!(
            (stage.from.as_str(), stage.to.as_str()),
            ("/layer1/Relu_output_0", "a..b")
        );
        for wrong in ["50%25..a%2E%2Eb", "50%25..50%25", "50%25..data", "nowhere..50%25"] {
            assert_eq!(
                resolve(wrong, &model()).unwrap_err().code,
                frostline_tensor::OpErrorCode::NotFound
            );
        }
    }

    #[test]
    fn invalid_stage_names_are_refused() {
        for wrong in ["", "..", "data", "a..b..c", "%ff", "ab/data", "../../etc/passwd"] {
            assert_eq!(
                resolve(wrong, &model()).unwrap_err().code,
                frostline_tensor::OpErrorCode::NotFound
            );
        }
    }
}
