use crate::Recipe;
use frostline_compute::Mix;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Beta, Distribution};

/// Stream for mixing. ChaCha streams are independent, so other uses of the seed do not interfere.
const STREAM: u64 = 1 << 62;

/// Draws the mixing for the batch of step `step`. Returns `None` if the recipe does not mix.
pub(super) fn draw(recipe: &Recipe, step: u64) -> Option<Mix> {
    let mut random = ChaCha8Rng::seed_from_u64(recipe.seed);
    random.set_stream(STREAM | step);
    let coin = unit(&mut random) < 0.5;
    let up = recipe.mixup_alpha > 0.0;
    let cut = recipe.cutmix_alpha > 0.0;
    if up && (coin || !cut) {
        let own = draw_own(recipe.mixup_alpha, &mut random)?;
        return Some(Mix::Up { own: own as f32 });
    }
    cut.then(|| {
        Some(Mix::Cut {
            own: draw_own(recipe.cutmix_alpha, &mut random)?,
            center: [unit(&mut random), unit(&mut random)],
        })
    })?
}

/// Draws the part of the original row. Returns `None` if `alpha` is not valid.
fn draw_own(alpha: f64, random: &mut ChaCha8Rng) -> Option<f64> {
    Some(Beta::new(alpha, alpha).ok()?.sample(random))
}

/// Returns a uniform random number in `[0, 1)`.
fn unit(random: &mut impl Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_mixed_the_same_way_again_and_both_ways_come() {
        let recipe = Recipe {
            mixup_alpha: 0.2,
            cutmix_alpha: 1.0,
            ..Recipe::default()
        };
        assert_eq!(draw(&Recipe::default(), 1), None);
        let drawn: Vec<Mix> = (0..400).filter_map(|step| draw(&recipe, step)).collect();
        assert_eq!(drawn.len(), 400);
        assert_eq!(draw(&recipe, 7).as_ref(), drawn.get(7));
        let ups: Vec<f32> = drawn
            .iter()
            .filter_map(|mix| match mix {
                Mix::Up { own } => Some(*own),
                Mix::Cut { .. } => None,
            })
            .collect();
        assert!((140..260).contains(&ups.len()), "{}", ups.len());
        // Beta(0.2, 0.2) is concentrated near 0 and 1. About a third of the distribution is between 0.1 and
        // 0.9.
        let inner = ups.iter().filter(|own| (0.1..0.9).contains(*own)).count() as f64 / ups.len() as f64;
        assert!((0.2..0.55).contains(&inner), "{inner}");
    }
}
