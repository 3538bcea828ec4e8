//! Loops in `describe` without end.

frostline_hostile::behaves!(
    |model, _, description| {
        let mut turns = model.cuts.len() as u64;
        while std::hint::black_box(turns) != u64::MAX {
            turns = turns.wrapping_add(2) & !1;
        }
        frostline_hostile::describe("spin_in_describe", &model, description)
    },
    |job| frostline_hostile::answer(&job)
);
