//! Requests the size of an object a million times.

use frostline_hostile::frostline_guest::objects;

frostline_hostile::extracts!("ask_sizes", |samples, _| {
    let key = frostline_hostile::first_key(&samples);
    for _ in 0..1_000_000 {
        objects::size(&key)?;
    }
    Ok(frostline_hostile::answer(&samples))
});
