"""Runs OpenStack Swift with its S3 interface and one replica, from Debian's packages."""
import os
import shutil
import subprocess
import sys

from serving import BUCKET, folder, free_ports, missing, request, run, serve

PACKAGES = ["swift", "swift-proxy", "swift-account", "swift-container", "swift-object", "memcached"]
if not shutil.which("swift-proxy-server"):
    if "--install" not in sys.argv or os.geteuid() != 0 or not shutil.which("apt-get"):
        missing("Debian's packages of Swift are not installed; run `cargo xtask stores swift --install` as root")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    run(["apt-get", "update", "-q"])
    run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES])
shutil.rmtree(folder() / "devices", ignore_errors=True)
(folder() / "devices/d1").mkdir(parents=True)
try:
    # Swift stores metadata in extended attributes of the file system.
    os.setxattr(folder() / "devices", "user.swift.metadata", b"x" * 2000)
except OSError as error:
    missing(f"the file system of {folder()} does not support extended attributes ({error})")
proxy, cache, *ports = free_ports(5)
services = dict(zip(("object", "container", "account"), ports))

COMMON = f"""[DEFAULT]
bind_ip = 127.0.0.1
bind_port = %d
workers = 0
user = {os.environ.get("USER", "root")}
swift_dir = {folder()}
devices = {folder()}/devices
mount_check = false
log_udp_host = 127.0.0.1
log_udp_port = 9
"""
FILTERS = {
    "catch_errors": "",
    "gatekeeper": "",
    "healthcheck": "",
    "cache": f"memcache_servers = 127.0.0.1:{cache}",
    "listing_formats": "",
    "bulk": "",
    "s3api": "s3_acl = false\nlocation = us-east-1\nauth_pipeline_check = true",
    "tempauth": "user_admin_admin = admin .admin .reseller_admin\nuser_test_tester = testing .admin",
    "copy": "",
    "slo": "",
    "dlo": "",
}


def write(name, text):
    (folder() / name).write_text(text)


write(
    "swift.conf",
    "[swift-hash]\nswift_hash_path_prefix = frost\nswift_hash_path_suffix = line\n[storage-policy:0]\nname = one\ndefault = yes\n",
)
entry = {name: "memcache" if name == "cache" else name for name in FILTERS}
write(
    "proxy.conf",
    COMMON % proxy
    + f"[pipeline:main]\npipeline = {' '.join(FILTERS)} proxy-server\n"
    + "[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n"
    + "".join(f"[filter:{name}]\nuse = egg:swift#{entry[name]}\n{more}\n" for name, more in FILTERS.items()),
)
for service, port in services.items():
    write(
        f"{service}.conf",
        COMMON % port
        + f"[pipeline:main]\npipeline = {service}-server\n[app:{service}-server]\nuse = egg:swift#{service}\n"
        + f"[{service}-replicator]\n[{service}-updater]\n[{service}-auditor]\n",
    )
    ring = folder() / f"{service}.builder"
    ring.unlink(missing_ok=True)
    run(["swift-ring-builder", ring, "create", "6", "1", "1"])
    run(["swift-ring-builder", ring, "add", f"r1z1-127.0.0.1:{port}/d1", "1"])
    run(["swift-ring-builder", ring, "rebalance"])
url = f"http://127.0.0.1:{proxy}"


def create():
    """Creates the bucket with Swift's native API, which needs no signature."""
    import urllib.request

    login = urllib.request.Request(f"{url}/auth/v1.0", headers={"X-Auth-User": "test:tester", "X-Auth-Key": "testing"})
    with urllib.request.urlopen(login, timeout=10) as answer:
        account, token = answer.headers["X-Storage-Url"], answer.headers["X-Auth-Token"]
    status, body = request(f"{account}/{BUCKET}", "PUT", {"X-Auth-Token": token})
    if status not in (201, 202):
        missing(f"cannot create the container: {status} {body[:200]!r}")


version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "swift-proxy"], capture_output=True, text=True)
serve(
    [["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(cache), "-U", "0", "-m", "32"]]
    + [[f"swift-{service}-server", folder() / f"{service}.conf"] for service in (*services, "proxy")],
    f"{url}/healthcheck",
    create,
    version=f"OpenStack Swift {version.stdout.split('-')[0] or '(unknown version)'}, s3api",
    root=f"s3://{BUCKET}",
    settings={
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test:tester",
        "AWS_SECRET_ACCESS_KEY": "testing",
    },
    wrong={"AWS_SECRET_ACCESS_KEY": "geheim-geheim"},
    creates=False,
)
