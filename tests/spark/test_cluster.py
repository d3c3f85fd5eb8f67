"""A standalone cluster of two workers: the job of deploy/ with workers killed in the middle, and its files checked as far as they can be
without Docker and Kubernetes."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import LONG

import penstock
from penstock import NotFound, tables

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
POINT = np.dtype([("t", "f8"), ("id", "u4"), ("tag", "S8")])


def cluster():
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
    spec = importlib.util.spec_from_file_location("penstock_cluster", DEPLOY / "cluster.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.skipif(not LONG, reason="starts six JVMs, and kills some: PENSTOCK_LONG=1 runs it")
def test_a_worker_is_killed_in_the_middle(archive, tmp_path):
    made = cluster()
    try:
        made.java_environment()
    except NotFound as error:
        pytest.skip(str(error))
    with (
        penstock.publish("log:p", codec=POINT, term_length=1 << 18) as points,
        penstock.publish("log:j", codec="json", term_length=1 << 18) as notes,
        archive.record(["log:p", "log:j"], segment_length=1 << 18),
    ):
        for i in range(40_000):
            points.send((i / 3, i, b"a\0b"))
            notes.send({"i": i, "v": i / 7, "text": "x" * (i % 50)})
    said = []
    steps = ("counting", "writing")
    status = made.run(str(archive.path), str(tmp_path / "cluster"), steps=steps, range_bytes=1 << 18, say=said.append)
    assert status == 0, said
    assert sum(re.fullmatch(r"worker \d is killed: [2-9] processes", line) is not None for line in said) == 2
    assert [line for line in said if line.startswith("log:j: 40000 messages, hash ")]
    assert [line for line in said if line.startswith("log:p: 40000 messages, hash ")]
    assert any(re.fullmatch(r"tables: 80000 new messages in \d+ ranges, 80000 in all", line) for line in said)
    tables.run(archive.path, tmp_path / "here")
    for name in ("messages", "log:p", "log:j"):
        one, other = (tables.read(tmp_path / place, name).drop("ingested_at") for place in ("cluster", "here"))
        order = [("timestamp_ns", "ascending"), ("position", "ascending")]
        assert one.sort_by(order).equals(other.sort_by(order)), name
    assert tables.run(archive.path, tmp_path / "cluster").rows == 0


def test_the_manifest_and_the_image_fit_each_other():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install pyyaml")
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [part["kind"] for part in parts] == ["PersistentVolumeClaim", "Service", "Deployment", "Deployment", "Job"]
    image = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) (\S+)$", image, re.MULTILINE)
    assert all((ROOT / source).exists() for source, _ in copied)
    pods = [part["spec"]["template"]["spec"] for part in parts if "template" in part["spec"]]
    for pod in pods:
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            assert container["image"] == "penstock-spark"
            assert f"-t {container['image']} " in image
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            assert set(container["resources"]) == {"requests", "limits"}
    job = pods[-1]["containers"][0]["command"]
    assert job[1] == "/opt/penstock/job.py"
    assert job[1] in [target for _, target in copied]
    master = f"spark://{parts[1]['metadata']['name']}:{parts[1]['spec']['ports'][0]['port']}"
    assert job[job.index("--master") + 1] == pods[1]["containers"][0]["command"][-1] == master
    for part in parts[2:4]:
        assert part["spec"]["selector"]["matchLabels"] == part["spec"]["template"]["metadata"]["labels"]
