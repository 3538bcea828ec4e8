use crate::fakes::{sandbox, small};
use crate::files::{built, stock};
use frostline_sandbox::{Sandbox, SandboxConfig, SandboxError};

async fn refused(bytes: &[u8]) -> SandboxError {
    match sandbox().prepare(bytes.to_vec()).await {
        Ok(guest) => panic!("{} was accepted", guest.sha256()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn invalid_uploads_are_described() {
    for (bytes, words) in [
        (&b""[..], "empty"),
        (b"import torch\n", "text file"),
        (b"(module)", "text format"),
        (b"\x7fELF\x02\x01\x01", "not WebAssembly"),
        (b"\xff\xd8\xff\xe0", "not a WebAssembly binary"),
        (b"\0asm\x0d\0\x01\0\xff\xff", ""),
    ] {
        let error = refused(bytes).await;
        assert!(matches!(error, SandboxError::NotAGuest { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// A core module for another host that imports `load`.
#[tokio::test]
async fn a_module_for_legacy_wasi_nn_is_refused_with_advice() {
    let module = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x1a\x01\x11wasi_ephemeral_nn\x04load\0\0";
    let text = refused(module).await.to_string();
    assert!(
        text.contains("wasi_ephemeral_nn.load")
            && text.contains("load-by-name")
            && text.contains("guest new"),
        "{text}"
    );
}

#[tokio::test]
async fn an_empty_component_lacks_the_exports() {
    // The host converts core modules to components before checking exports.
    for bytes in [b"\0asm\x0d\0\x01\0", b"\0asm\x01\0\0\0"] {
        let error = refused(bytes).await;
        assert!(
            matches!(&error, SandboxError::OtherWorld { imports, exports, .. } if imports.is_empty() && exports.len() == 1)
        );
    }
}

mod needs_guests {
    use super::*;

    #[tokio::test]
    async fn a_component_of_another_world_is_refused() {
        let error = refused(&built("other-world")).await;
        let SandboxError::OtherWorld { imports, exports, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(imports, &["other:place/sockets@1.2.3"]);
        assert_eq!(exports, &[frostline_sandbox::EXPORT]);
        let text = error.to_string();
        assert!(text.contains("frostline guest new"), "{text}");
    }

    #[tokio::test]
    async fn a_guest_that_imports_load_gets_a_warning() {
        let guest = sandbox().prepare(built("load-bytes")).await.unwrap();
        assert!(guest.refused_import().unwrap().contains("load-by-name"));
        let guest = sandbox().prepare(stock()).await.unwrap();
        assert_eq!(guest.refused_import(), None);
    }

    #[tokio::test]
    async fn damaged_guests_never_harm_the_host() {
        let bytes = built("trap");
        let sandbox = Sandbox::new(SandboxConfig {
            upload_bytes: 1 << 20,
            ..small()
        })
        .unwrap();
        let step = bytes.len() / 40;
        for cut in 1..40 {
            assert!(sandbox.prepare(bytes[..cut * step].to_vec()).await.is_err());
        }
        let large = sandbox.prepare(vec![0; (1 << 20) + 1]).await;
        assert!(matches!(large, Err(SandboxError::GuestTooLarge { .. })));
    }
}
