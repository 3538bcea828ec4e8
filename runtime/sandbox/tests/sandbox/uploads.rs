use crate::fakes::{sandbox, small};
use crate::files::component_or_skip;
use frostline_sandbox::{Sandbox, SandboxConfig, SandboxError};

async fn refused(bytes: &[u8]) -> SandboxError {
    match sandbox().prepare(bytes.to_vec()).await {
        Ok(guest) => panic!("{} was accepted", guest.sha256()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn what_is_no_guest_is_said_in_its_own_words() {
    for (bytes, words) in [
        (&b""[..], "empty"),
        (b"import torch\n", "text file"),
        (b"(module)", "text format"),
        (b"\x7fELF\x02\x01\x01", "not WebAssembly"),
        (b"\xff\xd8\xff\xe0", "no WebAssembly binary"),
        (b"\0asm\x0d\0\x01\0\xff\xff", ""),
    ] {
        let error = refused(bytes).await;
        assert!(matches!(error, SandboxError::NotAGuest { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_component_of_another_world_is_told_what_is_too_much_and_what_is_missing() {
    let error = refused(&component_or_skip!("other-world")).await;
    let SandboxError::OtherWorld { imports, exports, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(imports, &["other:place/sockets@1.2.3"]);
    assert_eq!(exports, &["describe", "extract"]);
}

#[tokio::test]
async fn an_empty_component_lacks_the_exports() {
    // A core module becomes a component first.
    for bytes in [b"\0asm\x0d\0\x01\0", b"\0asm\x01\0\0\0"] {
        let error = refused(bytes).await;
        assert!(
            matches!(&error, SandboxError::OtherWorld { imports, exports, .. } if imports.is_empty() && exports.len() == 2)
        );
    }
}

#[tokio::test]
async fn damaged_guests_never_harm_the_host() {
    let bytes = component_or_skip!("trap");
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
