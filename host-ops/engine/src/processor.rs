//! Features of this processor.

/// Whether int8 dot products are exact. x86 without VNNI adds two products in 16 bits, which saturates with weights of eight bits and does
/// not with weights of seven.
pub fn exact_int8() -> bool {
    #[cfg(target_arch = "x86_64")]
    let exact = is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    let exact = true;
    exact
}
