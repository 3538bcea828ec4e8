"""Clients generated from the OpenAPI files work against a host."""

import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import httpx

import local_hosts
from local_hosts import PHOTOS, REPOSITORY, Host

FILES = REPOSITORY / "runtime" / "docs" / "reference"
MODEL = REPOSITORY / "models" / "zoo" / "demo" / "backbone.onnx"


CONFIG = {
    # The generator only knows media types of JSON, text and plain bytes.
    "content_type_overrides": {"application/vnd.apache.arrow.stream": "application/octet-stream"},
    # The generated code is not formatted.
    "post_hooks": [],
}


def generate(port, folder):
    """Generate a client from the file of a port. Warnings about the file are errors."""
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG))
    words = ["generate", "--path", str(FILES / f"openapi-{port}.json"), "--output-path", str(folder / f"frostline_{port}")]
    words += ["--config", str(config), "--meta", "none", "--fail-on-warning"]
    subprocess.run([sys.executable, "-m", "openapi_python_client", *words], check=True)


@unittest.skipUnless(local_hosts.command(), "the frostline command is not installed, and FROSTLINE is not set")
class Generated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for port in ("tenants", "admins", "metrics"):
            generate(port, cls.folder)
        sys.path.insert(0, folder.name)
        cls.addClassCleanup(sys.path.remove, folder.name)
        cls.host = Host(folder.name, "state")
        cls.addClassCleanup(cls.host.end)

    def call(self, port, operation, client, **arguments):
        """Call an operation and return the parsed answer."""
        module = importlib.import_module(f"frostline_{port}.api.default.{operation}")
        answer = module.sync_detailed(client=client, **arguments)
        self.assertLess(answer.status_code, 300, answer.content)
        return answer.parsed

    def test_a_tenant_lists_uploads_and_describes(self):
        tenants = importlib.import_module("frostline_tenants")
        token = self.host.token_file.read_text().strip()
        client = tenants.AuthenticatedClient(base_url=self.host.url, token=token)
        self.assertEqual(self.call("tenants", "get_load", client).lanes > 0, True)
        page = self.call("tenants", "get_objects", client, root=str(PHOTOS), limit=3)
        self.assertEqual(len(page.objects), 3)
        self.assertTrue(all(found.size > 0 and found.etag for found in page.objects))
        types = importlib.import_module("frostline_tenants.types")
        with MODEL.open("rb") as payload:
            model = self.call("tenants", "put_models_name", client, name="backbone", body=types.File(payload))
        self.assertIn("features", [cut.name for cut in model.cuts])
        self.assertEqual([named.sha256 for named in self.call("tenants", "get_models", client)], [model.sha256])
        unknown = importlib.import_module("frostline_tenants.api.default.get_guests_name")
        refusal = unknown.sync_detailed(client=client, name="absent")
        self.assertEqual((refusal.status_code, refusal.parsed.class_.value), (404, "not-found"))

    def test_an_admin_adds_a_tenant_and_sets_a_quota(self):
        admins = importlib.import_module("frostline_admins")
        transport = httpx.HTTPTransport(uds=str(self.host.state / "admin.sock"))
        client = admins.Client(base_url="http://admin", httpx_args={"transport": transport})
        models = importlib.import_module("frostline_admins.models")
        new = models.NewTenant(name="acme", data=[str(PHOTOS)])
        given = self.call("admins", "post_tenants", client, body=new)
        self.assertEqual(given.tenant.name, "acme")
        self.assertTrue(given.token.startswith("frost_acme_"))
        change = self.call("admins", "patch_tenants_name_quota", client, name="acme", body=quota(running=2))
        self.assertEqual({info.key.value: info.value for info in change}["running"], 2)
        activity = self.call("admins", "get_activity", client)
        self.assertFalse(activity.stopping)


def quota(**values):
    """Return a change of quotas."""
    change = importlib.import_module("frostline_admins.models").PatchTenantsNameQuotaBody()
    change.additional_properties = values
    return change
