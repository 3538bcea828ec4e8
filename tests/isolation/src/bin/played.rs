//! Process that simulates an attacker or a restricted kernel; see `frostline_isolation::run_simulation`.

fn main() -> anyhow::Result<()> {
    frostline_isolation::run_simulation(std::env::args_os().skip(1))
}
