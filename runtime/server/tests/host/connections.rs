//! Limits on the number and duration of connections.

use crate::client::{End, STUCK, body, rows};
use crate::metrics::{metrics, value};
use crate::support::TestHost;
use bytes::Bytes;
use frostline_wire::RowFormat;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// Timeout that tests never reach.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// Timeout for tests in which it expires.
const SOON: Duration = Duration::from_millis(200);

/// An HTTP/2 connection that sends pings continuously.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    running: JoinHandle<hyper::Result<()>>,
}

impl Connection {
    async fn open(test: &TestHost, from: &str) -> Self {
        Self::with_window(test, from, None).await
    }

    /// Opens a connection with a flow control window of `window` bytes per stream.
    async fn with_window(test: &TestHost, from: &str, window: Option<u32>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let address = test.client.base.trim_start_matches("http://").parse().unwrap();
        let stream = socket.connect(address).await.unwrap();
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_millis(20))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(window)
            .max_frame_size(1 << 20)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        Self {
            sender,
            running: tokio::spawn(connection),
        }
    }

    async fn ask(
        &mut self,
        test: &TestHost,
        path: &str,
        token: Option<&str>,
    ) -> hyper::Result<Response<Incoming>> {
        let mut request = Request::builder().uri(format!("{}{path}", test.client.base));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = self.sender.send_request(request.body(Empty::new()).unwrap());
        tokio::time::timeout(STUCK, answer).await.expect("no answer")
    }

    async fn ended(self) {
        let ended = tokio::time::timeout(STUCK, self.running).await;
        let _ = ended.expect("the connection remained open").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_is_sent_in_small_frames() {
    let test = TestHost::start().await;
    let mut connection = Connection::open(&test, "127.0.0.2").await;
    let answer = connection.ask(&test, "/v1/probe?bytes=100000", Some(&test.client.token));
    let mut body = answer.await.unwrap().into_body();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.extend(frame.unwrap().data_ref().map(Bytes::len));
    }
    assert_eq!(pieces.iter().sum::<usize>(), 100_000);
    assert!(pieces.iter().all(|piece| *piece <= 16 << 10), "{pieces:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_1_connection_answers_one_request_with_an_unambiguous_end() {
    let test = TestHost::start().await;
    let answers = async |request: &str| {
        let mut stream = TcpStream::connect(test.host.as_ref().unwrap().address())
            .await
            .unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answers = Vec::new();
        let read = tokio::time::timeout(STUCK, stream.read_to_end(&mut answers)).await;
        // The host may reset the connection, because it does not read the second request.
        let _ = read.expect("the connection remained open");
        String::from_utf8(answers).unwrap()
    };
    let request = "GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    for twice in [request.repeat(2), request.replace("\r\n", "\n").repeat(2)] {
        let answers = answers(&twice).await;
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
        assert!(answers.contains("connection: close"), "{answers}");
    }
    let encoding = "transfer-encoding: chunked\r\n";
    for encodings in [encoding.repeat(2), encoding.replace(':', ": chunked,")] {
        let post = format!("POST /v1/extractions HTTP/1.1\r\nhost: a\r\n{encodings}\r\n0\r\n\r\n");
        let answers = answers(&(post + request)).await;
        assert!(
            answers.starts_with("HTTP/1.1 400") && answers.contains("Transfer-Encoding"),
            "{answers}"
        );
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_token_leave_room_for_tenants() {
    let test = TestHost::with(|settings| settings.limits.connections = 8).await;
    let mut strangers = Vec::new();
    let crowd = async |strangers: &mut Vec<Connection>| {
        for from in ["127.0.0.2", "127.0.0.3"].repeat(8) {
            let mut stranger = Connection::open(&test, from).await;
            let answer = stranger.ask(&test, "/healthz", None).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            strangers.push(stranger);
        }
    };
    crowd(&mut strangers).await;
    let token = Some(test.client.token.as_str());
    let mut tenant = Connection::open(&test, "127.0.0.4").await;
    let answer = tenant.ask(&test, "/v1/load", token).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    // The number of connections exceeds the limit again, and the tenant keeps the connection.
    crowd(&mut strangers).await;
    let answer = tenant.ask(&test, "/v1/load", token).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    for stranger in strangers.drain(..16) {
        stranger.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_per_address_are_limited_even_with_a_token() {
    let test = TestHost::with(|settings| settings.limits.connections = 8).await;
    let token = Some(test.client.token.as_str());
    let mut tenants = Vec::new();
    for _ in 0..4 {
        let mut tenant = Connection::open(&test, "127.0.0.2").await;
        tenant.ask(&test, "/v1/load", token).await.unwrap();
        tenants.push(tenant);
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let address = test.host.as_ref().unwrap().address();
    let mut fifth = socket.connect(address).await.unwrap();
    let closed = tokio::time::timeout(STUCK, fifth.read_u8()).await;
    assert!(closed.expect("the connection remained open").is_err());
    let metrics = body(test.client.send(Method::GET, "/metrics", "").await).await;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(
        metrics.contains("frostline_connections_refused_total 1"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_proxies_without_a_header_are_limited_and_counted() {
    let test = TestHost::limited(
        |settings| {
            settings.limits.connections = 8;
            settings.proxy_protocol_from = vec!["127.0.0.2".to_owned()];
        },
        |config| config.limits.header_time = NEVER,
    )
    .await;
    let address = test.host.as_ref().unwrap().address();
    let connect = async || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(address).await.unwrap()
    };
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(connect().await);
    }
    let closed = tokio::time::timeout(STUCK, connect().await.read_u8()).await;
    assert!(closed.expect("the connection remained open").is_err());
    let text = metrics(&test.client).await;
    assert_eq!(value(&text, "frostline_connections_refused_total"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_without_a_token_are_closed_despite_pings() {
    let test = TestHost::limited(
        |_| (),
        |config| (config.limits.header_time, config.limits.stall) = (SOON, NEVER),
    )
    .await;
    let mut asked = Connection::open(&test, "127.0.0.1").await;
    // On a slow machine, the host may close the connection before this request.
    let _ = asked.ask(&test, "/healthz", None).await;
    asked.ended().await;
    // An answer that the client never reads does not extend the timeout.
    let mut untaken = Connection::with_window(&test, "127.0.0.1", Some(0)).await;
    let answer = untaken.ask(&test, "/healthz", None).await;
    untaken.ended().await;
    drop(answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_of_tenants_are_closed() {
    let test = TestHost::limited(
        |_| (),
        |config| (config.limits.header_time, config.limits.stall) = (NEVER, SOON),
    )
    .await;
    let mut idle = Connection::open(&test, "127.0.0.1").await;
    let _ = idle.ask(&test, "/v1/load", Some(&test.client.token)).await;
    idle.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_answer_is_aborted_after_the_stall_timeout() {
    for http2 in [false, true] {
        let test = TestHost::limited(|_| (), |config| config.limits.stall = SOON).await;
        let request = test.large_request();
        let client = if http2 { test.http2() } else { test.client.clone() };
        let unread = client.extract(&request).await;
        test.wait_until_ended().await;
        let (_, end) = rows(RowFormat::Object, &request, unread).await;
        assert_eq!(end, End::Aborted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_host_stops_despite_open_connections() {
    let mut test = TestHost::start().await;
    let silent = TcpSocket::new_v4().unwrap();
    let silent = silent
        .connect(test.host.as_ref().unwrap().address())
        .await
        .unwrap();
    let mut untaken = Connection::with_window(&test, "127.0.0.1", Some(0)).await;
    let answer = untaken.ask(&test, "/healthz", None).await.unwrap();
    let stopping = test.host.take().unwrap().shutdown(NEVER);
    tokio::time::timeout(STUCK, stopping)
        .await
        .expect("shutdown waits for clients without a token");
    drop((silent, answer));
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_to_the_admin_socket_are_closed() {
    let test = TestHost::limited(|_| (), |config| config.limits.stall = SOON).await;
    let socket = test.folder.path().join("admin.sock");
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(tokio::net::UnixStream::connect(&socket).await.unwrap());
    }
    let asked = tokio::time::timeout(STUCK, test.running()).await;
    assert_eq!(asked.expect("idle admin connections were not closed"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_proxy_announces_client_addresses() {
    let test = TestHost::with(|settings| settings.proxy_protocol_from = vec!["127.0.0.1".to_owned()]).await;
    let address = test.client.base.trim_start_matches("http://").to_owned();
    let ask = async |proxied: &str| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let request =
            "GET /v1/load HTTP/1.1\r\nhost: a\r\nauthorization: Bearer wrong\r\nconnection: close\r\n\r\n";
        let sent = format!("{proxied}{request}");
        // The host may close the connection immediately and read nothing.
        stream.write_all(sent.as_bytes()).await.ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        String::from_utf8(answer).unwrap()
    };
    let here = "PROXY TCP4 192.0.2.1 192.0.2.9 1 2\r\n";
    // Invalid tokens only throttle the client that sent them, not others behind the same proxy.
    for _ in 0..20 {
        ask(here).await;
    }
    let slowed = ask(here).await;
    assert!(
        slowed.starts_with("HTTP/1.1 429") && slowed.contains("192.0.2.1"),
        "{slowed}"
    );
    let other = ask("PROXY TCP4 192.0.2.2 192.0.2.9 1 2\r\n").await;
    assert!(other.starts_with("HTTP/1.1 401"), "{other}");
    assert_eq!(ask("").await, "", "connections without proxy header are closed");
}
