"""The number that a SPANK plugin was built for, read from its file without loading it.

Loading would run its initialisers, and needs symbols that only Slurm's programs have. Source of the layout:
elf(5), 64 bits.
"""

from __future__ import annotations

import struct

_DYNSYM = 11  # SHT_DYNSYM
_HEADER, _SECTION, _SYMBOL = 64, 64, 24


def plugin_release(data: bytes) -> tuple[int, int]:
    """Return (major, minor) of the Slurm that the shared object in *data* was built for.

    Raises `ValueError` if it is no shared object of 64 bits, or has no `plugin_version`.
    """
    if len(data) < _HEADER or data[:5] != b"\x7fELF\x02":
        raise ValueError("it is no ELF file of 64 bits")
    order = "<" if data[5] == 1 else ">"
    try:
        number = _symbol(data, order, b"plugin_version")
    except (struct.error, IndexError):
        raise ValueError("its tables are cut off") from None
    # SLURM_VERSION_NUM of slurm/slurm.h: a byte each for major, minor, micro.
    return number >> 16 & 0xFF, number >> 8 & 0xFF


def _symbol(data: bytes, order: str, name: bytes) -> int:
    """Return the 32 bits that exported symbol *name* stands for."""
    (table,) = struct.unpack_from(order + "Q", data, 0x28)
    (count,) = struct.unpack_from(order + "H", data, 0x3C)
    # sh_type, sh_addr, sh_offset, sh_size, sh_link
    sections = [
        struct.unpack_from(order + "4xI8xQQQI", data, table + _SECTION * number) for number in range(count)
    ]
    for kind, _, offset, size, link in sections:
        if kind == _DYNSYM:
            names = sections[link][2]
            for at in range(offset, offset + size, _SYMBOL):
                place, section, value = struct.unpack_from(order + "I2xHQ", data, at)
                end = names + place + len(name) + 1
                if section and data[names + place : end] == name + b"\0":
                    start = value - sections[section][1] + sections[section][2]
                    return int(struct.unpack_from(order + "I", data, start)[0])
    raise ValueError(f"it exports no {name.decode()}")
