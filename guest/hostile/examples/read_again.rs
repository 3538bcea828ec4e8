//! Reads a byte of an object a million times.

use frostline_hostile::frostline_guest::objects;

frostline_hostile::extracts!("read_again", |samples, _| {
    let key = frostline_hostile::first_key(&samples);
    for _ in 0..1_000_000 {
        objects::read(&key, 0, 1)?;
    }
    Ok(frostline_hostile::answer(&samples))
});
