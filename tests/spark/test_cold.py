"""A cold start's helpers: the archive of classes, and the process that starts workers. None of them can make anything fail."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import penstock
from penstock.spark import classes, daemon, jvm


@pytest.fixture
def places(tmp_path, monkeypatch):
    """(a Java, a Spark) that look like them, and a cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(classes.SWITCH, raising=False)
    (tmp_path / "java").mkdir()
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "a.jar").write_bytes(b"jar")
    return tmp_path / "java", tmp_path / "spark"


def new_file(options):
    return Path(next(one for one in options if "ArchiveClassesAtExit" in one).partition("=")[2])


def used(options):
    return [Path(one.partition("=")[2]) for one in options if "SharedArchiveFile" in one]


def written(path, content=b"classes"):
    path.write_bytes(classes.MAGIC + content)
    path.chmod(0o444)


def test_the_first_jvm_writes_an_archive_and_later_ones_use_it(places):
    fresh = new_file(classes.options(*places, "any"))
    written(fresh)
    (found,) = used(classes.options(*places, "any"))
    assert found.read_bytes() == classes.MAGIC + b"classes"
    assert used(classes.options(*places, "any")) == [found]
    assert used(classes.options(*places, "pipeline")) == [], "another purpose has its own"
    assert not fresh.exists()


def test_the_demo_makes_none_and_uses_one(places, monkeypatch):
    monkeypatch.setattr(jvm, "find_java", lambda: (places[0], "a test"))
    monkeypatch.setattr(jvm, "_shim", lambda java: java)

    def asked():
        settings = {}
        monkeypatch.setenv("SPARK_HOME", str(places[1]))
        jvm._prepared({"PYSPARK_PYTHON": "python"}, settings, jvm.DEMO, local=True)
        return settings[jvm.OPTIONS].split()

    assert not list(classes.cache().glob("*.new"))
    assert not [one for one in asked() if "ArchiveClassesAtExit" in one]
    written(new_file(classes.options(*places, "any")))
    assert used(asked()) == used(classes.options(*places, "any"))


def test_while_one_jvm_is_to_write_it_others_do_without(places):
    fresh = new_file(classes.options(*places, "any"))
    fresh.touch()
    assert classes.options(*places, "any") == []
    os.utime(fresh, (1, time.time() - 2 * classes.MAKING_SECONDS))
    assert new_file(classes.options(*places, "any")) != fresh, "that one was killed"
    os.utime(fresh, (1, 1))
    classes.options(*places, "any")
    assert not fresh.exists()


def test_the_archives_used_last_are_kept(places):
    for purpose in range(classes.KEPT + 2):
        written(new_file(classes.options(*places, str(purpose))))
        (found,) = used(classes.options(*places, str(purpose)))
        os.utime(found, (1, time.time() - 1000 + purpose))
    written(new_file(classes.options(*places, "left")))
    left = next(classes.cache().glob("*.new"))
    os.utime(left, (1, time.time() - 2 * 86400))
    written(new_file(classes.options(*places, "last")))
    assert used(classes.options(*places, "last"))
    assert len(list(classes.cache().glob("*.jsa"))) == classes.KEPT
    assert not left.exists(), "no JVM came to use it"
    assert used(classes.options(*places, str(classes.KEPT + 1))), "it was used lately"
    assert not used(classes.options(*places, "0"))


def test_of_two_written_archives_one_is_used(places):
    first, second = (new_file(classes.options(*places, "any")) for _ in range(2))
    written(first, b"one")
    written(second, b"two")
    assert used(classes.options(*places, "any")) == used(classes.options(*places, "any"))


def test_an_archive_that_is_cut_changed_or_of_others_is_made_anew(places):
    for spoil in (
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"\0" + path.read_bytes()[1:]),
        lambda path: path.chmod(0o666),
    ):
        written(new_file(classes.options(*places, "any")))
        (found,) = used(classes.options(*places, "any"))
        found.chmod(0o644)
        spoil(found)
        assert new_file(classes.options(*places, "any"))


def test_other_jars_or_another_java_have_another_archive(places):
    java, spark = places
    written(new_file(classes.options(java, spark, "any")))
    assert used(classes.options(java, spark, "any"))
    (spark / "jars" / "b.jar").write_bytes(b"more")
    assert not used(classes.options(java, spark, "any"))
    (java / "release").write_text("JAVA_VERSION=21")
    assert not used(classes.options(java, spark, "any"))


def test_where_there_is_no_place_for_it_there_is_no_archive(places, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "with space"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        assert classes.options(*places, "any") == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert classes.options(tmp_path / "none", tmp_path / "none", "any") == []
    monkeypatch.setenv(classes.SWITCH, "off")
    assert classes.options(*places, "any") == []


def test_a_real_java_writes_uses_and_survives_archives(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(classes.SWITCH, raising=False)
    try:
        java, _ = jvm.find_java()
    except penstock.NotFound as error:
        pytest.skip(str(error))
    (tmp_path / "jars").mkdir()

    def run(*more):
        options = classes.options(java, tmp_path, "any")
        done = subprocess.run(
            [java / "bin" / "java", *options, *more, "-version"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert done.stdout == ""
        assert all("rror" not in line and "arning" not in line for line in done.stderr.splitlines())
        return options

    fresh = new_file(run())
    if not fresh.exists():
        pytest.skip("this Java writes no archives")
    (archive,) = used(run())
    whole = archive.read_bytes()
    archive.chmod(0o644)
    archive.write_bytes(whole[: len(whole) // 2])
    assert new_file(run())


def test_workers_import_pyspark_from_its_package(tmp_path):
    package = tmp_path / "site" / "pyspark"
    library = package / "python" / "lib"
    library.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "site" / "py4j").mkdir()
    site, zipped, other = str(tmp_path / "site"), str(library / "pyspark.zip"), str(library / "py4j-1-src.zip")
    assert daemon.unzip([zipped, other, "/x"]) == [site, "/x"]
    assert daemon.unzip([zipped, other, site]) == [site]
    assert daemon.unzip(["/x"]) == ["/x"]
    (package / "__init__.py").unlink()
    assert daemon.unzip([zipped, other]) == [zipped, other]


def test_a_session_uses_all_of_it(spark):
    def look(_):
        import pyspark

        yield pyspark.__file__, sys.modules.get("penstock.spark.tasks") is not None

    ((where, ahead),) = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert "pyspark.zip/pyspark/" not in where or Path(where).is_file(), "not from a zip file"
    assert ahead
    options = spark.conf.get(jvm.OPTIONS)
    assert "arrow.enable_unsafe_memory_access" in options
