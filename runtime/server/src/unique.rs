/// What nothing else is called, whichever host named it.
///
/// # Errors
/// The system's, when it has no random bytes.
pub(crate) fn unique_id() -> Result<String, getrandom::Error> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random)?;
    Ok(hex::encode(random))
}
