//! A process that plays a part: see `frostline_isolation::play`.

fn main() -> anyhow::Result<()> {
    frostline_isolation::play(std::env::args_os().skip(1))
}
