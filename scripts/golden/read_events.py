#!/usr/bin/env python3
# What does TensorBoard itself see of a run? The oracle of the tests of event files.
"""Reads a folder of event files as TensorBoard does, points of lost work dropped.

usage: read_events.py FOLDER
Prints one JSON object {"train/loss": [[step, wall time, value], ...], ...}.
"""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
curves = {tag: [[point.step, point.wall_time, point.value] for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
print(json.dumps(curves))
