"""Uses disttune as another project would.

installed     installs a finished build, then configures, builds and runs a project that finds it
subdirectory  adds the source folder to a project and compiles against it
digest        checks what disttune_source_digest defines, and that an edit changes it
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Consumer:
    """A scratch folder, and CMake set up like the build that is tested."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.work = Path(args.work)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)

    def run(self, *command: str | Path, **environment: str) -> str:
        """Run a command and return its output; on failure show it and stop."""
        done = subprocess.run(
            [str(c) for c in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\nended with {done.returncode}")
        return done.stdout

    def configure(self, source: Path, build: Path, *options: str) -> str:
        """Configure a project with the tested build's compiler, flags and generator."""
        return self.run(
            self.args.cmake, "-S", source, "-B", build, "-G", self.args.generator,
            f"-DCMAKE_CXX_COMPILER={self.args.compiler}",
            f"-DCMAKE_CXX_FLAGS={self.args.flags}",
            *options,
        )  # fmt: skip

    def build(self, build: Path, *options: str) -> None:
        """Build a configured project."""
        self.run(self.args.cmake, "--build", build, *options)


def installed(consumer: Consumer) -> None:
    """find_package against an installed tree that was moved after it was installed."""
    first, prefix = consumer.work / "first", consumer.work / "moved"
    consumer.run(consumer.args.cmake, "--install", consumer.args.build, "--prefix", first)
    first.rename(prefix)  # a package must not remember where it was installed
    for file in prefix.rglob("*.cmake"):
        text = file.read_text(encoding="utf-8")
        for word in ("fmt::", "nlohmann", consumer.args.build):
            if word in text:
                sys.exit(f"{file.name} of the installed package mentions {word}")
    build = consumer.work / "build"
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF"]
    components = [
        c for c in ("mpi", "testing") if next(prefix.rglob(f"disttune-{c}-targets.cmake"), None)
    ]
    options.append(f"-DCOMPONENTS={';'.join(components)}")
    consumer.configure(HERE / "installed_project", build, *options)
    consumer.build(build)
    said = consumer.run(build / "user", TRITON_DIST_AUTOTUNE_HOME=str(consumer.work / "store"))
    if said.strip() != "7":
        sys.exit(f"the program of the installed package said {said!r}")
    # A component that does not exist is refused by name, not by a link error.
    done = subprocess.run(
        [consumer.args.cmake, "-S", HERE / "installed_project", "-B", consumer.work / "refused",
         "-G", consumer.args.generator, *options[:2], "-DCOMPONENTS=nonsense"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0 or "nonsense" not in done.stderr:
        sys.exit(f"an unknown component was not refused by name:\n{done.stderr}")


def subdirectory(consumer: Consumer) -> None:
    """add_subdirectory brings the library and nothing else, and its headers compile."""
    build = consumer.work / "build"
    consumer.configure(
        HERE / "subdirectory_project", build, f"-DDISTTUNE_SOURCE={consumer.args.source}"
    )
    # The object alone: that the library itself compiles is what this build has just shown.
    consumer.build(build, "--target", "user")


def digest(consumer: Consumer) -> None:
    """The digest follows the content of the files, through CMake's own re-run."""
    source, build = consumer.work / "source", consumer.work / "build"
    shutil.copytree(HERE / "digest_project", source)
    module = Path(consumer.args.source) / "cmake" / "disttune_source_digest.cmake"
    consumer.configure(source, build, f"-DMODULE={module}")

    def read() -> str:
        consumer.build(build)
        return consumer.run(build / "digest").strip()

    before = read()
    if not re.fullmatch("[0-9a-f]{64}", before):
        sys.exit(f"not a digest: {before!r}")
    kernel = source / "kernel.hpp"
    text = kernel.read_text(encoding="utf-8")
    os.utime(kernel)
    if read() != before:
        sys.exit("the digest changed with a file's date")
    kernel.write_text(text + "// changed\n", encoding="utf-8")
    if read() == before:
        sys.exit("the digest did not change with a file's content")
    kernel.write_text(text, encoding="utf-8")
    if read() != before:
        sys.exit("the digest did not come back with the content")


def main() -> None:
    """Run the asked check."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["installed", "subdirectory", "digest"])
    for option in ("cmake", "compiler", "generator", "work"):
        parser.add_argument(f"--{option}", required=True)
    for option in ("flags", "source", "build"):
        parser.add_argument(f"--{option}", default="")
    args = parser.parse_args()
    {"installed": installed, "subdirectory": subdirectory, "digest": digest}[args.what](
        Consumer(args)
    )


if __name__ == "__main__":
    main()
