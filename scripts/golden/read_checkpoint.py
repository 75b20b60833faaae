#!/usr/bin/env python3
# What does a foreign program see of a checkpoint? The oracle of the tests of src/checkpoint.
"""Reads a checkpoint as a foreign program would: h5py on index.h5 alone, every tensor whole, by canonical name.

usage: read_checkpoint.py CHECKPOINT_DIR
Prints one JSON object {"/model/<name>": {"shape": [...], "dtype": "float32", "values": [...]}}; NaN is null; a scalar
whose rank file is missing is left out.
"""
import json
import math
import pathlib
import sys

import h5py


def collect(group, path, found):
    for name in group:
        try:
            item = group[name]
        except KeyError:
            continue
        if isinstance(item, h5py.Group):
            collect(item, f"{path}/{name}", found)
            continue
        values = item[...].reshape(-1).tolist()
        found[f"{path}/{name}"] = {
            "shape": list(item.shape),
            "dtype": str(item.dtype),
            "values": [None if isinstance(v, float) and math.isnan(v) else v for v in values],
        }


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = {}
    with h5py.File(pathlib.Path(sys.argv[1]) / "index.h5", "r") as file:
        collect(file, "", found)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
