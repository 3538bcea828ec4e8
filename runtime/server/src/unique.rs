/// Returns a random id of 16 hexadecimal digits, unique among all hosts.
///
/// # Errors
/// Returns an error if the system provides no random bytes.
pub(crate) fn unique_id() -> Result<String, getrandom::Error> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random)?;
    Ok(hex::encode(random))
}
