use frostline_tensor::{Data, Tensor};

/// Returns the mean cosine similarity of the rows of two `f32` tensors with the same shape `[rows, ..]`.
/// Equal rows count as 1, including rows of zeros. NaN and infinite similarities count as 0.
pub fn cosine(exact: &Tensor, quantized: &Tensor) -> f64 {
    let (Data::F32(left), Data::F32(right)) = (exact.data(), quantized.data()) else {
        return 0.0;
    };
    let rows = exact.shape().dims().first().copied().unwrap_or(0).max(1);
    let length = (left.len() / rows).max(1);
    let pairs = left.chunks(length).zip(right.chunks(length));
    let cosines = pairs.map(|(left, right)| cosine_of(left, right));
    cosines.sum::<f64>() / rows as f64
}

fn cosine_of(left: &[f32], right: &[f32]) -> f64 {
    let lengths = (dot(left, left) * dot(right, right)).sqrt();
    match dot(left, right) / lengths {
        _ if left == right => 1.0,
        cosine if cosine.is_finite() => cosine,
        _ => 0.0,
    }
}

fn dot(left: &[f32], right: &[f32]) -> f64 {
    let products = left.iter().zip(right);
    products
        .map(|(left, right)| f64::from(*left) * f64::from(*right))
        .sum()
}
