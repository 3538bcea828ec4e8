//! Allocates memory for each sample of a call. The parameters of the job are the MiB per sample.

frostline_hostile::extracts!("memory_per_sample", |job| {
    let mib: usize = job
        .parameters
        .parse()
        .map_err(|_| Error::invalid("the parameters must be a number"))?;
    let kept: Vec<Vec<u8>> = job.samples.iter().map(|_| vec![1; mib << 20]).collect();
    std::hint::black_box(&kept);
    frostline_hostile::answer(&job)
});
