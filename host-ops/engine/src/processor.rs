//! Features of this processor.

/// Returns true if this processor computes int8 dot products with 8-bit weights exactly. An x86 processor
/// without VNNI adds two products in 16 bits. The sum saturates with 8-bit weights, but not with 7-bit
/// weights.
pub fn exact_int8() -> bool {
    #[cfg(target_arch = "x86_64")]
    let exact = is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    let exact = true;
    exact
}
