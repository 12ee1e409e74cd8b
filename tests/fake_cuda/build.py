#!/usr/bin/env python3
"""Build the simulated device for one version of torch: `python build.py VERSION` prints three folders, separated by blanks.

The first holds torch's CUDA build from the package index, unchanged, for the Python that runs this. The second holds the
libraries: the runtime and the driver's library from the C files beside this one, and for the others (cuBLAS, cuDNN, NCCL, …)
stand-ins whose functions return 0. All lie in `$XDG_CACHE_HOME/gradtui-fake-cuda/VERSION` and are built once.
"""

from __future__ import annotations

import collections
import compileall
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADERS = "nvidia-cuda-runtime===13.0.96"
RUNTIME = "libcudart.so.13"
DRIVER = "libnvidia-ml.so.1"

OWN = {
    "libcublasLt.so.13": """
int cublasLtMatmulAlgoGetHeuristic(void *h, void *o, void *a, void *b, void *c, void *d, void *p, int n, void *results,
                                   int *found)
{ memset(results, 0, 64 + 8 + 4 + 4 + 16); *found = 1; return 0; }""",
    "libcublas.so.13": """
int cublasCreate_v2(void **handle) { static char room[64]; *handle = room; return 0; }
int cublasGetMathMode(void *handle, int *mode) { *mode = 0; return 0; }
int cublasGetPointerMode_v2(void *handle, int *mode) { *mode = 0; return 0; }""",
    "libcudnn.so.9": """
unsigned long cudnnGetVersion(void) { return 92000; }
unsigned long cudnnGetCudartVersion(void) { return 13000; }
const char *cudnnGetErrorString(int code) { return "simulated cuDNN"; }""",
    "libcuda.so.1": """
#include <dlfcn.h>
int cuCtxGetCurrent(void **context) { *context = (void *)8; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    void *runtime = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
    int (*has_context)(int) = runtime ? dlsym(runtime, "has_context") : 0;
    *flags = 0, *is_active = has_context ? has_context(device) : 0;
    return 0;
}""",
    "libnccl.so.2": """
int ncclGetVersion(int *version) { *version = 22907; return 0; }
const char *ncclGetErrorString(int code) { return "simulated NCCL"; }""",
}
"""Functions of the stand-ins that must do more than return 0."""

OWNERS = {
    "nccl": "libnccl.so.2", "cusparseLt": "libcusparseLt.so.0", "nvshmem": "libnvshmem_host.so.3", "cuFile": "libcufile.so.0",
    "cufile": "libcufile.so.0", "cudnn": "libcudnn.so.9", "cupti": "libcupti.so.13",
}  # fmt: skip
"""By how the names of functions begin: the libraries that are not named by the versions of their functions."""


def main() -> None:
    (version,) = sys.argv[1:]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradtui-fake-cuda" / version
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        site = unpacked(f"torch==={version}", cache / f"site-{python}")
        headers = unpacked(HEADERS, cache / "cuda") / "nvidia" / "cu13" / "include"
        sources = b"".join(path.read_bytes() for path in sorted([*HERE.rglob("*.[ch]"), Path(__file__)]))
        libraries = cache / f"lib-{python}-{hashlib.sha256(sources).hexdigest()[:8]}"
        if not libraries.exists():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                compile_all(site / "torch" / "lib", headers, Path(work))
                Path(work).chmod(0o755)
                shutil.copytree(work, libraries.with_suffix(".part"), dirs_exist_ok=True)
                libraries.with_suffix(".part").rename(libraries)
    print(site, libraries)


def unpacked(requirement: str, folder: Path) -> Path:
    """Download a wheel by the settings of pip and unpack it. `===` takes no build with a local version, such as `+cpu`."""
    if folder.exists():
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        print(f"downloading {requirement}", file=sys.stderr)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "-d",
            work,
        ]
        if subprocess.run([*command, requirement], check=False).returncode:
            sys.exit(f"{requirement} could not be downloaded: is there a network, and does the package index have it?")
        (wheel,) = Path(work).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(work) / "site")
        compileall.compile_dir(Path(work) / "site", quiet=2, workers=0, stripdir=Path(work) / "site", prependdir=folder)
        (Path(work) / "site").rename(folder)
    return folder


def compile_all(torch: Path, headers: Path, out: Path) -> None:
    """Compile all libraries that those of torch need."""
    needed, wanted, versions = set(), collections.defaultdict(set), {}
    libraries = [*torch.glob("*.so"), *torch.parent.glob("_C*.so")]
    for library in libraries:
        for line in output("readelf", "-d", library):
            if "(NEEDED)" in line:
                needed.add(line.split("[")[1].rstrip("]"))
        for line in output("nm", "-D", "--undefined-only", library):
            symbol, _, version = line.split()[-1].partition("@")
            version = version.lstrip("@")
            owner = version if version.startswith(("libcu", "libnv")) else owner_of(symbol)
            if owner is not None:
                wanted[owner].add(symbol)
                if version:
                    versions[owner] = version
    of_torch = {library.name for library in libraries}
    stand_ins = {name for name in needed if name.startswith(("libcu", "libnv", "libnccl"))} - of_torch - {RUNTIME}
    for name in sorted(stand_ins):
        own = OWN.get(name, "")
        missing = [symbol for symbol in sorted(wanted[name]) if f" {symbol}(" not in own and f"*{symbol}(" not in own]
        source = out / f"{name}.c"
        source.write_text("#include <string.h>\n" + own + returning_0(missing))
        link(out / name, [source], version=versions.get(name))
    compile_runtime(out, headers, wanted[RUNTIME])
    link(out / DRIVER, [HERE / "nvml.c", HERE / "machine.c"])
    for source in out.glob("*.c"):
        source.unlink()


def owner_of(symbol: str) -> str | None:
    if symbol.startswith("cu") and symbol[2:3].isupper() and not symbol.startswith("cuFile"):
        return "libcuda.so.1"
    return next((owner for prefix, owner in OWNERS.items() if symbol.startswith(prefix)), None)


def compile_runtime(out: Path, headers: Path, wanted: set[str]) -> None:
    """Compile the runtime, and tell which of its functions are stand-ins."""
    sources = [path for path in HERE.glob("*.c") if path.name != "nvml.c"]
    flags = ["-I", HERE, "-isystem", headers, "-Wall", "-Wextra"]
    link(out / RUNTIME, sources, *flags, version=RUNTIME)
    have = {line.split()[-1].partition("@")[0] for line in output("nm", "-D", "--defined-only", out / RUNTIME)}
    rest = out / "stand_ins.c"
    rest.write_text(returning_0(sorted(wanted - have)))
    print("functions of the runtime that only return 0:", *sorted(wanted - have), file=sys.stderr)
    link(out / RUNTIME, [*sources, rest], *flags, version=RUNTIME)


def returning_0(symbols: list[str]) -> str:
    return "".join(f"long {symbol}(void) {{ return 0; }}\n" for symbol in symbols)


def link(library: Path, sources: list[Path], *flags: str | Path, version: str | None = None) -> None:
    script = library.with_suffix(".map")
    script.write_text(f"{version} {{ global: *; }};\n")
    versioned = [f"-Wl,--version-script={script}"] if version else []
    command = ["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", *(flags or ["-w"]), "-o", library, *sources]
    subprocess.run([*command, f"-Wl,-soname,{library.name}", *versioned, "-ldl", "-lpthread"], check=True)
    script.unlink()


def output(*command: str | Path) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    main()
