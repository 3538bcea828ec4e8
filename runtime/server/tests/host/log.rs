//! Contents of the host's log.

use crate::support::{TestHost, rerun_in_own_process};
use http::{Method, StatusCode};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// Captured log of this process.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Starts capturing the log of this process. See [`rerun_in_own_process`].
    pub(crate) fn start(level: Level) -> Self {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asked_who_tries_tokens_and_why_the_host_stops_is_logged() {
    if rerun_in_own_process("log::who_asked_who_tries_tokens_and_why_the_host_stops_is_logged") {
        return;
    }
    let log = Log::start(Level::INFO);
    let mut test = TestHost::start().await;
    test.load().await;
    let line = |word: &str| {
        let text = log.text();
        let line = text.lines().find(|line| line.contains(word)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no {word} in\n{text}"))
    };
    assert!(
        line("answered").contains("peer=127.0.0.1"),
        "{}",
        line("answered")
    );
    let stranger = test.client_of("geraten");
    for _ in 0..9 {
        let answer = stranger.send(Method::GET, "/v1/load", "").await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    }
    let warned = line("many invalid tokens");
    assert!(
        warned.contains("WARN") && warned.contains("from=127.0.0.1"),
        "{warned}"
    );
    test.host.take().unwrap().shutdown(Duration::from_secs(7)).await;
    assert!(
        line("shutting down").contains("drain_seconds=7"),
        "{}",
        line("shutting down")
    );
    line("stopped");
    assert!(!log.text().contains("geraten"));
}
