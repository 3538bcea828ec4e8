//! Stores with separate settings: keys in a file that changes, a role, an authority.

use crate::server::{S3Server, Server, whole};
use frostline_objects::{Fault, KeysFile, ObjectError, OwnStore, Role, Store};
use hyper::{Response, StatusCode};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn write_keys(path: &Path, id: &str, secret: &str) {
    let text = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    // Tools replace the file atomically, so that it is never incomplete.
    let staged = path.with_extension("new");
    std::fs::write(&staged, text).unwrap();
    std::fs::rename(staged, path).unwrap();
}

fn own(server: &S3Server, keys: &Path) -> OwnStore {
    let variables = [
        ("AWS_ENDPOINT_URL", server.endpoint()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    OwnStore {
        bucket: Some("photos".to_owned()),
        variables: variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        keys: Some(KeysFile {
            path: keys.to_owned(),
            profile: "default".to_owned(),
        }),
        role: None,
    }
}

#[tokio::test]
async fn keys_in_a_file_are_read_again_when_it_changes() {
    let server = S3Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    server.contents.put("root/a.jpg", "photo");
    let keys = folder.path().join("keys");
    let missing = Store::open_own("s3://alias/root", &own(&server, &keys)).unwrap_err();
    assert!(matches!(&missing, ObjectError::Root { .. }), "{missing}");
    write_keys(&keys, "id", "geheim");
    let store = Store::open_own("s3://alias/root", &own(&server, &keys)).unwrap();
    let denied = store.read("a.jpg").await.unwrap_err();
    let text = denied.to_string();
    assert!(
        text.contains("[store.BUCKET]") && text.contains("s3://alias/root") && !text.contains("geheim"),
        "{text}"
    );
    write_keys(&keys, "id", "key");
    let until = Instant::now() + Duration::from_secs(60);
    let read = loop {
        match store.read("a.jpg").await {
            Err(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(50)).await,
            read => break read,
        }
    };
    assert_eq!(read.unwrap(), "photo", "the store was not opened again");
}

#[tokio::test]
async fn a_role_is_taken_on_with_its_external_id_once_for_many_requests() {
    let server = S3Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    server.contents.put("a.jpg", "photo");
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let sts = Server::start(move |request| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let signed = request.headers()["authorization"].to_str().unwrap().to_owned();
        let strange = query.contains("stranger");
        seen.lock().unwrap().push(format!("{query} {signed}"));
        async move {
            let mut answer = Response::new(whole(
                "<t:AssumeRoleResponse xmlns:t=\"urn:t\"><t:Credentials><t:AccessKeyId>id</t:AccessKeyId>\
                 <t:SecretAccessKey type=\"string\">key</t:SecretAccessKey>\
                 <t:SessionToken>a/b+c==</t:SessionToken></t:Credentials></t:AssumeRoleResponse>",
            ));
            if strange {
                *answer.status_mut() = StatusCode::FORBIDDEN;
            }
            Ok(answer)
        }
    })
    .await;
    let keys = folder.path().join("keys");
    write_keys(&keys, "base", "geheim");
    let of_role = |id: &str| OwnStore {
        role: Some(Role {
            arn: "arn:aws:iam::1:role/reader".to_owned(),
            external_id: Some(id.to_owned()),
            sts: Some(format!("http://{}", sts.address)),
        }),
        ..own(&server, &keys)
    };
    let store = Store::open_own("s3://photos", &of_role("acme")).unwrap();
    for _ in 0..3 {
        assert_eq!(store.read("a.jpg").await.unwrap(), "photo");
    }
    let asked = asked.lock().unwrap().clone();
    let [once] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    for part in [
        "Action=AssumeRole",
        "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Freader",
        "ExternalId=acme",
        "Credential=base/",
        "/sts/aws4_request",
    ] {
        assert!(once.contains(part), "{part} in {once}");
    }
    let refused = Store::open_own("s3://photos", &of_role("stranger")).unwrap();
    let refused = refused.read("a.jpg").await.unwrap_err();
    assert_eq!(refused.fault(), Some(Fault::Credentials), "{refused}");
    assert!(refused.to_string().contains("external_id"), "{refused}");
}

mod trust {
    use super::*;
    use http_body_util::Full;
    use hyper::body::Bytes;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rcgen::generate_simple_self_signed;
    use std::convert::Infallible;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio_rustls::rustls::{ServerConfig, crypto};

    #[tokio::test]
    async fn an_authority_of_ones_own_is_trusted_by_its_file() {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = crypto::CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| crypto::ring::default_provider().into());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let empty = "<ListBucketResult><Name>photos</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>";
                let answer = service_fn(move |_| async move {
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(empty))))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, made.cert.pem()).unwrap();
        let settings = [
            ("AWS_ENDPOINT_URL", format!("https://localhost:{port}")),
            ("AWS_SKIP_SIGNATURE", "true".to_owned()),
            ("AWS_CA_BUNDLE", ca.to_str().unwrap().to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        let without = Store::open_with("s3://photos", settings[..2].to_vec()).unwrap();
        let refused = without.list(None, 1).await.unwrap_err();
        assert_eq!(refused.fault(), Some(Fault::Unreachable));
        assert!(refused.to_string().contains("AWS_CA_BUNDLE"), "{refused}");
        let with = Store::open_with("s3://photos", settings.to_vec()).unwrap();
        assert!(with.list(None, 1).await.unwrap().objects.is_empty());
        std::fs::write(&ca, "no certificate").unwrap();
        let unusable = Store::open_with("s3://photos", settings).unwrap_err().to_string();
        assert!(unusable.contains("ca.pem"), "{unusable}");
        serving.abort();
    }
}
