"""Prints what TensorBoard itself reads in a run folder, as JSON: {"scalars": {tag: [[step, value], ...]}, "texts": {tag: text}}.

Usage: tensorboard_readback.py RUN_DIR
"""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import TENSORS, SCALARS, EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={SCALARS: 0, TENSORS: 0})
events.Reload()
tags = events.Tags()
scalars = {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags["scalars"]}
texts = {tag: events.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in tags["tensors"]}
json.dump({"scalars": scalars, "texts": texts}, sys.stdout)
