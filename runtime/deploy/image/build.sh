#!/bin/sh
# Writes an OCI image without a daemon: build.sh SUITE DEB OUT (cargo xtask deploy image does that).
# In it are the C and C++ libraries and certificates of the Debian release SUITE, and the command of the package DEB: no shell, no package
# manager. OUT becomes an OCI layout with the tag `latest`; push it with `skopeo copy oci:OUT:latest docker://REGISTRY/frostline:VERSION`.
set -eu
suite=$1 deb=$2 out=$3
# One time for all files, so that the same package makes the same layer.
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-1795392000}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Extracted, not installed: what their scripts would have done is done below.
mmdebstrap --quiet --variant=extract --include=libc6,libstdc++6,ca-certificates \
    --customize-hook="dpkg-deb --extract '$deb' \"\$1\"" \
    --customize-hook='cd "$1" && find usr/share/ca-certificates -name "*.crt" | sort | xargs cat > certificates &&
        mkdir -p etc/ssl/certs && mv certificates etc/ssl/certs/ca-certificates.crt' \
    --customize-hook='cd "$1" && rm -rf usr/share/man usr/share/doc/*/changelog* usr/share/doc/*/http.md.gz usr/share/perl5 usr/share/debconf \
        usr/share/lintian usr/share/bash-completion usr/share/zsh usr/share/fish usr/share/pixmaps usr/share/gdb usr/share/gcc \
        usr/lib/systemd etc/frostline usr/sbin sbin var/cache var/log var/lib/apt etc/apt' \
    --customize-hook='cd "$1" && mkdir -p proc dev sys tmp etc/frostline var/lib/frostline && chmod 1777 tmp &&
        printf "root:x:0:0::/:/\nfrostline:x:65532:65532::/var/lib/frostline:/\n" > etc/passwd &&
        printf "root:x:0:\nfrostline:x:65532:\n" > etc/group && chown 65532:65532 var/lib/frostline' \
    "$suite" "$scratch/rootfs.tar"

umoci init --layout "$out"
umoci new --image "$out:latest"
umoci raw add-layer --image "$out:latest" "$scratch/rootfs.tar"
version=$(dpkg-deb --field "$deb" Version)
umoci config --image "$out:latest" --clear=config.entrypoint --config.entrypoint /usr/bin/frostline --config.cmd serve \
    --config.user 65532:65532 --config.workingdir /var/lib/frostline --config.exposedports 8443/tcp \
    --config.label "org.opencontainers.image.version=$version" --config.label org.opencontainers.image.title=frostline \
    --config.label "org.opencontainers.image.licenses=MIT OR Apache-2.0"
umoci gc --layout "$out"
