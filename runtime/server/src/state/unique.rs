use super::error::StateError;

/// What nothing else in the state is called.
pub(super) fn unique() -> Result<String, StateError> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| StateError::Random {
        detail: error.to_string(),
    })?;
    Ok(hex::encode(random))
}
