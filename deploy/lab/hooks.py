"""Our parts of Slurm in the private cluster: the SPANK plugin, job_submit.lua, prolog and epilog."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from lab.processes import LabError
from lab.scratch import REPOSITORY
from lab.slurm_conf import Layout

PLUGIN = REPOSITORY / "slurm_plugin" / "build" / "interleave.so"
_LUA = ("job_submit.lua", "interleave_request.lua", "interleave_rules.lua")
_SCRIPTS = {"Prolog": "prolog.sh", "Epilog": "epilog.sh", "EpilogSlurmctld": "slurmctld_epilog.sh"}


def install(layout: Layout) -> dict[str, str]:
    """Put our files where this cluster looks for them; return what slurm.conf says about them.

    Raises `LabError` if the SPANK plugin is not built.
    """
    if not PLUGIN.exists():
        raise LabError(f"{PLUGIN}: not built; run: make plugin")
    for name in _LUA:  # Slurm looks for job_submit.lua beside slurm.conf
        shutil.copy(REPOSITORY / "slurm_plugin" / name, layout.etc / name)
    folder = layout.etc / "hooks"
    folder.mkdir()
    for name in (*_SCRIPTS.values(), "common.sh"):
        shutil.copy(REPOSITORY / "prolog_epilog" / name, folder / name)
        (folder / name).chmod(0o755)
    settings = {
        "bin_dir": Path(sys.executable).parent,
        "run_dir": f"{layout.root}/run/%n",
        "socket": f"{layout.root}/run/interleaved.sock",
    }
    (folder / "interleave-hooks.conf").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    plugstack = layout.etc / "plugstack.conf"
    plugstack.write_text(
        f"optional {PLUGIN} run_dir={layout.root}/run/%n hook={settings['bin_dir']}/interleave-hook\n"
    )
    return {
        "JobSubmitPlugins": "lua",
        "PlugStackConfig": str(plugstack),
        **{option: str(folder / name) for option, name in _SCRIPTS.items()},
    }
