#!/bin/sh
# Writes an OCI image without a daemon: build.sh SUITE VERSION COMMAND OUT, run by `cargo xtask dist image`.
# The image contains the C and C++ libraries and certificates of the Debian release SUITE, and the program and library of the folder COMMAND,
# without a shell or a package manager. OUT becomes an OCI layout with the tag `latest`.
set -eu
umask 022
suite=$1 version=$2 command=$(realpath "$3") out=$(realpath "$4")
copyright=$(realpath "$(dirname "$0")/../deb/copyright")
# All files have this time, so that the layer is reproducible.
: "${SOURCE_DATE_EPOCH:?}"
created=$(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Packages are extracted, not installed; the lines below replace their scripts.
mmdebstrap --quiet --variant=extract --include=libc6,libstdc++6,ca-certificates "$suite" "$scratch/rootfs"
cd "$scratch/rootfs"
install -D "$command/frostline" usr/lib/frostline/frostline
install -D --mode=644 "$command/onnxruntime/libonnxruntime.so" usr/lib/frostline/onnxruntime/libonnxruntime.so
install -D --mode=644 "$copyright" usr/share/doc/frostline/copyright
ln -s ../lib/frostline/frostline usr/bin/frostline
mkdir -p etc/ssl/certs
find usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort | xargs cat > etc/ssl/certs/ca-certificates.crt
# Remove files that hosts do not use.
find usr/share/doc -type f ! -name copyright -delete
rm -rf etc/apt etc/debconf.conf etc/dpkg etc/fstab etc/hostname etc/resolv.conf etc/ssl/openssl.cnf etc/ssl/private sbin usr/bin/c_rehash usr/bin/openssl usr/lib/systemd \
    lib/*/gconv usr/lib/*/engines-3 usr/lib/*/gconv usr/lib/*/libcrypto.* usr/lib/*/libssl.* usr/lib/*/ossl-modules usr/lib/*/perl* usr/sbin \
    usr/share/bash-completion usr/share/debconf usr/share/gcc usr/share/gdb usr/share/lintian usr/share/man usr/share/perl5 \
    usr/share/pixmaps var/cache var/lib/apt var/log
mkdir -p dev etc/frostline proc sys tmp var/lib/frostline
chmod 1777 tmp
printf 'root:x:0:0::/:/\nfrostline:x:65532:65532::/var/lib/frostline:/\n' > etc/passwd
printf 'root:x:0:\nfrostline:x:65532:\n' > etc/group
chown 65532:65532 var/lib/frostline
cd - > /dev/null
tar --create --file "$scratch/rootfs.tar" --directory "$scratch/rootfs" --sort=name --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" .

umoci init --layout "$out"
umoci new --image "$out:latest"
umoci raw add-layer --history.created "$created" --image "$out:latest" "$scratch/rootfs.tar"
umoci config --history.created "$created" --created "$created" --image "$out:latest" --clear=config.entrypoint --config.entrypoint /usr/bin/frostline --config.cmd serve \
    --config.user 65532:65532 --config.workingdir /var/lib/frostline --config.exposedports 8443/tcp \
    --config.label "org.opencontainers.image.version=$version" --config.label org.opencontainers.image.title=frostline \
    --config.label "org.opencontainers.image.licenses=MIT OR Apache-2.0"
umoci gc --layout "$out"
