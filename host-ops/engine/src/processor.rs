//! What this processor can do.

/// Whether sums of products of signed and unsigned bytes are exact: x86 without VNNI adds pairs of them in 16 bits, which weights of eight
/// bits overflow and weights of seven bits do not.
pub fn adds_bytes_exactly() -> bool {
    #[cfg(target_arch = "x86_64")]
    let exact = is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    let exact = true;
    exact
}
