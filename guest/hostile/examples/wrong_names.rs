//! Returns a tensor under the name of another one.

frostline_hostile::extracts!("wrong_names", |job| {
    let mut extracted = frostline_hostile::answer(&job)?;
    extracted.tensors[0].0 = "x".repeat(1 << 20);
    Ok(extracted)
});
