//! Who may keep a connection, for how long, and who goes when there are too many.

use crate::client::{End, STUCK, body, rows};
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

/// Long enough that a test which waits for it is stuck.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// Short enough that no test waits long for it.
const SOON: Duration = Duration::from_millis(200);

/// One HTTP/2 connection that gives signs of life all the time.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    running: JoinHandle<hyper::Result<()>>,
}

impl Connection {
    async fn open(test: &TestHost, from: &str) -> Self {
        Self::with_window(test, from, None).await
    }

    /// `window` is how much of each answer the host may send before more is asked for.
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
        let _ = ended.expect("the connection was kept").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_comes_in_pieces_that_arrive_one_after_another_on_a_slow_link() {
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
async fn strangers_leave_room_for_whoever_has_a_token() {
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
    // More come than the host has places for, and the tenant keeps its own.
    crowd(&mut strangers).await;
    let answer = tenant.ask(&test, "/v1/load", token).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    for stranger in strangers.drain(..16) {
        stranger.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_does_not_take_all_places_even_with_a_token() {
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
    assert!(closed.expect("it was taken").is_err());
    let metrics = body(test.client.send(Method::GET, "/metrics", "").await).await;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(
        metrics.contains("frostline_connections_refused_total 1"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_that_asks_for_nothing_goes_whatever_signs_of_life_it_gives() {
    let test = TestHost::limited(
        |_| (),
        |config| (config.limits.header_time, config.limits.stall) = (SOON, NEVER),
    )
    .await;
    let mut asked = Connection::open(&test, "127.0.0.1").await;
    // Where this machine is slow it may be gone before it has asked.
    let _ = asked.ask(&test, "/healthz", None).await;
    asked.ended().await;
    // An answer that is never taken is nothing that is waited for either.
    let mut untaken = Connection::with_window(&test, "127.0.0.1", Some(0)).await;
    let answer = untaken.ask(&test, "/healthz", None).await;
    untaken.ended().await;
    drop(answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_connection_goes_when_it_asks_for_nothing() {
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
async fn who_reads_nothing_of_an_answer_loses_its_place_and_the_connection() {
    for http2 in [false, true] {
        let test = TestHost::limited(|_| (), |config| config.limits.stall = SOON).await;
        let request = test.large();
        let client = if http2 { test.http2() } else { test.client.clone() };
        let unread = client.extract(&request).await;
        test.ended().await;
        let (_, end) = rows(RowFormat::Object, &request, unread).await;
        assert_eq!(end, End::Aborted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_nothing_to_do_stops_at_once_whoever_holds_a_connection() {
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
        .expect("it waits for strangers");
    drop((silent, answer));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_says_nothing_at_the_admins_socket_takes_no_place_there_for_long() {
    let test = TestHost::limited(|_| (), |config| config.limits.stall = SOON).await;
    let socket = test.folder.path().join("admin.sock");
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(tokio::net::UnixStream::connect(&socket).await.unwrap());
    }
    let asked = tokio::time::timeout(STUCK, test.running()).await;
    assert_eq!(asked.expect("no place was given back"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_by_a_trusted_proxy_is_told_apart_by_what_it_says() {
    let test = TestHost::with(|settings| settings.proxy_protocol_from = vec!["127.0.0.1".to_owned()]).await;
    let address = test.client.base.trim_start_matches("http://").to_owned();
    let ask = async |proxied: &str| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let request =
            "GET /v1/load HTTP/1.1\r\nhost: a\r\nauthorization: Bearer wrong\r\nconnection: close\r\n\r\n";
        let sent = format!("{proxied}{request}");
        // Of a connection that is closed at once nothing may be taken.
        stream.write_all(sent.as_bytes()).await.ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        String::from_utf8(answer).unwrap()
    };
    let here = "PROXY TCP4 192.0.2.1 192.0.2.9 1 2\r\n";
    // Bad tokens slow down the client that shows them, and no other behind the proxy.
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
    assert_eq!(ask("").await, "", "without a header nobody is served");
}
