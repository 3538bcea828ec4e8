#!/bin/sh
# Builds an OCI image without a daemon. Usage: build.sh SUITE VERSION COMMAND OUT, run by `cargo xtask dist image`.
# The image contains the C and C++ libraries and certificates of the Debian release SUITE, and the program and library in the folder COMMAND,
# but neither a shell nor a package manager. The result in OUT is an OCI layout with the tag `latest`.
set -eu
umask 022
suite=$1 version=$2 command=$(realpath "$3") out=$(realpath "$4")
copyright=$(realpath "$(dirname "$0")/../deb/copyright")
# Modification time for all files, which makes the layer reproducible.
: "${SOURCE_DATE_EPOCH:?}"
created=$(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Only extract the packages. The following lines replace the installation scripts.
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
