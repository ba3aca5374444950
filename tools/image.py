"""Builds Holdfast's own image without a container engine, and a bill of materials beside it.

    python tools/image.py registry.example/holdfast:0.1.0 dist/holdfast.tar

The same packages give the same bytes: Debian's Python, git and OpenSSH, the locked wheels of
deploy/requirements.txt, the wheel of this tree, and the programs that the GitOps controller renders
and decrypts with. `deploy/Containerfile` puts the same parts on another base, for those who have an
engine. The image is an OCI archive, which `ctr images import` takes and the tests' registry serves.
Beside it, `holdfast.tar.cdx.json` lists what is inside, in CycloneDX's format.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.debian import NoPackages, Say, package_versions, unpack_packages  # noqa: E402
from tools.oci import Image, ImageConfig, write_image  # noqa: E402

PACKAGES = (
    "ca-certificates",
    "git",
    "libpython3.11-stdlib",
    "openssh-client",
    "python3.11-minimal",
)
PYTHON_VERSION = "3.11"
PLATFORM = "x86_64-manylinux_2_31"
USER = 65532
SITE = "holdfast/packages"
LAUNCHER = """\
#!/usr/bin/python3.11
import sys
from holdfast.apps.cli.main import main
sys.exit(main())
"""


class ImageNotBuilt(Exception):
    """The image could not be built; the text says why."""


def build_image(name: str, archive: Path, cache: Path, programs: list[Path], say: Say) -> Image:
    """Write the image and its bill of materials; raises ImageNotBuilt or NoPackages."""
    base = unpack_packages(PACKAGES, cache, say)
    with tempfile.TemporaryDirectory(prefix="holdfast-image-") as scratch:
        root = Path(scratch) / "root"
        site = root / SITE
        site.mkdir(parents=True)
        install_wheels((ROOT / "deploy" / "requirements.txt").read_text(), site)
        _install_this_tree(Path(scratch), site)
        _write_system_files(base, root)
        launcher = root / "usr" / "local" / "bin" / "holdfast"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
        for program in programs:
            shutil.copy(program, launcher.parent / program.name)
        image = write_image(name, archive, [base, root], _config())
        bill = _bill_of_materials(image, package_versions(base), site, programs)
        archive.with_name(archive.name + ".cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    return image


def install_wheels(requirements: str, directory: Path) -> None:
    """Put the wheels of hashed requirements into a directory, for the Python of these images."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        _install("--require-hashes", "--only-binary", ":all:", "-r", file.name, into=directory)


def _install_this_tree(scratch: Path, site: Path) -> None:
    wheels = scratch / "wheels"
    _run(
        sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels)
    )
    (wheel,) = wheels.glob("*.whl")
    _install(str(wheel), into=site)


def _install(*arguments: str, into: Path) -> None:
    _run(
        str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-deps",
        "--link-mode", "copy", "--target", str(into), "--python-version", PYTHON_VERSION,
        "--python-platform", PLATFORM, *arguments,
    )  # fmt: skip
    shutil.rmtree(into / "bin", ignore_errors=True)  # launchers for a Python of this machine
    for name in ("RECORD", "direct_url.json", "uv_cache.json", ".lock"):  # tell when and where
        for leftover in into.rglob(name):
            leftover.unlink()


def _write_system_files(base: Path, root: Path) -> None:
    """Write what Debian's packages make when they are installed, and the user."""
    authorities = sorted((base / "usr" / "share" / "ca-certificates").rglob("*.crt"))
    bundle = root / "etc" / "ssl" / "certs" / "ca-certificates.crt"
    bundle.parent.mkdir(parents=True)
    bundle.write_text("".join(path.read_text() for path in authorities))
    # ssh refuses to run as a user without a name.
    (root / "etc" / "passwd").write_text(
        f"root:x:0:0::/root:/bin/false\nholdfast:x:{USER}:{USER}::/nonexistent:/bin/false\n"
    )
    (root / "etc" / "group").write_text(f"root:x:0:\nholdfast:x:{USER}:\n")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def _config() -> ImageConfig:
    return ImageConfig(
        entrypoint=["holdfast"],
        command=["operator"],
        user=f"{USER}:{USER}",
        environment={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": f"/{SITE}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
        },
        labels={"org.opencontainers.image.title": "holdfast"},
    )


# Any: CycloneDX JSON.
def _bill_of_materials(
    image: Image, packages: dict[str, str], site: Path, programs: list[Path]
) -> dict[str, Any]:
    found: list[Distribution] = sorted(distributions(path=[str(site)]), key=lambda d: d.name)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "name": image.name,
                "hashes": [{"alg": "SHA-256", "content": image.digest.removeprefix("sha256:")}],
            }
        },
        "components": [
            *(
                {
                    "type": "library",
                    "name": name,
                    "version": version,
                    "purl": f"pkg:deb/debian/{name}@{version}?arch=amd64",
                }
                for name, version in sorted(packages.items())
            ),
            *(
                {
                    "type": "library",
                    "name": item.name,
                    "version": item.version,
                    "purl": f"pkg:pypi/{item.name.lower().replace('_', '-')}@{item.version}",
                }
                for item in found
            ),
            *(
                # Of ours by path: the version is the directory that it was built into.
                {"type": "application", "name": item.name, "version": item.parent.name}
                for item in programs
            ),
        ],
    }


def _run(*command: str) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}  # zip begins in 1980
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()[-600:]
        raise ImageNotBuilt(f"The image could not be built: {Path(command[0]).name} said: {said}")


def main() -> int:
    from tests.support.go_programs import build_image_programs
    from tests.support.testbed import cache_root, say_on_stderr

    if len(sys.argv) != 3:
        print(f"usage: {sys.argv[0]} NAME:TAG ARCHIVE.tar", file=sys.stderr)
        return 64
    try:
        programs = build_image_programs(say_on_stderr)
        image = build_image(sys.argv[1], Path(sys.argv[2]), cache_root(), programs, say_on_stderr)
    except (ImageNotBuilt, NoPackages) as failure:
        print(failure, file=sys.stderr)
        return 1
    print(f"{image.archive}: {image.name}@{image.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
