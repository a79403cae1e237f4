"""The schema of RayCluster and RayJob: KubeRay's definitions, reduced to the structure of valid manifests.

`kuberay_schema.json` holds it. The definitions have 2.3 MB because each place that holds a pod repeats the
schema of a pod, with its descriptions; here equal parts are shared. It is written again with the files of
helm-chart/kuberay-operator/crds in another version of https://github.com/ray-project/kuberay (Apache-2.0):

    python -m tests.kuberay_schema VERSION ray.io_rayclusters.yaml ray.io_rayjobs.yaml

Rules in Kubernetes' expression language (CEL), and what the operator checks by itself, are left out.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

__all__ = ["SCHEMA", "find_faults"]

SCHEMA = Path(__file__).with_suffix(".json")
API_VERSION = "v1"
NAMED_SCHEMAS = {"properties"}
SINGLE_SCHEMAS = {"items", "not", "additionalProperties"}
LISTED_SCHEMAS = {"anyOf", "allOf", "oneOf"}
COPIED = {
    *("type", "required", "enum", "pattern", "minimum", "maximum"),
    *("minItems", "maxItems", "minLength", "maxLength"),
}
MIN_SHARED_CHARACTERS = 150
"""The length of the JSON text from which a part is stored once, and referred to."""


def find_faults(manifest: dict[str, Any]) -> list[str]:
    """Why KubeRay's schema refuses a manifest; unknown fields are faults. Empty for a valid one."""
    import jsonschema  # type: ignore[import-untyped]

    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{manifest['kind']}"})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]


def reduce_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """What validates a structure, without descriptions; an object with known fields is closed to others."""
    reduced: dict[str, Any] = {}
    for name, value in schema.items():
        if name in NAMED_SCHEMAS:
            reduced[name] = {field: reduce_schema(part) for field, part in value.items()}
        elif name in SINGLE_SCHEMAS:
            reduced[name] = reduce_schema(value) if isinstance(value, dict) else value
        elif name in LISTED_SCHEMAS:
            reduced[name] = [reduce_schema(part) for part in value]
        elif name in COPIED:
            reduced[name] = value
    if "properties" in reduced and not schema.get("x-kubernetes-preserve-unknown-fields"):
        reduced.setdefault("additionalProperties", False)
    return reduced


def share_parts(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """The schema with its long parts replaced by references; the parts are added to `shared`."""
    replaced: dict[str, Any] = {}
    for name, value in schema.items():
        if name in NAMED_SCHEMAS:
            replaced[name] = {field: share_parts(part, shared) for field, part in value.items()}
        elif name in SINGLE_SCHEMAS and isinstance(value, dict):
            replaced[name] = share_parts(value, shared)
        else:
            replaced[name] = value
    text = json.dumps(replaced, sort_keys=True)
    if len(text) < MIN_SHARED_CHARACTERS:
        return replaced
    key = hashlib.sha256(text.encode()).hexdigest()[:8]
    shared[key] = replaced
    return {"$ref": f"#/$defs/{key}"}


def read_definition(path: Path) -> tuple[str, dict[str, Any]]:
    """The kind that a definition defines, and the schema of what users write of it."""
    definition = yaml.safe_load(path.read_text())
    (version,) = (each for each in definition["spec"]["versions"] if each["name"] == API_VERSION)
    schema = version["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]
    return definition["spec"]["names"]["kind"], reduce_schema(schema)


def main() -> None:
    """Write the schema of the definitions that the command line names."""
    version, *paths = sys.argv[1:]
    shared: dict[str, Any] = {}
    kinds = {
        kind: share_parts(schema, shared) for kind, schema in (read_definition(Path(path)) for path in paths)
    }
    source = f"reduced by {SCHEMA.stem}.py from github.com/ray-project/kuberay {version}, Apache-2.0"
    text = json.dumps({"$comment": source, "$defs": {**kinds, **dict(sorted(shared.items()))}}, indent=1)
    SCHEMA.write_text(text + "\n")


if __name__ == "__main__":
    main()
