use crate::cosine;
use frostline_tensor::Tensor;

fn rows(values: &[f32]) -> Tensor {
    Tensor::f32([2, values.len() / 2], values.to_vec()).unwrap()
}

#[test]
fn agreement_is_the_mean_over_rows() {
    let exact = rows(&[1.0, 0.0, 2.0, 2.0]);
    assert_eq!(cosine(&exact, &exact), 1.0);
    // Only directions matter, not lengths. A right angle in half of the rows gives 0.5.
    assert!((cosine(&exact, &rows(&[3.0, 0.0, 1.0, 1.0])) - 1.0).abs() < 1e-9);
    assert!((cosine(&exact, &rows(&[0.0, 1.0, 2.0, 2.0])) - 0.5).abs() < 1e-9);
}

#[test]
fn rows_of_zeros_agree_with_themselves_only() {
    let zeros = rows(&[0.0, 0.0, 1.0, 0.0]);
    assert_eq!(cosine(&zeros, &zeros), 1.0);
    assert_eq!(cosine(&zeros, &rows(&[1.0, 0.0, 1.0, 0.0])), 0.5);
    assert_eq!(cosine(&zeros, &rows(&[0.0, 0.0, f32::NAN, 0.0])), 0.5);
}
