//! Floods: permitted requests in excessive number.

use crate::neighbor::{distinct, photos, upload_ref};
use crate::scene::{Scene, backbone};
use anyhow::Result;
use frostline_client::UploadKind;
use frostline_trainer::Guest;
use frostline_wire::{Layout, Precision, ProfileRequest};
use std::pin::Pin;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Runs one round of a flood. Requests differ by the number of the round.
pub(crate) type Flood = for<'a> fn(&'a Scene, usize) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// All floods. Each is run by a separate tenant.
pub(crate) const FLOODS: [Flood; 5] = [
    |scene, round| Box::pin(uploads(scene, round)),
    |scene, round| Box::pin(deletions(scene, round)),
    |scene, _| Box::pin(listings(scene)),
    |scene, _| Box::pin(profiles(scene)),
    |scene, _| Box::pin(connections(scene)),
];

/// Number of concurrent requests.
const AT_ONCE: usize = 32;

/// Duration of idle or incomplete connections.
const STAY: Duration = Duration::from_secs(1);

/// Uploads and removes a new version of a guest.
async fn uploads(scene: &Scene, round: usize) -> Result<()> {
    let client = scene.client()?;
    let guest = distinct(&Guest::stock().bytes, round);
    client.push_guest("flood", guest.into()).await?;
    client.remove(UploadKind::Guest, "flood").await?;
    Ok(())
}

/// Deletes missing guests.
async fn deletions(scene: &Scene, round: usize) -> Result<()> {
    let client = scene.client()?;
    let mut deleting = JoinSet::new();
    for number in 0..AT_ONCE {
        let (client, name) = (client.clone(), format!("absent-{round}-{number}"));
        deleting.spawn(async move { client.remove(UploadKind::Guest, &name).await });
    }
    deleting.join_all().await;
    Ok(())
}

/// Lists everything. Half of the requests use a subfolder as data root.
async fn listings(scene: &Scene) -> Result<()> {
    let (client, root) = (scene.client()?, scene.root()?);
    let mut listing = JoinSet::new();
    for number in 0..AT_ONCE {
        let below = if number % 2 == 0 { "" } else { "/photos" };
        let (client, root) = (client.clone(), format!("{root}{below}"));
        listing.spawn(async move { client.listing(&root, Layout::Auto).await.map(drop) });
    }
    listing.join_all().await;
    Ok(())
}

/// Requests profiles of a network.
async fn profiles(scene: &Scene) -> Result<()> {
    let client = scene.client()?;
    let guest = client.push_guest("prefix", Guest::stock().bytes).await?;
    let model = client.push_model("backbone", backbone()?).await?;
    let request = ProfileRequest {
        root: scene.root()?,
        guest: upload_ref("prefix", &guest.sha256),
        model: upload_ref("backbone", &model.sha256),
        parameters: String::new(),
        cuts: vec!["features".to_owned()],
        samples: photos(scene, 4),
        view: None,
        precision: Precision::Full,
        wait_seconds: Some(1),
    };
    client.profile(&request).await?;
    Ok(())
}

/// Opens connections to all hosts, over IPv4 and IPv6.
async fn connections(scene: &Scene) -> Result<()> {
    let mut open = Vec::new();
    for host in [0, 1] {
        for number in 0..AT_ONCE {
            let mut stream = TcpStream::connect(scene.on(host).direct_address()?).await?;
            if number % 2 == 0 {
                stream.write_all(b"GET /v1/guests HTT").await?;
            }
            open.push(stream);
        }
    }
    tokio::time::sleep(STAY).await;
    Ok(())
}
