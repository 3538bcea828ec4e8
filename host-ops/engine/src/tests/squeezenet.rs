use crate::{Session, SessionOptions};
use frostline_tensor::Tensor;

/// Reads SqueezeNet. Only tests in a module `needs_shared` can use it.
fn squeezenet() -> Vec<u8> {
    std::fs::read(frostline_needs::shared_file("data/squeezenet1_1_pooled.onnx")).unwrap()
}

/// Generates distinct rows with values between -2 and 2, like normalized pixels.
fn pixels(rows: usize) -> Tensor {
    let noise =
        |index: u64| (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f32 / (1_u64 << 22) as f32 - 2.0;
    let values = (0..rows as u64 * 3 * 224 * 224).map(noise).collect();
    Tensor::f32([rows, 3, 224, 224], values).unwrap()
}

mod needs_shared {
    use super::*;

    #[test]
    fn a_row_does_not_depend_on_the_batch_or_on_threads() {
        let model = squeezenet();
        let whole = pixels(16);
        let run = |threads: usize, size: usize| {
            let mut session = Session::open(
                &model,
                &SessionOptions {
                    threads,
                    ..SessionOptions::default()
                },
            )
            .unwrap();
            let parts: Vec<Tensor> = (0..16)
                .step_by(size)
                .map(|start| whole.slice_rows(start, start + size).unwrap())
                .map(|batch| session.run(&[("image", &batch)]).unwrap().remove(0).1)
                .collect();
            Tensor::concat_rows(&parts).unwrap()
        };
        let reference = run(1, 16);
        let largest = reference
            .as_f32()
            .unwrap()
            .iter()
            .fold(0.0_f32, |largest, v| largest.max(v.abs()));
        assert!(largest > 0.1, "the logits are not zero");
        for (threads, size) in [(1, 1), (1, 4), (2, 16)] {
            let other = run(threads, size);
            let pairs = reference.as_f32().unwrap().iter().zip(other.as_f32().unwrap());
            let difference = pairs.fold(0.0_f32, |difference, (a, b)| difference.max((a - b).abs()));
            assert!(
                difference <= 1e-5 * largest,
                "difference {difference} at {largest} with batches of {size}"
            );
        }
    }

    #[test]
    fn a_batch_without_rows_gives_one_without_rows() {
        let model = squeezenet();
        let mut session = Session::open(&model, &SessionOptions::default()).unwrap();
        let outputs = session.run(&[("image", &pixels(0))]).unwrap();
        assert_eq!(outputs[0].1, Tensor::f32([0, 1000], vec![]).unwrap());
    }
}
