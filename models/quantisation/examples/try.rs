use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_quantisation::*;
use frostline_tensor::Tensor;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let model = Model::read(std::path::Path::new(&args[1])).unwrap();
    let freeze = &args[2];
    let raw = std::fs::read(&args[3]).unwrap();
    let x: Vec<f32> = raw.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let n = x.len() / 150528;
    let x = Tensor::f32([n, 3, 224, 224], x).unwrap();
    let input = model.input_name().unwrap().to_owned();
    let opts = SessionOptions::default();
    let t = Instant::now();
    let mut cal = Calibration::new(&model, freeze).unwrap();
    let mut s = Session::open(&cal.model().to_bytes().unwrap(), &opts).unwrap();
    for i in 0..4 { let out = s.run(&[(&input, &x.slice_rows(i * 8, i * 8 + 8).unwrap())]).unwrap(); cal.add(&out); }
    let ranges = cal.ranges();
    println!("calibrated {:.1}s, {} bytes json", t.elapsed().as_secs_f64(), serde_json::to_string(&ranges).unwrap().len());
    let rate = |m: &Model| {
        let mut s = Session::open(&m.to_bytes().unwrap(), &opts).unwrap();
        let rows = x.slice_rows(32, 40).unwrap();
        let mut best = f64::MAX;
        let mut out = None;
        for _ in 0..4 { let t = Instant::now(); out = Some(s.run(&[(&input, &rows)]).unwrap().remove(0).1); best = best.min(t.elapsed().as_secs_f64()); }
        (8.0 / best, out.unwrap())
    };
    let (f, exact) = rate(&model.slice(None, Some(freeze)).unwrap());
    println!("f32 {f:.1}/s");
    if args.len() > 4 {
        let base = Recipe::new(WeightBits::Eight);
        let mut names: Vec<String> = model.nodes().iter().filter(|n| n.op_type == "Conv").map(|n| n.output[0].clone()).collect();
        names.insert(0, "none".into());
        for name in names {
            let mut r = base.clone(); r.in_f32.insert(name.clone());
            let q = quantise(&model, freeze, &ranges, &r).unwrap();
            let (s, rows) = rate(&q.model.slice(None, Some(freeze)).unwrap());
            println!("without {name}: {:.5} {:.2}x", cosine(&exact, &rows), s / f);
        }
        return;
    }
    for scope in [0, 1] { for weights in [WeightBits::Eight, WeightBits::Seven] {
        let t = Instant::now();
        let q = quantise(&model, freeze, &ranges, &{ let mut r = Recipe::new(weights); if scope == 1 { let init = model.initializers(); for n in model.nodes() { if n.op_type == "Conv" && n.int("group").unwrap_or(1) > 1 { r.in_f32.insert(n.output[0].clone()); } } let _ = init; } r }).unwrap();
        let part = q.model.slice(None, Some(freeze)).unwrap();
        let took = t.elapsed().as_secs_f64();
        let (r, rows) = rate(&part);
        let cuts = q.model.network().unwrap().cuts;
        println!("{scope:?} {weights:?}: {:.2}x cosine {:.5}, {} of {} layers, {} bytes, cuts {} {took:.1}s", r / f, cosine(&exact, &rows), q.layers, q.of, part.to_bytes().unwrap().len(), cuts.len());
        if weights == WeightBits::Eight {
            // a split in the middle
            let cut = &cuts[cuts.iter().position(|c| &c.name == freeze).unwrap() / 2].name;
            let p = q.model.slice(None, Some(cut)).unwrap(); let m = q.model.slice(Some(cut), Some(freeze)).unwrap();
            let (pr, mid) = rate(&p);
            let mut s = Session::open(&m.to_bytes().unwrap(), &opts).unwrap();
            let t = Instant::now();
            let got = s.run(&[(cut.as_str(), &mid)]).unwrap().remove(0).1;
            println!("   split at {cut}: equal {} cosine {:.9}; prefix {:.1} ms/im, middle {:.1} ms/im, whole {:.1}", got == rows, cosine(&rows, &got), 1000.0 / pr, t.elapsed().as_secs_f64() * 125.0, 1000.0 / r);
        }
    } }
}
