"""Validates rendered manifests strictly: validate.py VERSION[,VERSION..] FILE.. Prints the validated kinds, or exits with an error.

Kubernetes kinds are validated against the schema of each version, without unknown fields. Kinds of the Prometheus operator are parsed by its
models and written again; fields that get lost are unknown. No schema is available for cert-manager's Certificate.
"""
import sys

import kubernetes_validate
import yaml
from cloudcoil.models.prometheus_operator import v1 as monitoring


def unknown(given, kept, path):
    """Yields the paths in `given` that are missing in `kept`."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key in kept:
                yield from unknown(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(kept, list):
        for index, (one, other) in enumerate(zip(given, kept)):
            yield from unknown(one, other, f"{path}[{index}]")


def monitored(document):
    model = getattr(monitoring, document["kind"])
    kept = model.model_validate(document).model_dump(by_alias=True, mode="json")
    lost = list(unknown(document, kept, document["kind"]))
    if lost:
        sys.exit(f"{document['kind']} has unknown fields: {', '.join(lost)}")


def main():
    versions, counts, without = sys.argv[1].split(","), {}, set()
    for file in sys.argv[2:]:
        for document in filter(None, yaml.safe_load_all(open(file))):
            kind, group = document["kind"], document["apiVersion"].split("/")[0]
            if group == "monitoring.coreos.com":
                monitored(document)
            elif group == "cert-manager.io":
                without.add(kind)
                continue
            else:
                for version in versions:
                    try:
                        kubernetes_validate.validate(document, version, strict=True)
                    except kubernetes_validate.ValidationError as error:
                        where = ".".join(map(str, error.path))
                        sys.exit(f"{file}: {kind} {where} ({version}): {error.message}")
            counts[kind] = counts.get(kind, 0) + 1
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"{kinds}; without a schema: {', '.join(sorted(without)) or 'none'}")


main()
