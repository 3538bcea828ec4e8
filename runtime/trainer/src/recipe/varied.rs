use super::FeatureAugment;
use super::mix::unit;
use super::scales::{Channels, Scale};
use crate::TrainerError;
use frostline_tensor::Tensor;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use sha2::{Digest, Sha256};

/// Changes with what a draw means, so that nobody takes one for another.
const DEFINITION: &[u8] = b"frostline feature augmentation 1\0";

/// What eight bits hold, as pictures have them.
const WHITE: f64 = 255.0;

/// What chance says for each row of a batch: it depends on the seed, the epoch and the sample's key alone, so that it is the same wherever the row
/// comes from and whatever stands beside it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Varied {
    augment: FeatureAugment,
    draws: Vec<Draw>,
}

/// The numbers of one row. Each operation has a stream of its own, so that others beside it change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Draw([u8; 32]);

/// The operations, by their streams.
#[derive(Clone, Copy)]
enum Stream {
    Brightness,
    Contrast,
    Posterize,
    Hflip,
    Shift,
    Noise,
}

impl Varied {
    /// Of the samples with these keys, in the order of their rows.
    pub(crate) fn draw(
        augment: FeatureAugment,
        seed: u64,
        epoch: u32,
        keys: impl Iterator<Item = String>,
    ) -> Self {
        let draw = |key: String| {
            let mut hash = Sha256::new();
            hash.update(DEFINITION);
            hash.update(seed.to_le_bytes());
            hash.update(epoch.to_le_bytes());
            hash.update(key.as_bytes());
            Draw(hash.finalize().into())
        };
        Self {
            augment,
            draws: keys.map(draw).collect(),
        }
    }

    /// The rows `[rows, ..]` as they are varied: first by places, then by values.
    ///
    /// # Errors
    /// [`TrainerError::Ended`] for another number of rows than of keys.
    pub(crate) fn apply(&self, rows: &Tensor) -> Result<Tensor, TrainerError> {
        let shape = rows.shape().row()?;
        if rows.rows()? != self.draws.len() {
            return Err(TrainerError::Ended { part: "pipeline" });
        }
        let values = rows.as_f32().unwrap_or_default();
        let channels = Channels::of(shape.dims());
        let mut varied = Vec::with_capacity(values.len());
        for (row, draw) in values.chunks_exact(shape.elements()?.max(1)).zip(&self.draws) {
            let scales = channels.scales(row);
            let mut row = self.moved(row, shape.dims(), draw);
            self.recolour(&mut row, &channels, &scales, draw);
            self.disturb(&mut row, &channels, &scales, draw);
            varied.extend(row);
        }
        Ok(Tensor::f32(rows.shape().clone(), varied)?)
    }

    /// Mirrored, then shifted, with zeros for what comes in. Rows that are no maps stay as they are.
    fn moved(&self, row: &[f32], dims: &[usize], draw: &Draw) -> Vec<f32> {
        let &[_, height, width] = dims else {
            return row.to_vec();
        };
        if !self.augment.moves() {
            return row.to_vec();
        }
        let mirrored = unit(&mut draw.random(Stream::Hflip)) < self.augment.hflip;
        let mut random = draw.random(Stream::Shift);
        let [down, right] = [(); 2].map(|()| {
            let most = i64::from(self.augment.shift);
            (unit(&mut random) * (2 * most + 1) as f64) as i64 - most
        });
        let from = |place: usize, by: i64, end: usize| {
            let place = usize::try_from(place as i64 - by).ok()?;
            (place < end).then_some(place)
        };
        let mut moved = Vec::with_capacity(row.len());
        for map in row.chunks(height * width) {
            for line in 0..height {
                for column in 0..width {
                    let source = from(line, down, height).zip(from(column, right, width));
                    let value = source.and_then(|(line, column)| {
                        let column = if mirrored { width - 1 - column } else { column };
                        map.get(line * width + column)
                    });
                    moved.push(value.copied().unwrap_or(0.0));
                }
            }
        }
        moved
    }

    /// Contrast, brightness and posterize, of values that lie between 0 and 1 in their scale.
    fn recolour(&self, row: &mut [f32], channels: &Channels, scales: &[Scale], draw: &Draw) {
        let augment = &self.augment;
        if augment.brightness == 0.0 && augment.contrast == 0.0 && augment.posterize.is_none() {
            return;
        }
        let tones = self.tones(channels.count, draw);
        for (place, value) in row.iter_mut().enumerate() {
            let channel = channels.at(place);
            let (Some(scale), Some(tone)) = (scales.get(channel), tones.get(channel)) else {
                continue;
            };
            if scale.range > 0.0 {
                let share = (f64::from(*value) - scale.least) / scale.range;
                *value = (scale.least + tone.of(share, scale.mean) * scale.range) as f32;
            }
        }
    }

    /// What becomes of each channel.
    fn tones(&self, channels: usize, draw: &Draw) -> Vec<Tone> {
        let [mut added, mut factors, mut bits] =
            [Stream::Brightness, Stream::Contrast, Stream::Posterize].map(|stream| draw.random(stream));
        let (most, stray) = (self.augment.brightness, self.augment.contrast);
        let fewest = self.augment.posterize.unwrap_or(8).clamp(1, 8);
        let tone = |_| Tone {
            added: (2.0 * unit(&mut added) - 1.0) * most,
            factor: 1.0 + (2.0 * unit(&mut factors) - 1.0) * stray,
            bits: fewest + (unit(&mut bits) * f64::from(9 - fewest)) as u32,
        };
        (0..channels).map(tone).collect()
    }

    /// Normal noise.
    fn disturb(&self, row: &mut [f32], channels: &Channels, scales: &[Scale], draw: &Draw) {
        if self.augment.noise == 0.0 {
            return;
        }
        let mut random = draw.random(Stream::Noise);
        for (place, value) in row.iter_mut().enumerate() {
            let normal: f64 = StandardNormal.sample(&mut random);
            let range = scales.get(channels.at(place)).map_or(0.0, |scale| scale.range);
            *value += (normal * self.augment.noise * range) as f32;
        }
    }
}

impl Draw {
    fn random(self, stream: Stream) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::from_seed(self.0);
        random.set_stream(stream as u64);
        random
    }
}

/// What becomes of one channel.
struct Tone {
    added: f64,
    factor: f64,
    bits: u32,
}

impl Tone {
    /// Of a value on the scale. All eight bits are the value as it is.
    fn of(&self, value: f64, mean: f64) -> f64 {
        let value = (mean + (value - mean) * self.factor + self.added).clamp(0.0, 1.0);
        if self.bits >= 8 {
            return value;
        }
        let coarse = f64::from(1_u32 << (8 - self.bits));
        (value * WHITE / coarse).floor() * coarse / WHITE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varied(text: &str, keys: &[&str]) -> Varied {
        let keys = keys.iter().map(|key| (*key).to_owned());
        Varied::draw(text.parse().unwrap(), 7, 3, keys)
    }

    /// Two rows of a map each of one channel rising and one falling, 2x3.
    fn maps() -> Tensor {
        let row: [f32; 12] = [0., 1., 2., 3., 4., 5., 50., 40., 30., 20., 10., 0.];
        Tensor::f32([2, 2, 2, 3], [row, row.map(|value| value + 1.0)].concat()).unwrap()
    }

    fn of(rows: &Tensor, text: &str, keys: &[&str]) -> Vec<f32> {
        varied(text, keys).apply(rows).unwrap().as_f32().unwrap().to_vec()
    }

    #[test]
    fn without_strength_rows_are_what_they_were() {
        let zero = "brightness=0,contrast=0,hflip=0,shift=0,noise=0";
        assert_eq!(of(&maps(), zero, &["a", "b"]), maps().as_f32().unwrap());
        // All bits of eight are values as they are.
        let same = of(&maps(), "posterize=8", &["a", "b"]);
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
        assert!(same.iter().zip(maps().as_f32().unwrap()).all(close), "{same:?}");
    }

    #[test]
    fn tones_are_what_pictures_have() {
        let tone = |added, factor, bits| Tone { added, factor, bits };
        assert_eq!(tone(0.25, 1.0, 8).of(0.5, 0.5), 0.75);
        assert_eq!(
            (tone(0.25, 1.0, 8).of(0.9, 0.5), tone(-0.5, 1.0, 8).of(0.1, 0.5)),
            (1.0, 0.0)
        );
        assert_eq!(tone(0.0, 0.5, 8).of(1.0, 0.5), 0.75);
        assert_eq!(tone(0.0, 2.0, 8).of(0.25, 0.5), 0.0);
        // 0.5 is 127.5 of 255; four bits keep 112 of 127, one bit keeps 128 of 128.
        assert_eq!(tone(0.0, 1.0, 4).of(0.5, 0.5), 112.0 / 255.0);
        assert_eq!(tone(0.0, 1.0, 1).of(129.0 / 255.0, 0.5), 128.0 / 255.0);
    }

    #[test]
    fn channels_are_scaled_by_their_own_range_and_vectors_by_that_of_the_row() {
        let ranges = |dims: &[usize], row: &[f32]| -> Vec<(f64, f64, f64)> {
            let scales = Channels::of(dims).scales(row);
            let told = |scale: &Scale| (scale.least, scale.range, scale.mean);
            scales.iter().map(told).collect()
        };
        let row = [0.0, 2.0, 4.0, 10.0, 10.0, 40.0];
        let expected = [(0.0, 4.0, 0.5), (10.0, 30.0, 10.0 / 30.0)];
        assert_eq!(ranges(&[2, 1, 3], &row), expected);
        assert_eq!(
            ranges(&[3, 2], &[0.0, 5.0, 1.0, 5.0, 2.0, 6.0])[0],
            (0.0, 2.0, 0.5)
        );
        for dims in [&[4][..], &[4, 1, 1], &[1, 4], &[2, 1, 1, 2]] {
            assert_eq!(
                ranges(dims, &[0.0, 8.0, 4.0, 4.0]),
                [(0.0, 8.0, 0.5); 4],
                "{dims:?}"
            );
        }
        let alike = Tensor::f32([1, 3], vec![2.0; 3]).unwrap();
        let all = "brightness=0.5,contrast=0.5,posterize=1,noise=1";
        assert_eq!(of(&alike, all, &["a"]), [2.0; 3]);
    }

    #[test]
    fn brightness_moves_a_channel_as_a_whole_within_its_range() {
        let rows = maps();
        let changed = of(&rows, "brightness=0.3", &["a", "b"]);
        let tones = varied("brightness=0.3", &["a", "b"]);
        let mut moved = 0;
        for (row, draw) in tones.draws.iter().enumerate() {
            for (channel, tone) in tones.tones(2, draw).iter().enumerate() {
                assert!(tone.added.abs() <= 0.3 && tone.factor == 1.0 && tone.bits == 8);
                let first = (row * 2 + channel) * 6;
                let (least, range) = (row as f32, [5.0, 50.0][channel]);
                let pairs = changed.iter().zip(rows.as_f32().unwrap());
                for (new, old) in pairs.skip(first).take(6) {
                    let expected = (old + tone.added as f32 * range).clamp(least, least + range);
                    assert!((new - expected).abs() < 1e-4, "{new} {expected}");
                    moved += usize::from((new - old).abs() > 1e-3);
                }
            }
        }
        assert!(moved > 12, "{moved}");
    }

    #[test]
    fn maps_are_mirrored_and_shifted_as_wholes() {
        let row: Vec<f32> = (1..=6).map(|value| value as f32).collect();
        let rows = Tensor::f32([1, 1, 2, 3], row.clone()).unwrap();
        assert_eq!(of(&rows, "hflip=1", &["a"]), [3., 2., 1., 6., 5., 4.]);
        let shifted = |down: i64, right: i64| -> Vec<f32> {
            let at = |line: i64, column: i64| {
                let inside = (0..2).contains(&line) && (0..3).contains(&column);
                if inside {
                    row[(line * 3 + column) as usize]
                } else {
                    0.0
                }
            };
            (0..6)
                .map(|place| at(place / 3 - down, place % 3 - right))
                .collect()
        };
        assert_eq!(shifted(1, -1), [0., 0., 0., 2., 3., 0.]);
        let all: Vec<Vec<f32>> = (-1..=1)
            .flat_map(|down| (-1..=1).map(move |right| (down, right)))
            .map(|(down, right)| shifted(down, right))
            .collect();
        let mut seen = vec![false; all.len()];
        for key in 0..200 {
            let found = of(&rows, "shift=1", &[&key.to_string()]);
            let which = all.iter().position(|expected| *expected == found);
            seen[which.unwrap()] = true;
        }
        assert_eq!(seen, [true; 9]);
    }

    #[test]
    fn noise_is_normal_in_parts_of_the_range() {
        let count = 4000;
        let mut row = vec![5.0; count];
        (row[0], row[1]) = (0.0, 10.0);
        let rows = Tensor::f32([1, count], row.clone()).unwrap();
        let changed = of(&rows, "noise=0.1", &["a"]);
        let noise: Vec<f32> = changed.iter().zip(&row).map(|(new, old)| new - old).collect();
        let mean = noise.iter().sum::<f32>() / count as f32;
        let deviation = (noise.iter().map(|value| value * value).sum::<f32>() / count as f32).sqrt();
        assert!(
            mean.abs() < 0.08 && (0.9..1.1).contains(&deviation),
            "{mean} {deviation}"
        );
    }

    #[test]
    fn a_row_is_varied_the_same_way_whatever_stands_beside_it() {
        let all = "brightness=0.3,contrast=0.2,posterize=4,hflip=0.5,shift=1,noise=0.05";
        let together = of(&maps(), all, &["a", "b"]);
        for (place, key) in ["a", "b"].into_iter().enumerate() {
            let row = maps().as_f32().unwrap()[place * 12..][..12].to_vec();
            let alone = of(&Tensor::f32([1, 2, 2, 3], row).unwrap(), all, &[key]);
            assert_eq!(alone, together[place * 12..][..12]);
        }
        let swapped = [&maps().as_f32().unwrap()[12..], &maps().as_f32().unwrap()[..12]].concat();
        let swapped = of(&Tensor::f32([2, 2, 2, 3], swapped).unwrap(), all, &["b", "a"]);
        assert_eq!(swapped[12..], together[..12]);
        let keys = || ["a", "b"].map(str::to_owned).into_iter();
        let drawn = |seed, epoch| Varied::draw(all.parse().unwrap(), seed, epoch, keys());
        assert_eq!(drawn(7, 3), varied(all, &["a", "b"]));
        assert!(drawn(7, 4) != drawn(7, 3) && drawn(8, 3) != drawn(7, 3));
        assert!(drawn(7, 3).draws[0] != drawn(7, 3).draws[1]);
    }

    #[test]
    fn an_operation_draws_the_same_with_others_beside_it() {
        let one = varied("brightness=0.3", &["a"]);
        let two = varied("brightness=0.3,contrast=0.2,posterize=2", &["a"]);
        let added = |varied: &Varied| -> Vec<f64> {
            let tones = varied.tones(5, &varied.draws[0]);
            tones.iter().map(|tone| tone.added).collect()
        };
        assert_eq!(added(&one), added(&two));
        let tones = two.tones(400, &two.draws[0]);
        assert!((2..=8).all(|bits| tones.iter().any(|tone| tone.bits == bits)));
        assert!(tones.iter().all(|tone| (2..=8).contains(&tone.bits)));
        assert!(tones.iter().all(|tone| (0.8..=1.2).contains(&tone.factor)));
    }

    #[test]
    fn rows_without_a_key_are_not_guessed_at() {
        assert!(varied("noise=0.1", &["a"]).apply(&maps()).is_err());
    }
}
