//! Shared models, published by an admin for all tenants, and disabled guests.

use crate::admin_host::AdminHost;
use crate::harness::{demo, events, series, sorted};
use crate::raw::RawClient;
use frostline_graph::Model;
use frostline_graph::onnx::OperatorSetId;
use prost::Message;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Returns the upload event of the network's layers.
fn layers(run: &[Value]) -> &Value {
    let upload = |event: &&Value| event["event"] == "upload" && event["what"] == "model";
    run.iter().find(upload).unwrap()
}

impl AdminHost {
    fn models(&self, token: &Path) -> Vec<Value> {
        let run = self.tenant(token, &["model", "list", "--json"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        run.objects().unwrap()
    }
}

#[test]
fn a_shared_model_serves_every_tenant_until_it_is_removed() {
    let place = AdminHost::new();
    let (acme, other) = (place.add("acme"), place.add("other"));
    let first = events(&place.train(&acme));
    let name = layers(&first)["name"].as_str().unwrap();
    // The uploaded model as stored in the host's state.
    let sent = sorted(&place.scratch.path("state/blobs/models/acme")).remove(0);
    let published = place.answer(&["model", "push", name, sent.to_str().unwrap()]);
    let version = &published["versions"][0];
    assert_eq!(published["tenant"], Value::Null);
    assert_eq!(version["bytes"], layers(&first)["bytes"]);

    let second = events(&place.train(&other));
    assert_eq!(layers(&second)["skipped"], true, "the shared model is sufficient");
    let seen = place.models(&other);
    assert_eq!(
        (&seen[0]["name"], &seen[0]["shared"]),
        (&name.into(), &true.into())
    );
    assert_eq!(seen[0]["sha256"], version["sha256"]);
    let own = place.models(&acme);
    assert_eq!(
        (own.len(), &own[0]["shared"]),
        (1, &false.into()),
        "expected precedence of the tenant's model"
    );
    assert!(place.answers(&["model", "list", "other"]).is_empty());
    let all = place.answers(&["model", "list"]);
    let tenants: Vec<&Value> = all.iter().map(|model| &model["tenant"]).collect();
    assert_eq!(tenants, [&Value::Null, &"acme".into()]);

    assert_eq!(
        place.admin(&["model", "remove", name]).code,
        Some(1),
        "not confirmed"
    );
    place.answer(&["model", "remove", name, "--yes"]);
    assert!(place.models(&other).is_empty());
    assert_eq!(place.models(&acme).len(), 1);
    assert_eq!(layers(&events(&place.train(&other)))["skipped"], false);
    let audit = place.admin(&["audit"]).stdout;
    for what in ["model published", "model withdrawn"] {
        assert!(audit.contains(what), "{audit}");
    }
}

#[test]
fn a_shared_model_is_checked_and_named_like_any_other() {
    let place = AdminHost::new();
    let mut proto = Model::read(demo("backbone.onnx")).unwrap().into_proto();
    proto.opset_import.push(OperatorSetId {
        domain: "com.example".to_owned(),
        version: 1,
    });
    proto.graph.as_mut().unwrap().node[0].domain = "com.example".to_owned();
    let custom = place.scratch.path("custom.onnx");
    fs::write(&custom, proto.encode_to_vec()).unwrap();
    for (name, file, word) in [
        ("Upper", demo("backbone.onnx"), "invalid name"),
        ("a", place.scratch.path("nothing.onnx"), "nothing.onnx"),
        ("a", demo("README.md"), "README.md"),
        ("a", custom, "com.example"),
    ] {
        let run = place.admin(&["model", "push", name, file.to_str().unwrap()]);
        assert_ne!(run.code, Some(0), "{run:?}");
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
    assert!(place.answers(&["model", "list"]).is_empty());
    let backbone = demo("backbone.onnx");
    for _ in 0..2 {
        let published = place.answer(&["model", "push", "backbone", backbone.to_str().unwrap()]);
        assert_eq!(published["versions"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_disabled_guest_is_refused_until_it_is_enabled() {
    let place = AdminHost::new();
    let acme = place.add("acme");
    events(&place.train(&acme));
    fs::remove_file(place.scratch.path("tuned.onnx")).unwrap();
    let guests = place.answers(&["guest", "list"]);
    assert_eq!(guests[0]["tenant"], "acme");
    let guest = guests[0]["name"].as_str().unwrap();
    let named = format!("acme/{guest}");
    let shown = place.answer(&["guest", "disable", &named]);
    assert_eq!(shown["disabled"], true);
    place.scratch.assert_failed(
        &place.train(&acme),
        &[guest, "is disabled", &format!("admin guest enable {named}")],
    );
    let seen = place.guests(&acme).objects().unwrap();
    assert_eq!(seen[0]["disabled"], true);
    let removed = place.tenant(&acme, &["guest", "remove", guest]);
    assert_eq!(removed.code, Some(1), "a tenant cannot remove a disabled guest");
    assert!(removed.stderr.contains("is disabled"), "{}", removed.stderr);
    let shown = place.answer(&["guest", "show", &named]);
    assert_eq!(shown["versions"][0]["sha256"], seen[0]["sha256"]);

    assert_eq!(place.answer(&["guest", "enable", &named])["disabled"], false);
    events(&place.train(&acme));
    let audit = place.admin(&["audit", "--tenant", "acme"]).stdout;
    for what in ["guest disabled", "guest enabled"] {
        assert!(audit.contains(what), "{audit}");
    }
    for arguments in [
        ["guest", "disable", "acme/nothing"],
        ["guest", "show", "nobody/a"],
    ] {
        let run = place.admin(&arguments);
        assert_eq!(run.code, Some(1));
        assert!(run.stderr.contains("unknown guest"), "{}", run.stderr);
    }
}

/// Parameters of the stock guest that prepare photos for the demo's backbone.
const PIXELS: &str =
    r#"{"resize":128,"crop_height":128,"crop_width":128,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5]}"#;

mod long {
    use super::*;

    #[test]
    fn a_trainer_uploads_nothing_for_a_shared_network() {
        let place = AdminHost::new();
        let acme = place.add("acme");
        let own = events(&place.train(&acme));
        let other = place.add("other");
        place.answer(&[
            "model",
            "push",
            "backbone",
            demo("backbone.onnx").to_str().unwrap(),
        ]);
        let shared = events(&place.train(&other));
        assert_eq!(layers(&shared)["name"], "backbone");
        assert_eq!(layers(&shared)["skipped"], true);
        assert!(place.answers(&["model", "list", "other"]).is_empty());
        assert_eq!(series(&shared, "step", "loss"), series(&own, "step", "loss"));
    }

    #[test]
    fn disabling_a_guest_cuts_off_its_extraction() {
        let place = AdminHost::new();
        let acme = place.add("acme");
        events(&place.train(&acme));
        let guests = place.answers(&["guest", "list", "acme"]);
        let named = format!("acme/{}", guests[0]["name"].as_str().unwrap());
        let asker = RawClient::new(place.host.address(), &acme);
        let root = format!("file://{}", place.scratch.path("photos").display());
        // The request is for 1 GB of activations. The host produces only as much as the client reads.
        let request = asker.extraction(&root, "stem", PIXELS, 4096);
        let mut stream = asker.send("POST", "/v1/extractions", &request);
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        place.answer(&["guest", "disable", &named]);
        let mut rest = Vec::new();
        // The host may reset the connection if data remains unread.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 4096 * 262_144, "received {} bytes", rest.len());
        assert!(
            !rest.ends_with(b"0\r\n\r\n"),
            "the answer ended like a complete answer"
        );
    }
}
