use super::support::{Builder, assert_same, count, noise};
use crate::fold_batch_norms;
use frostline_graph::Model;
use frostline_graph::build::{float, int, ints};
use proptest::prelude::*;

const IMAGE: [usize; 3] = [4, 6, 6];

fn normalization(builder: &mut Builder, value: &str, channels: usize) -> String {
    let [scale, offset, mean] = [0; 3].map(|_| builder.weight(&[channels]));
    let variance = noise(5, channels).into_iter().map(|value| value.abs() + 0.1);
    let variance = builder.constant(&[channels], variance.collect());
    let inputs = [value, &scale, &offset, &mean, &variance];
    builder.add_with("BatchNormalization", &inputs, [float("epsilon", 1e-3)])
}

fn folded(network: &Model, input: &[usize], removed: &[&str]) -> Model {
    let folded = fold_batch_norms(network).unwrap();
    assert_same(network, &folded, input);
    for operator in removed {
        assert_eq!(count(&folded, operator), 0, "{operator}");
    }
    folded
}

#[test]
fn a_normalization_is_folded_into_a_convolution() {
    for (operator, group, dims, biased) in [
        ("Conv", 1, [8, 4, 3, 3], false),
        ("Conv", 2, [8, 2, 3, 3], true),
        ("Conv", 4, [8, 1, 3, 3], true),
        ("ConvTranspose", 1, [4, 8, 3, 3], true),
        ("ConvTranspose", 2, [4, 4, 3, 3], false),
    ] {
        let mut builder = Builder::default();
        let weight = builder.weight(&dims);
        let bias = if biased {
            builder.weight(&[8])
        } else {
            String::new()
        };
        let attributes = [int("group", group), ints("pads", &[1, 1, 1, 1])];
        let layer = builder.add_with(operator, &["x", &weight, &bias], attributes);
        let normalized = normalization(&mut builder, &layer, 8);
        let output = builder.add("Relu", &[&normalized]);
        let network = builder.network(&IMAGE, &[(&output, &[8, 6, 6])]);
        let folded = folded(&network, &IMAGE, &["BatchNormalization"]);
        assert_eq!(folded.nodes().len(), 2);
        assert_eq!(folded.graph().initializer.len(), 2);
    }
}

#[test]
fn factors_and_terms_per_channel_are_folded_in_order() {
    let mut builder = Builder::default();
    let weight = builder.weight(&[8, 4, 1, 1]);
    let mut value = builder.add("Conv", &["x", &weight]);
    value = normalization(&mut builder, &value, 8);
    for (operator, dims) in [
        ("Mul", vec![8, 1, 1]),
        ("Add", vec![1, 8, 1, 1]),
        ("Sub", vec![]),
        ("Div", vec![1, 1, 1]),
    ] {
        let constant = builder.weight(&dims);
        value = builder.add(operator, &[&value, &constant]);
    }
    let constant = builder.weight(&[1]);
    value = builder.add("Sub", &[&constant, &value]);
    let network = builder.network(&IMAGE, &[(&value, &[8, 6, 6])]);
    let folded = folded(
        &network,
        &IMAGE,
        &["BatchNormalization", "Mul", "Add", "Sub", "Div"],
    );
    assert_eq!(folded.nodes()[0].output[0], value, "the output keeps its name");
}

#[test]
fn a_normalization_is_folded_into_a_linear_layer() {
    for (rows, dims) in [(1, [8, 5]), (0, [5, 8])] {
        for bias in [None, Some(vec![8]), Some(vec![1, 8]), Some(vec![1])] {
            let mut builder = Builder::default();
            let weight = builder.weight(&dims);
            let bias = bias.map_or(String::new(), |dims| builder.weight(&dims));
            let attributes = [int("transB", rows), float("alpha", 0.5)];
            let layer = builder.add_with("Gemm", &["x", &weight, &bias], attributes);
            let normalized = normalization(&mut builder, &layer, 8);
            let factors = builder.weight(&[8]);
            let output = builder.add("Mul", &[&factors, &normalized]);
            let network = builder.network(&[5], &[(&output, &[8])]);
            folded(&network, &[5], &["BatchNormalization", "Mul"]);
        }
    }
}

/// Two layers with the same weights keep them apart.
#[test]
fn shared_weights_are_not_changed_for_others() {
    let mut builder = Builder::default();
    let weight = builder.weight(&[4, 4, 1, 1]);
    let first = builder.add("Conv", &["x", &weight]);
    let normalized = normalization(&mut builder, &first, 4);
    let output = builder.add("Conv", &[&normalized, &weight]);
    let network = builder.network(&IMAGE, &[(&output, &IMAGE)]);
    folded(&network, &IMAGE, &["BatchNormalization"]);
}

#[test]
fn everything_else_stays_as_it_is() {
    let build = |change: &dyn Fn(&mut Builder, String) -> String, also: bool| {
        let mut builder = Builder::default();
        let weight = builder.weight(&[6, 4, 1, 1]);
        let layer = builder.add("Conv", &["x", &weight]);
        let output = change(&mut builder, layer.clone());
        let dims: &[usize] = &[6, 6, 6];
        let outputs = [(output.as_str(), dims), (layer.as_str(), dims)];
        builder.network(&IMAGE, &outputs[..1 + usize::from(also)])
    };
    let unfolded = |network: Model| assert_eq!(fold_batch_norms(&network).unwrap(), network);
    // The value in between is an output, or another node reads it.
    unfolded(build(&|builder, layer| normalization(builder, &layer, 6), true));
    unfolded(build(
        &|builder, layer| {
            let normalized = normalization(builder, &layer, 6);
            builder.add("Add", &[&normalized, &layer])
        },
        false,
    ));
    // Constants per position, and with the sizes of channels on another axis.
    for dims in [vec![6, 6], vec![6], vec![6, 6, 6]] {
        unfolded(build(
            &|builder, layer| {
                let positions = builder.weight(&dims);
                builder.add("Mul", &[&layer, &positions])
            },
            false,
        ));
    }
    // A division by zero, a quotient with the constant above, and computed factors.
    unfolded(build(
        &|builder, layer| {
            let zero = builder.constant(&[], vec![0.0]);
            builder.add("Div", &[&layer, &zero])
        },
        false,
    ));
    unfolded(build(
        &|builder, layer| {
            let one = builder.constant(&[], vec![1.0]);
            builder.add("Div", &[&one, &layer])
        },
        false,
    ));
    unfolded(build(
        &|builder, layer| {
            let mean = builder.add("GlobalAveragePool", &[&layer]);
            builder.add("Mul", &[&layer, &mean])
        },
        false,
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any sequence of operators per channel after any grouped convolution.
    #[test]
    fn folded_networks_compute_the_same(
        operators in prop::collection::vec((0_usize..4, 0_usize..3, any::<bool>()), 1..6),
        group in prop::sample::select(vec![1_usize, 2, 4]),
        transposed in any::<bool>(),
    ) {
        let mut builder = Builder::default();
        let dims = if transposed { [4, 8 / group, 3, 3] } else { [8, 4 / group, 3, 3] };
        let weight = builder.weight(&dims);
        let operator = if transposed { "ConvTranspose" } else { "Conv" };
        let mut value = builder.add_with(operator, &["x", &weight], [int("group", group as i64), ints("pads", &[1, 1, 1, 1])]);
        for (operator, rank, first) in &operators {
            let dims = [vec![8, 1, 1], vec![1, 8, 1, 1], vec![]][*rank].clone();
            let values = noise(*operator, dims.iter().product()).into_iter().map(|value| value.abs() + 0.5);
            let constant = builder.constant(&dims, values.collect());
            let operator = ["Mul", "Add", "Sub", "Div"][*operator];
            let first = *first || operator == "Div";
            let inputs = if first { [value.as_str(), &constant] } else { [constant.as_str(), &value] };
            value = builder.add(operator, &inputs);
        }
        let network = builder.network(&IMAGE, &[(&value, &[8, 6, 6])]);
        let folded = folded(&network, &IMAGE, &["Mul", "Add", "Sub", "Div"]);
        prop_assert_eq!(folded.nodes().len(), 1);
    }
}
