use std::time::Duration;

/// How long a client waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// For a connection.
    pub connect: Duration,
    /// For the head of an answer, once the request's body is sent. Covers the compilation of a guest, the first load of a
    /// model and an extraction's time in the host's queue.
    pub answer: Duration,
    /// For the next piece of a body, in either direction. Covers one grant: up to some hundred samples through a deep
    /// prefix on a busy host.
    pub idle: Duration,
    /// For what a model takes on the host, before a job that can start without.
    pub profile: Duration,
    /// Between signs of life of the connection itself; a host that lost power is noticed after twice this.
    pub ping: Duration,
}

impl Default for Deadlines {
    /// A host gives up measuring after 60 s, and the slowest of the usual networks takes half of that; a quarter more is for loading the
    /// model and for a profile that is being measured already. What takes longer is a wait behind others, whose end nobody knows.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(180),
            idle: Duration::from_secs(120),
            profile: Duration::from_secs(75),
            ping: Duration::from_secs(15),
        }
    }
}
