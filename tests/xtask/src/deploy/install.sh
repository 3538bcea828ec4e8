#!/bin/sh
# Installs and runs the artifacts in a clean Debian system at ROOT: install.sh TARBALL WHEEL DEB ROOT
set -eu
tarball=$1 wheel=$2 deb=$3 root=$4

inside() {
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

finds_library() {
    inside "$@" doctor | grep '^works  *library'
}

# Move the folder after unpacking: the command must find ONNX Runtime next to it.
mkdir "$root/opt/unpacked"
tar --extract --file "$tarball" --directory "$root/opt/unpacked" --strip-components=1
mv "$root/opt/unpacked" "$root/opt/moved"
inside /opt/moved/frostline --version
finds_library /opt/moved/frostline
rm -r "$root/opt/moved"

# Download pip and the dependencies, so that the installation in ROOT needs no network.
python=$(readlink "$root/usr/bin/python3")
machine=$(uname -m)
python3 -m pip --quiet --disable-pip-version-check download --dest "$root/opt/wheels" --only-binary :all: --python-version "${python#python}" \
    --platform "linux_$machine" --platform "manylinux_2_28_$machine" --platform "manylinux2014_$machine" pip "$wheel"
inside python3 -m venv --without-pip /opt/venv
inside sh -c 'PYTHONPATH=$(echo /opt/wheels/pip-*.whl) python3 -m pip --quiet --python /opt/venv/bin/python3 install --no-compile --no-index --find-links /opt/wheels frostline'
inside /opt/venv/bin/python3 -c 'import frostline'
inside /opt/venv/bin/frostline --version
finds_library /opt/venv/bin/frostline

cp "$deb" "$root/opt/frostline.deb"
chroot "$root" apt-get install -y --no-install-recommends /opt/frostline.deb >/dev/null
inside frostline --version
inside frostline model list --help >/dev/null
finds_library frostline
inside getent passwd frostline >/dev/null
inside systemd-analyze verify --man=no frostline.service
examples=usr/share/doc/frostline/examples
test -s "$root/$examples/prometheus.yml" && test -s "$root/$examples/rules.yaml" && test -s "$root/$examples/dashboard.json"
mkdir -p "$root/var/lib/frostline"
touch "$root/var/lib/frostline/token"
chroot "$root" apt-get purge -y frostline >/dev/null
test -e "$root/var/lib/frostline/token"
test ! -e "$root/usr/bin/frostline"
test ! -e "$root/etc/frostline"
