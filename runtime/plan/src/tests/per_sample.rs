//! Computes the savings if each sample were sent either as the object or as pixels, whichever is smaller. The
//! results are in `docs/planning.md`; because of them, this is not implemented.

use super::recorded::NETWORKS;
use super::*;

/// Bytes of pixels per sample.
const PIXELS: f64 = 150_528.0;
/// Twenty quantiles of the sizes of 520 clothing photos, in KB.
const CLOTHING: [f64; 20] = [
    14.7, 17.2, 18.6, 19.7, 20.9, 22.0, 23.2, 24.4, 25.5, 26.3, 27.8, 29.3, 30.9, 32.6, 34.3, 36.0, 38.4,
    42.6, 47.2, 55.6,
];
/// Twenty quantiles of the standard normal distribution.
const NORMAL: [f64; 20] = [
    -1.96, -1.44, -1.15, -0.93, -0.76, -0.6, -0.45, -0.32, -0.19, -0.06, 0.06, 0.19, 0.32, 0.45, 0.6, 0.76,
    0.93, 1.15, 1.44, 1.96,
];
const LINKS: [f64; 8] = [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

/// Log-normal photo sizes with a mean of 110 KB. A fifth of the photos is larger than the pixels.
fn imagenet() -> Vec<f64> {
    let sizes = NORMAL.map(|deviations| (0.6 * deviations).exp());
    let mean = sizes.iter().sum::<f64>() / 20.0;
    sizes.map(|size| 110e3 * size / mean).to_vec()
}

/// Relative time saved by the choice per sample, compared with the better of `none` and `input` and with the
/// best split.
struct Saved {
    over_both: f64,
    over_all: f64,
}

/// Name of a recorded split, seconds on the host and on the trainer, and bytes. The batch size is 8.
type Recorded = (&'static str, f64, f64, f64);

fn saved(network: &[Recorded], sizes: &[f64], mbit: f64) -> Saved {
    let count = sizes.len() as f64;
    let mean = sizes.iter().sum::<f64>() / count;
    let small: f64 = sizes.iter().filter(|size| **size < PIXELS).sum();
    // The decoding time is proportional to the size.
    let here = small / sizes.iter().sum::<f64>();
    let sent = sizes.iter().map(|size| size.min(PIXELS)).sum::<f64>() / count;
    let workload = Workload {
        batch: 8,
        iterations: 1000,
        link_bytes_per_second: mbit * 125e3,
        ..workload()
    };
    let seconds = |host: f64, trainer: f64, bytes: f64| {
        let stages = Stages {
            host_seconds: host,
            link_seconds: 8.0 * bytes / workload.link_bytes_per_second,
            trainer_seconds: trainer,
            ..Stages::default()
        };
        workload.predict(&stages, &Scenario::MEASURED).total_seconds
    };
    let none = network[0];
    let input = network[1];
    assert_eq!((none.0, input.0), ("none", "input"));
    let mixed = seconds(
        none.1 + (input.1 - none.1) * (1.0 - here),
        input.2 + (none.2 - input.2) * here,
        sent,
    );
    let both = seconds(none.1, none.2, mean).min(seconds(input.1, input.2, PIXELS));
    let cuts = network[2..].iter();
    let cuts = cuts.map(|(_, host, trainer, bytes)| seconds(*host, *trainer, bytes / 8.0));
    let all = cuts.fold(both, f64::min);
    Saved {
        over_both: 1.0 - mixed / both,
        over_all: 1.0 - mixed.min(all) / all,
    }
}

/// Returns the number of cells in which each comparison saves at least 5 %, and the maximum savings. The 48
/// cells are six networks on eight links.
fn cells(sizes: &[f64]) -> ([usize; 2], [f64; 2]) {
    let cells = NETWORKS.iter().flat_map(|network| {
        let saved = move |mbit: f64| saved(network, sizes, mbit);
        LINKS.map(saved)
    });
    cells.fold(([0; 2], [0.0; 2]), |(mut count, mut most), cell| {
        for (place, saved) in [cell.over_both, cell.over_all].into_iter().enumerate() {
            count[place] += usize::from(saved >= 0.05);
            most[place] = f64::max(most[place], saved);
        }
        (count, most)
    })
}

#[test]
fn a_choice_for_each_sample_saves_little_where_layers_are_frozen() {
    let (count, most) = cells(&CLOTHING.map(|size| size * 1e3));
    assert_eq!(
        count,
        [0, 0],
        "each photo should be smaller than the pixels: {most:?}"
    );
    let (count, most) = cells(&imagenet());
    assert_eq!(count, [12, 0], "{most:?}");
    assert!((0.10..0.15).contains(&most[0]) && most[1] < 0.05, "{most:?}");
}
