//! Loads graphs other than stages of the model, under file paths, the name of a model and a very long name.

use frostline_hostile::frostline_guest::bindings::wasi::nn::graph::load_by_name;

frostline_hostile::extracts!("unknown_graph", |job| {
    for name in ["../../etc/passwd", "other-model", "data", &"x".repeat(1 << 20)] {
        if load_by_name(name).is_ok() {
            return frostline_hostile::answer(&job);
        }
    }
    load_by_name("../other/features")?;
    frostline_hostile::answer(&job)
});
